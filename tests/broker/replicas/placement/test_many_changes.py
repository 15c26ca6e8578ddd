"""A broker learns of many changed partitions at once and applies them in turns, in their newest state."""

import asyncio
from itertools import pairwise

import pytest

from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.placement import log_reconciler, replica_publisher
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.delta import build_delta, build_full_delta
from pykraft.metadata_log.records import (
    ConfigRecord,
    ConfigResourceType,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from pykraft.metadata_log.replay import replay
from tests.broker.data_cluster import Controller, DataBroker, DataCluster
from tests.narrowing import present

TOPICS, PARTITIONS = 4, 6


def topic_id(number: int) -> Uuid:
    return Uuid((number + 1).to_bytes(16, "big"))


def apply(controller: Controller, *records: Record) -> None:
    """Append a batch to the metadata log and inform every broker."""
    image, changes = replay(controller.image, records, controller.image.offset + 1, 1)
    delta = build_delta(controller.image, image, changes)
    controller.metadata.image = image
    for broker in controller.brokers.values():
        broker.data.publisher.publish(delta, image)


def topic(
    count: int, number: int = 0, *, name: str = "t", replicas: tuple[int, ...] = (1,), leader: int = 1
) -> list[Record]:
    """Its creation with so many partitions."""
    id = topic_id(number)
    partitions = [PartitionRecord(index, id, replicas, replicas, leader) for index in range(count)]
    return [TopicRecord(name, id), *partitions]


def topics(leader: int) -> list[Record]:
    made = [topic(PARTITIONS, n, name=f"t{n}", replicas=(1, 2), leader=leader) for n in range(TOPICS)]
    return [record for records in made for record in records]


def moves_to(leader: int) -> list[Record]:
    """Of all partitions of these topics."""
    return [
        PartitionChangeRecord(index, topic_id(number), leader=leader)
        for number in range(TOPICS)
        for index in range(PARTITIONS)
    ]


def led(broker: DataBroker) -> int:
    return sum(partition.is_leader for partition in broker.table)


async def reconciled(broker: DataBroker) -> None:
    async with asyncio.timeout(10):
        while not broker.replicas.is_reconciled:
            await asyncio.sleep(0.001)


async def test_many_changes_are_applied_in_turns_and_to_the_newest_state(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_publisher, "_TURN_COST", 5 * (replica_publisher._LOCAL_COST + 1))
    broker, controller = cluster.brokers[1], cluster.controller
    apply(controller, *topics(leader=2))
    await reconciled(broker)
    assert (len(list(broker.table)), led(broker)) == (TOPICS * PARTITIONS, 0)

    apply(controller, *moves_to(1))
    assert led(broker) == 5, "all in one turn"
    assert not broker.replicas.is_reconciled
    await reconciled(broker)
    assert led(broker) == TOPICS * PARTITIONS

    apply(controller, *moves_to(2))
    assert led(broker) == TOPICS * PARTITIONS - 5
    # Newer changes overtake those still to be applied: one partition moves back, one topic is
    # deleted.
    apply(controller, PartitionChangeRecord(PARTITIONS - 1, topic_id(1), leader=1))
    apply(controller, RemoveTopicRecord(topic_id(3)))
    await reconciled(broker)
    assert led(broker) == 1
    moved_back = present(broker.table.find("t1", PARTITIONS - 1))
    assert (moved_back.leader_id, moved_back.leader_epoch) == (1, 3)
    assert broker.table.find("t3", 0) is None


async def test_broker_that_never_catches_up_with_changes_still_reports_its_progress(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the controller would conclude that it does not follow the metadata log."""
    monkeypatch.setattr(replica_publisher, "_TURN_COST", 5 * (replica_publisher._LOCAL_COST + 1))
    broker, controller = cluster.brokers[1], cluster.controller
    apply(controller, *topics(leader=2))
    await reconciled(broker)
    applied = controller.image.offset
    published = []
    for round in range(6):
        apply(controller, *moves_to(1 + round % 2))
        published.append(controller.image.offset)
        if round == 0:
            assert broker.data.publisher.unapplied_since == applied
    seen = []
    while (offset := broker.data.publisher.unapplied_since) is not None:
        seen.append(offset)
        await asyncio.sleep(0)
    assert seen == sorted(seen)
    assert set(seen) <= set(published) and len(set(seen)) >= 4


async def test_broker_that_starts_opens_all_that_is_assigned_to_it(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_publisher, "_TURN_COST", 10)
    broker, controller = cluster.brokers[1], cluster.controller
    controller.metadata.image, _ = replay(controller.image, topics(leader=1), controller.image.offset + 1, 1)
    broker.data.publisher.publish(build_full_delta(controller.image), controller.image)
    assert not broker.replicas.is_reconciled
    await reconciled(broker)
    assert led(broker) == TOPICS * PARTITIONS


async def test_logs_that_are_open_at_a_start_are_applied_in_turns(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reconciler, "OPENED_PER_STEP", 3)
    count = TOPICS * PARTITIONS
    apply(cluster.controller, *topics(leader=1))
    await reconciled(cluster.brokers[1])
    await cluster.brokers[1].stop()
    broker = await cluster.start(1)  # the broker learns of the first partition of each topic
    await reconciled(broker)
    broker.data.publisher.publish(build_full_delta(cluster.controller.image), cluster.controller.image)
    seen = [TOPICS]
    async with asyncio.timeout(15):
        while seen[-1] < count:
            await asyncio.sleep(0)
            seen.append(len(list(broker.table)))
    assert max(later - earlier for earlier, later in pairwise(seen)) == 3


async def test_growth_is_reported_while_logs_are_opened(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the garbage collector would scan the objects of all logs at an arbitrary time."""
    monkeypatch.setattr(log_reconciler, "GROWTH_LOGS", 40)
    broker = cluster.brokers[1]
    opened: list[int] = []
    monkeypatch.setattr(broker.data.reconciler, "_on_growth", lambda: opened.append(len(list(broker.table))))
    apply(cluster.controller, *topic(100))
    await reconciled(broker)
    assert opened == [48, 96]


async def test_each_log_of_a_large_topic_is_configured_once(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured = []
    set_min_isr = Partition.set_min_isr

    def counted(partition: Partition, min_isr: int, *, strict: bool) -> None:
        configured.append(str(partition))
        set_min_isr(partition, min_isr, strict=strict)

    monkeypatch.setattr(Partition, "set_min_isr", counted)
    count = 5 * log_reconciler.OPENED_PER_STEP
    apply(cluster.controller, *topic(count))
    await reconciled(cluster.brokers[1])
    assert sorted(configured) == sorted(f"t-{index}" for index in range(count))


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions whose waiting clients were refused."""
    dropped: list[int] = []
    refuse_waiters = Partition.refuse_waiters

    def counted(partition: Partition, code: ErrorCode) -> None:
        dropped.append(partition.index)
        refuse_waiters(partition, code)

    monkeypatch.setattr(Partition, "refuse_waiters", counted)
    return dropped


async def test_many_replicas_of_a_deleted_topic_are_found_no_more_at_once_and_dropped_in_turns(
    cluster: DataCluster, dropped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that has the same name by then is served by its own replicas only."""
    monkeypatch.setattr(replica_publisher, "_TURN_COST", 5 * replica_publisher._LOCAL_COST)
    count, old, new = 4 * 5, topic_id(0), topic_id(1)
    broker, controller = cluster.brokers[1], cluster.controller
    apply(controller, *topic(count))
    await reconciled(broker)
    replicas = list(broker.table)
    assert len(replicas) == count
    apply(controller, RemoveTopicRecord(old))
    assert dropped == [0, 1, 2, 3, 4], "all in one turn"
    assert not broker.replicas.is_reconciled
    assert broker.table.find("t", count - 1) is None
    apply(controller, *topic(count, 1))
    assert broker.table.find("t", count - 1) is None
    await reconciled(broker)
    assert sorted(dropped) == list(range(count)) and not any(it.is_leader for it in replicas)
    assert {partition.topic_id for partition in broker.table} == {new}
    assert {opened.topic_id for opened in broker.logs.logs.values()} == {new}


async def test_broker_that_stops_refuses_who_waits_at_replicas_of_a_deleted_topic_too(
    cluster: DataCluster, dropped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are still to resign are in no table any more."""
    monkeypatch.setattr(replica_publisher, "_TURN_COST", 3 * replica_publisher._LOCAL_COST)
    broker = cluster.brokers[1]
    apply(cluster.controller, *topic(20))
    await reconciled(broker)
    apply(cluster.controller, RemoveTopicRecord(topic_id(0)))
    assert len(dropped) < 20
    await broker.data.stop()
    assert set(dropped) == set(range(20))


async def test_settings_of_many_replicas_are_applied_in_turns_and_before_what_relies_on_them(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_publisher, "_TURN_COST", 5 * replica_publisher._LOCAL_COST)
    count = 4 * 5
    broker, controller = cluster.brokers[1], cluster.controller
    apply(controller, *topic(count, replicas=(1, 2), leader=2))
    await reconciled(broker)
    before = controller.image.offset

    def configured() -> int:
        return sum(partition.log.config.retention_ms == 77 for partition in broker.table)

    apply(controller, ConfigRecord(ConfigResourceType.TOPIC, "t", "retention.ms", "77"))
    assert configured() == 4, "the first turn also builds the settings"
    apply(controller, *(PartitionChangeRecord(index, topic_id(0), leader=1) for index in range(count)))
    applied = broker.data.publisher.unapplied_since
    assert applied is not None and applied <= before
    seen = [(configured(), led(broker))]
    async with asyncio.timeout(15):
        while seen[-1][1] < count:
            await asyncio.sleep(0)
            seen.append((configured(), led(broker)))
    assert max(later[0] - earlier[0] for earlier, later in pairwise(seen)) <= 5
    assert all(ready == count for ready, leading in seen if leading)
    await reconciled(broker)
    apply(controller, ConfigRecord(ConfigResourceType.BROKER, "", "log.retention.bytes", "78"))
    await reconciled(broker)
    assert {partition.log.config.retention_bytes for partition in broker.table} == {78}
