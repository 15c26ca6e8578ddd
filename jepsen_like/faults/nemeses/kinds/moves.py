"""Replicas and leaderships that move while the cluster works: reassignments, cancelled ones, elections."""

import contextlib
import random
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.administrator import Administrator, Placements
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, NotPossibleNowError, Repair, between
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.enums import ElectionType
from pykraft.kafka_protocol.errors import KafkaError

FEWEST_REPLICAS: Final = 2
"""With as many brokers as replicas a move can only leave some out for a while; never too few for writes."""
_CANCELLED_SHARE: Final = 0.2
_ELECTED_SHARE: Final = 0.3


def _move_partitions(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """Partitions of the workload's topics get other replicas, others fewer, others another order."""
    ended = threading.Event()
    with Administrator(cluster) as admin:
        before = admin.ask(lambda: admin.placements(internal=False))
    if not before:
        raise NotPossibleNowError("there is no topic")
    thread = threading.Thread(target=_move_about, args=(cluster, fault, before, ended), daemon=True)
    thread.start()

    def move_home() -> None:
        ended.set()
        thread.join()
        with Administrator(cluster) as admin:
            admin.until("every replica is where it was", lambda: admin.is_placed(before))

    return move_home


def _move_about(cluster: ProcessCluster, fault: Fault, before: Placements, ended: threading.Event) -> None:
    rng = random.Random(fault.draw)
    with Administrator(cluster) as admin:
        while not ended.is_set() and not cluster.ended:
            with contextlib.suppress(KafkaError):
                admin.move(_draw_moves(before, admin.brokers(), rng))
                if rng.random() < _ELECTED_SHARE:
                    admin.client.elect_leaders(ElectionType.PREFERRED)
            ended.wait(fault.settings["every_s"])


def _draw_moves(
    before: Placements, brokers: Sequence[int], rng: random.Random
) -> Mapping[TopicPartition, Sequence[int] | None]:
    """None cancels the move that may be under way."""
    wanted: dict[TopicPartition, Sequence[int] | None] = {}
    for place in rng.sample(sorted(before), rng.randint(1, min(4, len(before)))):
        most = min(len(before[place]), len(brokers))
        count = most if rng.random() < 0.7 else rng.randint(min(FEWEST_REPLICAS, most), most)
        cancels = rng.random() < _CANCELLED_SHARE
        wanted[place] = None if cancels else rng.sample(brokers, count)
    return wanted


def _elect_leaders(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    with Administrator(cluster) as admin:
        elected = admin.ask(lambda: admin.client.elect_leaders(ElectionType.PREFERRED))
    if all(one.error is not None for one in elected):
        raise NotPossibleNowError("every partition is led by its preferred leader")
    return lambda: None


def _no_other_broker(cluster: ProcessCluster) -> str | None:
    return "fewer than two brokers" if len(cluster.voters) < 2 else None


KINDS: Final = (
    Kind(
        "move-partitions",
        "replicas are reassigned at random, moves are cancelled, preferred leaders elected",
        _move_partitions,
        between(3.0, 12.0),
        family="membership",
        targets={Target.CLUSTER: 1.0},
        claims=frozenset({"partitions"}),
        settings=lambda rng: {"every_s": round(rng.uniform(0.3, 2.0), 2)},
        not_with=frozenset({"moves"}),
        why_unavailable=_no_other_broker,
    ),
    Kind(
        "elect-leaders",
        "the preferred leaders are elected",
        _elect_leaders,
        between(0.1, 0.5),
        family="membership",
        targets={Target.CLUSTER: 1.0},
        claims=frozenset(),
        why_unavailable=_no_other_broker,
    ),
)
