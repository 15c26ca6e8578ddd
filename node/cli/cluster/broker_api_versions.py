"""``pykraft broker-api-versions``, with the output of kafka-broker-api-versions: which APIs each broker serves,
in which versions, and the newest that pykraft's own client can use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.results import BrokerDescription
from pykraft.kafka_protocol.api_keys import ApiKey, request_class
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import json_option, print_json, wants_json
from pykraft.runtime.address import Address

_OF_CONTROLLERS: Final = frozenset(
    {
        *(ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.FETCH_SNAPSHOT),
        *(ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.CONTROLLER_REGISTRATION),
        *(ApiKey.ENVELOPE, ApiKey.ASSIGN_REPLICAS_TO_DIRS, ApiKey.UPDATE_RAFT_VOTER),
    }
)
"""No broker serves these; Kafka's tool does not list them either."""

Versions = Mapping[int, tuple[int, int]]


@click.command()
@cluster_options()
@json_option
def command(target: Target) -> None:
    """Show which versions of which APIs the brokers serve."""
    with target.client() as client:
        brokers = client.describe_cluster().brokers
        found = {broker: _versions(client, broker) for broker in brokers}
    if wants_json():
        print_json([_as_object(broker, versions) for broker, versions in found.items()])
        return
    for broker, versions in found.items():
        click.echo(f"{_name(broker)} -> {_text(versions)}")


def _versions(client: AdminClient, broker: BrokerDescription) -> Versions | KafkaError:
    """As every client learns them, when it connects."""
    cluster = client.admin.cluster
    try:
        return run(cluster.connection(Address(broker.host, broker.port), cluster.deadline())).versions
    except KafkaError as error:
        return error


def _name(broker: BrokerDescription) -> str:
    rack = "null" if broker.rack is None else broker.rack
    return (
        f"{broker.host}:{broker.port} (id: {broker.id} rack: {rack}"
        f" isFenced: {str(broker.is_fenced).lower()})"
    )


def _text(versions: Versions | KafkaError) -> str:
    if isinstance(versions, KafkaError):
        return f"ERROR: {versions.message}"
    keys = sorted({*versions, *(set(ApiKey) - _OF_CONTROLLERS)})
    return "(\n\t" + ",\n\t".join(_line(key, versions.get(key)) for key in keys) + "\n)"


def _line(key: int, served: tuple[int, int] | None) -> str:
    name = f"{api_name(key)}({key})"
    if served is None:
        return f"{name}: UNSUPPORTED"
    first, last = served
    usable = _usable(key, served)
    shown = str(first) if first == last else f"{first} to {last}"
    return f"{name}: {shown} [usable: {'none' if usable is None else usable}]"


def api_name(key: int) -> str:
    """``ListOffsets``; UNKNOWN for an API that is not Kafka's."""
    try:
        return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
    except ValueError:
        return "UNKNOWN"


def _usable(key: int, served: tuple[int, int]) -> int | None:
    """The newest version that both sides have; None: there is none, or the API has no messages here."""
    try:
        known = request_class(key)
    except KeyError:
        return None
    newest = min(served[1], known.MAX_VERSION)
    return newest if newest >= max(served[0], known.MIN_VERSION) else None


def _as_object(broker: BrokerDescription, versions: Versions | KafkaError) -> dict[str, object]:
    shown: dict[str, object] = {
        "id": broker.id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "isFenced": broker.is_fenced,
    }
    if isinstance(versions, KafkaError):
        return {**shown, "error": str(versions)}
    apis = [
        {
            "apiKey": key,
            "name": api_name(key),
            "minVersion": served[0],
            "maxVersion": served[1],
            "usableVersion": _usable(key, served),
        }
        for key, served in sorted(versions.items())
    ]
    return {**shown, "apis": apis}
