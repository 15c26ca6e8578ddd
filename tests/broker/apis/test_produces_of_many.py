"""Produce requests for very many partitions: in slices, in order, and within bounds.

The slices are made small, so that some partitions are very many.
"""

import asyncio
from collections.abc import Callable, Generator
from types import ModuleType
from typing import Any

import pytest

from pykraft.broker.apis.records import produce as produce_api
from pykraft.broker.apis.records import produce_answers, produce_transactions
from pykraft.broker.apis.records.produce import ProduceHandler
from pykraft.broker.serving.large_requests import MOST_LARGE, LargeRequests
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.hot import produce as produce_fast
from pykraft.kafka_protocol.messages import records as record_messages
from pykraft.runtime.slices import Slices
from pykraft.runtime.turns import TurnBudget, UnlimitedTurn
from tests.broker.apis.test_transactional_requests import Coordinator, in_transaction, use
from tests.broker.data_cluster import DataClient, DataCluster, make_batch
from tests.broker.replicas.placement.test_openings import SlowLogs, held, name_leader
from tests.narrowing import as_type
from tests.stand_ins import interpreted_only
from tests.waits import until

MANY = 60
BATCH = make_batch(b"v")
NAMES = [f"topic-{number}" for number in range(20)]

pytestmark = pytest.mark.world(topics="t")
twenty_topics = pytest.mark.world(topics=NAMES)


@pytest.fixture(autouse=True)
def _long_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """With so few bytes besides records a request counts as one for very many partitions."""
    monkeypatch.setattr(produce_fast, "SLICE_BYTES", 100)


class Turns(UnlimitedTurn):
    """In each turn there is time for one slice; counts them."""

    def __init__(self) -> None:
        self._budget = TurnBudget(asyncio.get_running_loop().call_soon, lambda: 0, turn_us=0)
        self.slices = 0

    def has_room(self) -> bool:
        return self._budget.has_room()

    def has_time(self) -> bool:
        return self._budget.has_time()

    def has_share(self) -> bool:
        return self._budget.has_share()

    def spend(self, count_bytes: int = 0, steps: int = 0) -> bool:
        return self._budget.spend(count_bytes, steps)

    def defer(self, resume: Callable[[], None], lane: object = "") -> None:
        self.slices += 1
        self._budget.defer(resume, lane)


def count_slices(cluster: DataCluster) -> Turns:
    """Of the large requests to broker 1."""
    handler, turns = as_type(cluster.brokers[1]._hot[0], ProduceHandler), Turns()
    handler.slices = Slices(turns, "tests")
    handler._large = LargeRequests(handler.slices, cluster.brokers[1].data.replicas.hold_until_open)
    return turns


def send(
    client: DataClient,
    *topics: tuple[str, bytes | None],
    acks: int = 1,
    timeout_ms: int = 5000,
    transactional_id: str | None = None,
    version: int = 9,
) -> None:
    data = [
        record_messages.TopicProduceData(
            name=name, partition_data=[record_messages.PartitionProduceData(index=0, records=records)]
        )
        for name, records in topics
    ]
    request = record_messages.ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=data, transactional_id=transactional_id
    )
    client.send(request, version)


async def results(client: DataClient) -> list[tuple[str, int, int]]:
    """(topic, error code, base offset) of each partition."""
    response = await client.receive()
    return [
        (topic.name, one.error_code, one.base_offset)
        for topic in response.responses
        for one in topic.partition_responses
    ]


