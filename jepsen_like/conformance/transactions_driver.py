"""Random scripts of raw transactional requests against this broker and Apache Kafka 4.3, answer by answer.

Both run as one combined node, side by side. Each seed is one script of producers that share transactional
ids, by the rules of ``transaction.version`` 2 or the old ones, of readers, administrators and strangers. It
is played on both, with topics of its own, and the answers are compared field by field; at its end all that it
has left is compared: records as both isolation levels read them, offsets, producers, transactions. A script
whose answers differ is shortened and printed with both answers; the exit status is then 1.

    python -m pykraft.jepsen_like.conformance.transactions_driver --seeds 150 [--first 1] [--kafka-libs DIR]
"""

import sys
from typing import Any, Final

from pykraft.jepsen_like.conformance import driver, groups_driver
from pykraft.jepsen_like.conformance.generate_transactions import generate_transactions
from pykraft.jepsen_like.conformance.known.groups import KNOWN
from pykraft.jepsen_like.conformance.known.transactions import KNOWN_TRANSACTIONS
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import groups, transactions
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import WireClient

ALL_KNOWN: Final = (*KNOWN, *KNOWN_TRANSACTIONS)
"""Those of groups, too: offsets of transactions belong to groups."""
PROPERTIES: Final = {
    **groups_driver.PROPERTIES,
    "pykraft.transaction.markers.from.clients": "any",  # as Kafka without an authorizer
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}


def prepare(system: Any, client: WireClient) -> None:
    """Coordinators of groups and of transactions, at work."""
    wait_until(
        f"the group coordinator of {system.name}",
        lambda: groups_driver.coordinates_groups(client),
    )
    wait_until(f"the transaction coordinator of {system.name}", lambda: _coordinates(client))


def _coordinates(client: WireClient) -> bool:
    request = groups.FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
    client.call(request, 4)
    probe = transactions.InitProducerIdRequest(transactional_id="probe", transaction_timeout_ms=1000)
    answer = client.call(probe, 4)
    return bool(answer.error_code == ErrorCode.NONE)


def main() -> int:
    options = driver.add_options(__doc__).parse_args()
    return driver.run(options, PROPERTIES, prepare, ALL_KNOWN, generate_transactions)


if __name__ == "__main__":
    sys.exit(main())
