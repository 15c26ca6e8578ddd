"""Random scripts of raw group requests against this broker and Apache Kafka 4.3, answer by answer.

Both run as one combined node, side by side. Each seed is one script: it is played on both, and the answers
are compared field by field. A script whose answers differ is shortened and printed with both answers; the
exit status is then 1. Groups are of one protocol, or of both, so that they migrate; ``--no-…`` leaves out a
kind of steps.

    python benchmarks/groups_differential.py --seeds 300 [--first 1] [--no-consumer] [--kafka-libs DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from comparison.cluster import Cluster, running
from comparison.requests import is_in_sync, request_topic
from comparison.systems import Kafka, Pykraft, System, find_kafka
from data_path import Client, wait_for

from pykraft.jepsen_like.differential.compare import Comparison, Difference
from pykraft.jepsen_like.differential.draw import Versions
from pykraft.jepsen_like.differential.generate import Choice, generate
from pykraft.jepsen_like.differential.known import KNOWN
from pykraft.jepsen_like.differential.minimise import minimise
from pykraft.jepsen_like.differential.player import System as Played
from pykraft.jepsen_like.differential.script import TOPICS, Script
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages import find_coordinator, heartbeat
from pykraft.runtime.address import Address

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
_PATIENCE_TO_MINIMISE: Final = 1


@contextlib.contextmanager
def both_systems(directory: Path, kafka: Kafka) -> Iterator[tuple[Played, Played]]:
    """This broker and Apache Kafka, both ready for scripts."""
    with contextlib.ExitStack() as stack:
        played = []
        for system in (Pykraft(), kafka):
            place = directory / system.name
            place.mkdir(parents=True)
            cluster = stack.enter_context(running(system, place, 1, PROPERTIES))
            played.append(stack.enter_context(contextlib.closing(_prepare(system, cluster))))
        yield played[0], played[1]


def _prepare(system: System, cluster: Cluster) -> Played:
    client = Client(cluster.port)
    with client.socket:
        _make_topics(system, client)
    return Played(system.name, Address("127.0.0.1", cluster.port))


def _make_topics(system: System, client: Client) -> None:
    for name, partitions in TOPICS.items():
        request_topic(client, name, partitions, 1)
    wait_for(lambda: is_in_sync(client, list(TOPICS), 1), f"the topics of {system.name}")
    wait_for(lambda: _coordinates(client), f"the group coordinator of {system.name}")


def _coordinates(client: Client) -> bool:
    """Ask for a coordinator, which creates the offsets topic, and whether it is at work."""
    request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    client.call(request, 4, find_coordinator.FindCoordinatorResponse)
    probe = heartbeat.HeartbeatRequest(group_id="g", member_id="nobody", generation_id=1)
    code = client.call(probe, 4, heartbeat.HeartbeatResponse).error_code
    return bool(code == ErrorCode.UNKNOWN_MEMBER_ID)


def served_by_both(ours: Played, kafka: Played) -> Versions:
    return {
        key: (max(lowest, kafka.versions[key][0]), min(highest, kafka.versions[key][1]))
        for key, (lowest, highest) in ours.versions.items()
        if key in kafka.versions
    }


def shortest(comparison: Comparison, found: Difference) -> Difference:
    """The same difference, as far as that can be told, of a script as short as possible."""
    api = type(found.script.steps[found.at].request)
    best = found

    def still(script: Script) -> bool:
        nonlocal best
        shorter = comparison.find(script, _PATIENCE_TO_MINIMISE)
        if shorter is None or type(script.steps[shorter.at].request) is not api:
            return False
        best = shorter
        return True

    minimise(Script(found.script.seed, found.script.steps[: found.last + 1]), still)
    return comparison.find(best.script) or found


def main() -> int:
    options = _parse()
    both = options.classic and options.consumer
    choice = Choice(options.classic, options.consumer, both and options.mixed, options.regex)
    steps = Counter[str]()
    played, differences = 0, []
    kafka_jars = find_kafka(options.kafka_libs)
    with tempfile.TemporaryDirectory(prefix="groups-differential-") as directory:  # noqa: SIM117
        with both_systems(Path(directory), kafka_jars) as (ours, kafka):
            comparison = Comparison(ours, kafka, KNOWN)
            versions = served_by_both(ours, kafka)
            started = time.monotonic()
            for seed in range(options.first, options.first + options.seeds):
                script = generate(seed, versions, choice)
                steps.update(type(step.request).__name__ for step in script.steps)
                found = comparison.find(script)
                played += 1
                if found is not None:
                    differences.append(seed)
                    found = shortest(comparison, found)
                    print(f"{found.script}\n{found}\n", flush=True)
                    if len(differences) >= options.at_most:
                        break
            taken_s = time.monotonic() - started
    for name, times in sorted(comparison.met.items()):
        print(f"known difference, seen in {times} comparisons: {name}")
    print(f"requests: {', '.join(f'{name} {count}' for name, count in steps.most_common())}")
    print(
        f"{played} scripts, {steps.total()} steps, {taken_s:.0f} s:"
        f" {len(differences)} scripts differ {differences or ''}"
    )
    return 1 if differences else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many scripts")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--at-most", type=int, default=10, help="stop after so many differences")
    parser.add_argument("--no-classic", dest="classic", action="store_false", help="no classic groups")
    parser.add_argument("--no-consumer", dest="consumer", action="store_false", help="no consumer groups")
    parser.add_argument(
        "--no-mixed", dest="mixed", action="store_false", help="no groups with members of both protocols"
    )
    parser.add_argument("--no-regex", dest="regex", action="store_false", help="no regular expressions")
    parser.add_argument(
        "--kafka-libs", type=Path, help="the jars of Apache Kafka 4.3.0, instead of downloading them"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
