"""How a broker makes itself known to another one, as long as connections are not authenticated.

Its client id has the id of its incarnation: sixteen random bytes that only brokers and controllers know, from
the metadata log. No API shows them to clients, so a stranger cannot pose as a broker. They cross the network
in the clear: anyone who can read the brokers' traffic, the metadata log or the controllers' listener is not
kept out.
"""

from __future__ import annotations

from hmac import compare_digest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.image import MetadataImage


def peer_client_id(node_id: int, incarnation_id: Uuid) -> str:
    """The client id of a broker on its connections to others."""
    return f"broker-{node_id}-{incarnation_id.hex()}"


def is_broker(client_id: str, image: MetadataImage) -> bool:
    """Whether the client is a broker of the cluster, and the newest process that registered as that."""
    _, _, rest = client_id.partition("broker-")
    number = rest.partition("-")[0]
    if not number.isdecimal() or len(number) > 10:
        return False
    broker = image.brokers.get(int(number))
    return broker is not None and compare_digest(
        client_id.encode(), peer_client_id(broker.id, broker.incarnation_id).encode()
    )