async def test_very_many_partitions_are_answered_in_order_and_before_later_requests(
    cluster: DataCluster,
) -> None:
    client = await cluster.client(1)
    asked = [("t", BATCH), ("missing", BATCH), ("t", None)] * (MANY // 3)
    for acks in (1, -1):
        send(client, *asked, acks=acks)
        client.send_produce(BATCH, acks=1)
        got = await results(client)
        first = got[0][2]
        appended, unknown = iter(range(first, first + MANY)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert got == [
            one
            for _ in range(MANY // 3)
            for one in (
                ("t", 0, next(appended)),
                ("missing", unknown, -1),
                ("t", ErrorCode.INVALID_RECORD, -1),
            )
        ]
        assert await results(client) == [("t", 0, first + MANY // 3)]


@pytest.mark.parametrize(
    ("module", "size"),
    [
        (produce_fast, "SLICE_BYTES"),
        (produce_api, "_ASKED_PER_SLICE"),
        (produce_fast, "RESULTS_PER_SLICE"),
        (produce_answers, "_EXPIRED_AT_ONCE"),
    ],
)
@pytest.mark.world(brokers=(1, 2), topics="t")
async def test_each_part_of_the_work_is_done_in_slices(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch, module: ModuleType, size: str
) -> None:
    """With smaller slices of one part there are more slices. The topics have long names, and so pauses."""
    await cluster.brokers[2].data.fetchers.stop()
    counted = []
    for _ in range(2):
        turns, client = count_slices(cluster), await cluster.client(1)
        send(client, *[("t", BATCH)] * MANY, acks=-1, timeout_ms=1)
        assert {code for _, code, _ in await results(client)} == {ErrorCode.REQUEST_TIMED_OUT}
        counted.append(turns.slices)
        monkeypatch.setattr(module, size, 2)
    assert counted[1] - counted[0] >= MANY // 2 - MANY // 10


@pytest.mark.world(brokers=(1, 2), topics="t")
async def test_batches_that_commit_while_others_expire_are_answered_once(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_answers, "_EXPIRED_AT_ONCE", 1)
    await cluster.brokers[2].data.fetchers.stop()
    turns, client = count_slices(cluster), await cluster.client(1)
    deferred: list[Callable[[], None]] = []
    send(client, *[("t", BATCH)] * MANY, acks=-1, timeout_ms=1)
    partition = cluster.partition(1)
    await until(lambda: partition.log.log_end_offset == MANY)
    turns.defer = lambda resume, lane="": deferred.append(resume)  # type: ignore[method-assign]
    await until(lambda: deferred)
    cluster.controller.elect(1, isr=[1])
    await until(lambda: partition.high_watermark == MANY)
    while deferred:
        deferred.pop()()
    codes = [code for _, code, _ in await results(client)]
    assert sorted(set(codes)) == [0, ErrorCode.REQUEST_TIMED_OUT]
    assert not len(cluster.brokers[1].data.wakeups.deadlines)
    assert (await client.produce(BATCH)).error_code == 0


async def test_refused_request_of_very_many_partitions_appends_nothing(cluster: DataCluster) -> None:
    client = await cluster.client(1)
    send(client, *[("t", BATCH)] * MANY, ("missing", BATCH), acks=2)
    assert {code for _, code, _ in await results(client)} == {ErrorCode.INVALID_REQUIRED_ACKS}
    send(client, *[("missing", BATCH)] * MANY, acks=0)
    assert await asyncio.wait_for(client.reader.read(), 10) == b""
    other = await cluster.client(1)
    send(other, *[("t", BATCH)] * MANY, acks=0)
    other._asked.pop()
    assert (await other.produce(BATCH, acks=1)).base_offset == MANY


async def test_damage_behind_the_first_slice_closes_the_connection(cluster: DataCluster) -> None:
    client = await cluster.client(1)
    data = [record_messages.TopicProduceData(name="t", partition_data=[])] * MANY
    request = record_messages.ProduceRequest(acks=1, topic_data=data).encode(9)
    frame = b"\0\0\0\x09\0\0\0\x01\xff\xff\0" + request[:-1]
    client.writer.write(len(frame).to_bytes(4, "big") + frame)
    assert await asyncio.wait_for(client.reader.read(), 10) == b""
    assert (await (await cluster.client(1)).produce(BATCH)).base_offset == 0


async def test_very_many_partitions_wait_for_the_log_of_one_that_is_about_to_be_led(
    cluster: DataCluster,
) -> None:
    broker = cluster.brokers[1]
    slow = SlowLogs(broker)
    name_leader(cluster, "late", 1)
    client = await cluster.client(1)
    send(client, *[("t", BATCH)] * MANY, ("late", BATCH))
    client.send_produce(BATCH, acks=1)
    await held(broker, 1, until)
    assert cluster.partition(1).log.log_end_offset == 0
    slow.let()
    assert (await results(client))[-1] == ("late", 0, 0)
    assert await results(client) == [("t", 0, MANY)]


@twenty_topics
async def test_transaction_of_very_many_partitions_is_looked_at_in_slices(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when its coordinator is asked again."""
    coordinator = use(cluster, Coordinator())
    counted: list[int] = []
    for sequence in range(2):
        turns, client = count_slices(cluster), await cluster.client(1)
        coordinator.errors = [ErrorCode.CONCURRENT_TRANSACTIONS]
        batches = [(topic, in_transaction(0, epoch=sequence)) for topic in NAMES]
        send(client, *batches, transactional_id="tx", version=12)
        assert {code for _, code, _ in await results(client)} == {0}
        counted.append(turns.slices)
        monkeypatch.setattr(produce_transactions, "_LOOKED_AT_ONCE", 2)
    assert len(coordinator.asked) >= 3 and len(coordinator.asked[0][3]) == len(NAMES)
    assert counted[1] - counted[0] >= 15


@twenty_topics
async def test_coordinator_is_asked_by_parts_about_very_many_partitions(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of one part is that of its partitions; after a passing one all are asked about again."""
    monkeypatch.setattr(produce_transactions, "_ASKED_AT_ONCE", 8)
    coordinator, client = use(cluster, Coordinator()), await cluster.client(1)
    parts = [[(topic, 0) for topic in NAMES[start : start + 8]] for start in (0, 8, 16)]
    for epoch, error in enumerate((ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE)):
        is_early = error is ErrorCode.CONCURRENT_TRANSACTIONS
        coordinator.errors, coordinator.asked = [error], []
        batches = [(topic, in_transaction(0, producer=epoch)) for topic in NAMES]
        send(client, *batches, transactional_id="tx", version=12)
        codes = [code for _, code, _ in await results(client)]
        assert codes == [ErrorCode.NONE if is_early else error] * 8 + [ErrorCode.NONE] * 12
        assert [list(asked[3]) for asked in coordinator.asked] == parts * (2 if is_early else 1)


@twenty_topics
@interpreted_only
async def test_transaction_of_a_fenced_broker_is_refused_whole_though_it_is_unfenced_meanwhile(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its coordinator was not asked. INVALID_TXN_STATE would end the producer."""
    coordinator, lease = use(cluster, Coordinator()), cluster.brokers[1].lease
    begin = produce_api.Production.begin_transaction

    def begin_and_unfence(production: produce_api.Production) -> Generator[None, None, bool]:
        has_begun = yield from begin(production)
        lease.is_fenced = False
        return has_begun

    monkeypatch.setattr(produce_api.Production, "begin_transaction", begin_and_unfence)
    client = await cluster.client(1)
    batches = [(topic, in_transaction(0)) for topic in NAMES]
    for is_fenced, code in ((True, ErrorCode.NOT_LEADER_OR_FOLLOWER), (False, ErrorCode.NONE)):
        lease.is_fenced = is_fenced
        send(client, *batches, transactional_id="tx", version=12)
        assert {found for _, found, _ in await results(client)} == {code}
        assert bool(coordinator.asked) is not is_fenced


@twenty_topics
async def test_transactions_that_wait_for_their_coordinator_hold_up_no_other_client(
    cluster: DataCluster,
) -> None:
    coordinator = use(cluster, Coordinator())
    coordinator.gate.clear()
    waiting = [await cluster.client(1) for _ in range(MOST_LARGE)]
    for producer, client in enumerate(waiting):
        batches = [(topic, in_transaction(0, producer=producer)) for topic in NAMES]
        send(client, *batches, transactional_id=f"tx-{producer}", version=12)
    await until(lambda: len(coordinator.asked) == MOST_LARGE)
    other = await cluster.client(1)
    send(other, *[(topic, BATCH) for topic in NAMES])
    assert await asyncio.wait_for(results(other), 10) == [(topic, 0, 0) for topic in NAMES]
    coordinator.gate.set()
    for producer, client in enumerate(waiting, 1):
        assert {(code, offset) for _, code, offset in await results(client)} == {(0, producer)}


@pytest.mark.world(brokers=(1, 2), topics="t")
async def test_client_that_disconnects_leaves_nothing_that_waits(cluster: DataCluster) -> None:
    await cluster.brokers[2].data.fetchers.stop()
    client = await cluster.client(1)
    send(client, *[("t", BATCH)] * MANY, acks=-1, timeout_ms=2**31 - 1)
    broker = cluster.brokers[1]
    await until(lambda: len(broker.data.wakeups.deadlines))
    client.close()
    await until(lambda: not broker.listener.connection_count)
    assert not len(broker.data.wakeups.deadlines)
    assert as_type(broker._hot[0], ProduceHandler)._large.few._value > 1


@pytest.mark.world(topics="t", configs={"cleanup.policy": "compact"})
async def test_answer_lists_a_bounded_number_of_refused_records(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many partitions have some: what is listed takes more memory than the records."""
    monkeypatch.setattr(produce_fast, "SLICE_BYTES", 1 << 20)
    monkeypatch.setattr(produce_api, "MAX_REJECTED_RECORDS", 5)
    client = await cluster.client(1)
    send(client, *[("t", make_batch(b"a", b"b"))] * 4)
    response: Any = await client.receive()
    found = [topic.partition_responses[0] for topic in response.responses]
    assert [one.error_code for one in found] == [ErrorCode.INVALID_RECORD] * 4
    assert [len(one.record_errors) for one in found] == [2, 2, 1, 0]
