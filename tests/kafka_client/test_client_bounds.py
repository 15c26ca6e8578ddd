"""Sizes of batches, pauses between attempts, and what a member believes: each at its bound, and beyond it."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.errors import ClientTimeoutError
from pykraft.kafka_client.group.classic import ClassicMembership
from pykraft.kafka_client.group.config import GroupConfig
from pykraft.kafka_client.group.consumer import ConsumerMembership
from pykraft.kafka_client.group.ownership import Ownership
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import Future
from pykraft.kafka_client.producer.batch import (
    ProducerBatch,
    ProducerConfig,
    RecordMetadata,
    record_size_bound,
)
from pykraft.kafka_client.producer.partition_queue import PartitionQueue
from pykraft.kafka_client.producer.transaction import ProducerIdentity
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import HEADER_BYTES
from pykraft.runtime.address import Address
from tests.kafka_client.scripted import ScriptedCluster
from tests.kafka_client.virtual_cluster import network_of, run_virtual

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CLIENT = ClientConfig((Address("a", 1),), retry_backoff_ms=50, retry_backoff_max_ms=300)
PAUSES_MS = [50, 100, 200, 300, 300]
PASSING = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")


class _Outcome:
    """A future of a test without a loop."""

    def __init__(self) -> None:
        self.result: Any = None

    def done(self) -> bool:
        return self.result is not None

    def set_result(self, result: Any) -> None:
        self.result = result

    set_exception = set_result


def outcome() -> Future[RecordMetadata]:
    made: Any = _Outcome()
    return made  # type: ignore[no-any-return]


def queue_of(**config: Any) -> PartitionQueue:
    made = PartitionQueue(T0, ProducerConfig(**config), CLIENT, lambda batch: None)
    made.adopt(ProducerIdentity(1, 0))
    return made


def append(queue: PartitionQueue, size_bytes: int, now_ms: int = 0) -> ProducerBatch:
    return queue.append(RecordInput(None, b"v"), size_bytes, outcome(), now_ms)


# -- batch.size ----------------------------------------------------------------------------------------


def test_records_share_a_batch_up_to_its_size() -> None:
    room = 1_000 - HEADER_BYTES
    queue = queue_of(batch_size_bytes=1_000)
    first = append(queue, room - 100)
    assert not first.is_closed
    assert append(queue, 100) is first and first.size_bytes == 1_000
    assert first.is_closed, "it is full: it does not linger"
    assert append(queue, 1) is not first


def test_record_that_does_not_fit_begins_the_next_batch() -> None:
    room = 1_000 - HEADER_BYTES
    queue = queue_of(batch_size_bytes=1_000)
    first = append(queue, room - 100)
    second = append(queue, 101)
    assert second is not first and first.is_closed and not second.is_closed
    assert (first.record_count, second.record_count) == (1, 1)
    assert first.order < second.order and list(queue.waiting) == [first, second]


def test_record_of_the_whole_size_is_a_batch_by_itself() -> None:
    queue = queue_of(batch_size_bytes=1_000)
    assert not append(queue, 999 - HEADER_BYTES).is_closed
    queue = queue_of(batch_size_bytes=1_000)
    assert append(queue, 1_000 - HEADER_BYTES).is_closed
    assert append(queue, 5_000).is_closed, "one that is larger, too"


def test_batch_lingers_unless_it_is_full() -> None:
    queue = queue_of(batch_size_bytes=1_000, linger_ms=5)
    batch = append(queue, 10, now_ms=100)
    assert queue.ready(104) is None and queue.next_deadline_ms(104) == 105
    assert queue.ready(105) is batch
    batch.is_closed = True
    assert queue.ready(100) is batch


def test_batch_counts_what_its_records_take_of_the_buffer() -> None:
    queue = queue_of(batch_size_bytes=1_000)
    batch = append(queue, 10)
    append(queue, 20)
    assert batch.records_bytes == 30


headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=3)
numbers = st.integers(-1, (1 << 63) - 1)
record = st.builds(
    RecordInput, st.none() | st.binary(max_size=200), st.none() | st.binary(), headers, numbers
)


@settings(deadline=None, max_examples=200)
@given(st.lists(record, min_size=1, max_size=5))
def test_size_of_a_record_is_not_above_its_bound(records: list[RecordInput]) -> None:
    """Above it, requests and batches could be larger than brokers take them."""
    assert len(encode_batch(records)) <= HEADER_BYTES + sum(map(record_size_bound, records))


@pytest.mark.parametrize(
    "change",
    [
        {"acks": 2},
        {"acks": -2},
        {"max_in_flight_requests_per_connection": 0},
        {"max_in_flight_requests_per_connection": 6},
        {"acks": 1},
        {"acks": 0},
    ],
)
def test_settings_beyond_their_bounds_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        ProducerConfig(**change)  # type: ignore[arg-type]


def test_settings_at_their_bounds_are_taken() -> None:
    for acks in (-1, 0, 1):
        plain = ProducerConfig(acks=acks, enable_idempotence=False, max_in_flight_requests_per_connection=6)
        assert plain.max_in_flight_per_partition == 1, "the order is kept"
    assert ProducerConfig(max_in_flight_requests_per_connection=5).max_in_flight_per_partition == 5
    assert ProducerConfig(max_in_flight_requests_per_connection=1).max_in_flight_per_partition == 1


def test_defaults_are_those_of_kafkas_producer() -> None:
    assert ProducerConfig() == ProducerConfig(
        acks=-1,
        enable_idempotence=True,
        max_in_flight_requests_per_connection=5,
        linger_ms=5,
        batch_size_bytes=16_384,
        buffer_memory_bytes=33_554_432,
        max_request_size_bytes=1_048_576,
        delivery_timeout_ms=120_000,
        max_block_ms=60_000,
        compression=Compression.NONE,
    )


# -- pauses --------------------------------------------------------------------------------------------


def test_batch_is_sent_again_after_pauses_that_grow_to_the_greatest() -> None:
    queue = queue_of(linger_ms=0, delivery_timeout_ms=1 << 40)
    batch = append(queue, 10)
    for number, pause_ms in enumerate([*PAUSES_MS, *[300] * 30]):
        now_ms = number * 10_000
        assert queue.take(Address("a", 1)) is batch
        queue.refused(batch, PASSING, now_ms)
        assert queue.ready(now_ms + pause_ms - 1) is None
        assert queue.ready(now_ms + pause_ms) is batch


def test_batch_is_given_up_when_its_time_is_over_and_not_before() -> None:
    queue = queue_of(linger_ms=0, delivery_timeout_ms=1_000)
    batch = append(queue, 10, now_ms=500)
    queue.expire(1_499)
    assert not batch.is_done
    queue.expire(1_500)
    assert batch.is_done


def test_attempts_are_repeated_after_pauses_that_grow_to_the_greatest(scripted: ScriptedCluster) -> None:
    cluster = scripted.client()
    cluster.config = replace(cluster.config, retry_backoff_ms=50, retry_backoff_max_ms=300)

    async def attempt() -> None:
        raise PASSING

    began_ms = cluster.network.now_ms()
    with pytest.raises(ClientTimeoutError, match="gave up; the last error was NOT_LEADER_OR_FOLLOWER: moved"):
        run(cluster.retrying("it", attempt, began_ms + sum(PAUSES_MS) + 1))
    assert scripted.network.slept_ms == PAUSES_MS
    scripted.network.slept_ms.clear()
    with pytest.raises(ClientTimeoutError):
        run(cluster.retrying("it", attempt, cluster.network.now_ms() + 50))
    assert scripted.network.slept_ms == [], "the deadline comes first"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_member_asks_again_after_pauses_that_grow_to_the_greatest(
    protocol: Any, scripted: ScriptedCluster
) -> None:
    async def main() -> list[int]:
        network, cluster = network_of(scripted), scripted.client()
        cluster.config = replace(cluster.config, retry_backoff_ms=50, retry_backoff_max_ms=300)
        given = network, CoordinatorLink(cluster, "g"), GroupConfig("g", ("t",), protocol)
        owned = Ownership(network, Told(), 1_000)
        member: ClassicMembership | ConsumerMembership
        if protocol == "classic":
            member = ClassicMembership(*given, owned)
        else:
            member = ConsumerMembership(*given, owned, "m")
        pauses = []
        for _ in range(40):
            member._failed(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "later"))
            pauses.append(member._retry_at_ms - network.now_ms())
        return pauses

    assert run_virtual(main()) == [*PAUSES_MS, *[300] * 35]


# -- what a member believes ----------------------------------------------------------------------------


class Told:
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.release = asyncio.Event()

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", list(partitions)))

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", list(partitions)))
        await self.release.wait()

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("lost", list(partitions)))

    def heartbeat(self, sent_ms: int, member_id: str, member_epoch: int) -> None: ...


def test_whoever_waits_for_a_change_of_ownership_is_woken_by_each() -> None:
    async def main() -> None:
        network, told = AsyncioNetwork(), Told()
        owned = Ownership(network, told, 1_000)

        async def woken() -> bool:
            """By what was done since."""
            is_set = owned.changed.is_set()
            owned.changed.clear()
            return is_set

        assert owned.renew(network.now_ms(), "m", 1) and await woken()
        assert owned.take({T0: ZERO_UUID, T1: ZERO_UUID}) and await woken()
        revoking = asyncio.create_task(owned.revoke([T1]))
        await asyncio.sleep(0)
        assert owned.readable() == [T0] and set(owned.held()) == {T0, T1} and await woken()
        told.release.set()
        await revoking
        assert set(owned.held()) == {T0} and await woken()
        owned.lose()
        assert owned.valid_until_ms is None and await woken()
        assert told.calls == [("assigned", [T0, T1]), ("revoked", [T1]), ("lost", [T0])]
        owned.lose()
        assert len(told.calls) == 3, "nothing is lost twice"
        assert not owned.take({T0: ZERO_UUID})

    run_virtual(main())


def test_partition_that_is_lost_while_it_is_revoked_is_not_held_again() -> None:
    """The lease ends, a new one begins, and the partition is assigned again before the listener returns."""

    async def main() -> None:
        network, told = AsyncioNetwork(), Told()
        owned = Ownership(network, told, 1_000)
        owned.renew(network.now_ms(), "m", 1)
        owned.take({T0: ZERO_UUID, T1: ZERO_UUID})
        revoking = asyncio.create_task(owned.revoke([T0], by_ms=network.now_ms() + 100))
        await network.sleep(99)
        assert set(owned.held()) == {T0, T1}
        await network.sleep(1)
        assert set(owned.held()) == set(), "everything is lost when it is not released in time"
        told.release.set()
        await revoking
        assert owned.valid_until_ms is None
        assert ("lost", [T0, T1]) in told.calls

    run_virtual(main())
