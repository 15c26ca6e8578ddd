"""Leaderships return to preferred replicas, one round at a time."""

from collections.abc import Callable

import pytest

from pykraft.metadata_log.controller import leader_balance
from pykraft.metadata_log.controller.config import ControllerConfig
from tests.metadata_log.harness import ControllerHarness, walk_in_slices


def balance(harness: ControllerHarness) -> int:
    """Run one round; returns how many leaderships it moved."""
    harness.core.begin_balance()
    before = harness.image.offset
    while harness.core.is_balancing:
        harness.run(harness.core.next_balance_slice())
    return int(harness.image.offset - before)


def return_in_sync(harness: ControllerHarness, broker_id: int, *topics: str) -> None:
    """The broker was away; now it is in sync again and leads nothing."""
    harness.stop_heartbeats(broker_id)
    harness.heartbeat(broker_id)
    for name in topics:
        for index, partition in enumerate(harness.topic(name).partitions):
            if broker_id in partition.replicas:
                harness.set_isr(name, *partition.isr, broker_id, index=index)


def test_a_returning_broker_gets_its_leaderships_back(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2], [2, 1], [1, 3])
    return_in_sync(cluster, 1, "t")
    assert [partition.leader for partition in cluster.topic("t").partitions] == [2, 2, 3]
    assert balance(cluster) == 2
    assert [partition.leader for partition in cluster.topic("t").partitions] == [1, 2, 1]
    assert balance(cluster) == 0


def test_a_small_imbalance_is_not_corrected(make_controller: Callable[..., ControllerHarness]) -> None:
    harness = make_controller(config=ControllerConfig(leader_imbalance_per_broker_percentage=50))
    harness.start_brokers(1, 2)
    harness.create_assigned("away", [1, 2])
    return_in_sync(harness, 1, "away")
    harness.create_assigned("here", [1, 2])
    assert balance(harness) == 0, "one of two is 50 %, not more"
    harness.create_assigned("more", [2, 1])
    assert balance(harness) == 0, "partitions that prefer others do not count"


def test_only_in_sync_replicas_of_healthy_partitions_are_elected(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2], [1, 2])
    return_in_sync(cluster, 1)
    assert balance(cluster) == 0, "nothing is in sync yet"
    cluster.set_isr("t", 2, 1, index=1)
    cluster.reassign("t", [1, 3], index=1)
    assert balance(cluster) == 0, "it is being moved"
    cluster.stop_heartbeats(1)
    assert balance(cluster) == 0, "it is away"


def test_many_partitions_are_balanced_in_slices(
    cluster: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_balance, "SLICE_CHANGES", 3)
    walk_in_slices(monkeypatch, 7)
    names = [f"t{n}" for n in range(9)]
    for name in names:
        cluster.create_assigned(name, [1, 2], [1, 3])
    return_in_sync(cluster, 1, *names)
    cluster.core.begin_balance()
    moved = []
    while cluster.core.is_balancing:
        result = cluster.core.next_balance_slice()
        cluster.run(result)
        moved.append(len(result.records))
    assert sum(moved) == 18 and max(moved) == 3
    assert all(p.leader == 1 for name in names for p in cluster.topic(name).partitions)


@pytest.mark.parametrize("slice_cost", [1, 2, 100])
def test_partitions_of_all_topics_are_counted_before_any_leadership_moves(
    make_controller: Callable[..., ControllerHarness], monkeypatch: pytest.MonkeyPatch, slice_cost: int
) -> None:
    walk_in_slices(monkeypatch, slice_cost)
    harness = make_controller(config=ControllerConfig(leader_imbalance_per_broker_percentage=50))
    harness.start_brokers(1, 2, 3)
    harness.create_assigned("one", [1, 2])
    harness.create_assigned("two", [3, 2])
    return_in_sync(harness, 1, "one")
    return_in_sync(harness, 3, "two")
    assert balance(harness) == 2, "each topic is the imbalance of another broker"
    return_in_sync(harness, 1, "one")
    harness.create_assigned("three", [1, 2])
    assert balance(harness) == 0, "half of those that prefer 1, whichever is counted first"


def test_topics_may_be_deleted_during_a_round(
    cluster: ControllerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pykraft.kafka_protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

    walk_in_slices(monkeypatch, 3)
    for name in ("a", "b", "c"):
        cluster.create_assigned(name, [1, 2])
    return_in_sync(cluster, 1, "a", "b", "c")
    cluster.core.begin_balance()
    cluster.run(cluster.core.next_balance_slice())
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="b")])
    cluster.run(cluster.core.handle_forwarded(cluster.context, request))
    while cluster.core.is_balancing:
        cluster.run(cluster.core.next_balance_slice())
    assert [cluster.partition(name).leader for name in ("a", "c")] == [1, 1]


def test_a_controller_that_resigns_drops_its_round(cluster: ControllerHarness) -> None:
    cluster.create_assigned("t", [1, 2])
    cluster.commit()
    cluster.core.begin_balance()
    cluster.lose_leadership()
    assert not cluster.core.is_balancing
