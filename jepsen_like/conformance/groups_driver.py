"""Random scripts of raw group requests against this broker and Apache Kafka 4.3, answer by answer.

Both run as one combined node, side by side. Each seed is one script: it is played on both, and the answers
are compared field by field. A script whose answers differ is shortened and printed with both answers; the
exit status is then 1. Groups are of one protocol, or of both, so that they migrate; ``--no-…`` leaves out a
kind of steps.

    python benchmarks/groups_driver.py --seeds 300 [--first 1] [--no-consumer] [--kafka-libs DIR]
"""

import argparse
import sys
from typing import Any, Final

from pykraft.jepsen_like.conformance import driver
from pykraft.jepsen_like.conformance.generate import Choice, generate
from pykraft.jepsen_like.conformance.known.groups import KNOWN
from pykraft.jepsen_like.conformance.script import TOPICS
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import groups
from pykraft.testing.processes.topics import is_in_sync, request_topic
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import WireClient

PROPERTIES: Final = {
    # Nothing happens because time passes.
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "1700000",
    "group.consumer.max.session.timeout.ms": "1800000",
    "group.consumer.assignment.interval.ms": "0",
    "pykraft.group.consumer.heartbeats.per.second": "0",  # Kafka says the same interval to all
    # The limits are in reach.
    "group.max.size": "3",
    "group.consumer.max.size": "3",
    # One thread reads requests and one handles them, so that they are handled in the order they were sent in.
    "num.network.threads": "1",
    "num.io.threads": "1",
    "offsets.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
}


def prepare(system: Any, client: WireClient) -> None:
    """The topics of scripts, and a group coordinator at work."""
    for name, partitions in TOPICS.items():
        request_topic(client, name, partitions, 1)
    wait_until(f"the topics of {system.name}", lambda: is_in_sync(client, list(TOPICS), 1))
    wait_until(f"the group coordinator of {system.name}", lambda: coordinates_groups(client))


def coordinates_groups(client: WireClient) -> bool:
    """Ask for a coordinator, which creates the offsets topic, and whether it is at work."""
    request = groups.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    client.call(request, 4)
    probe = groups.HeartbeatRequest(group_id="g", member_id="nobody", generation_id=1)
    code = client.call(probe, 4).error_code
    return bool(code == ErrorCode.UNKNOWN_MEMBER_ID)


def main() -> int:
    options = _parse()
    both = options.classic and options.consumer
    choice = Choice(options.classic, options.consumer, both and options.mixed, options.regex)
    return driver.run(
        options, PROPERTIES, prepare, KNOWN, lambda seed, versions: generate(seed, versions, choice)
    )


def _parse() -> argparse.Namespace:
    parser = driver.add_options(__doc__)
    parser.add_argument("--no-classic", dest="classic", action="store_false", help="no classic groups")
    parser.add_argument("--no-consumer", dest="consumer", action="store_false", help="no consumer groups")
    parser.add_argument(
        "--no-mixed", dest="mixed", action="store_false", help="no groups with members of both protocols"
    )
    parser.add_argument("--no-regex", dest="regex", action="store_false", help="no regular expressions")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
