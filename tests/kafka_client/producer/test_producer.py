"""The producer: what is written, in which order, how often, and which outcome the sender gets.

It is long because every test plays one way to fail against the same model of partition leaders.
"""

import asyncio
import random
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypedDict, TypeVar, Unpack

import pytest

from pykraft.broker.logs.producers.state import ProducerState
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import MaybeWrittenError, NotWrittenError
from pykraft.kafka_client.network import Future
from pykraft.kafka_client.producer.batch import RecordMetadata
from pykraft.kafka_client.producer.partition_queue import NOT_WRITTEN
from pykraft.kafka_client.producer.producer import Producer, ProducerConfig
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.records import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from pykraft.kafka_protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from pykraft.kafka_protocol.record_codec import (
    EncodedRecords,
    Record,
    RecordInput,
    decode_batch,
    encode_records,
)
from pykraft.kafka_protocol.records import BatchHeader, assign_offset, read_header
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.asynchronous import in_loop
from tests.kafka_client.scripted import HOST, Answer, ClientSettings, ScriptedCluster
from tests.kafka_client.virtual_cluster import NO_ANSWER, SILENCE, network_of, nothing_unseen
from tests.narrowing import present

T = TypeVar("T")

APPENDED = "appended"
"""Precedes an answer in a plan: the records are appended first."""
Fault = ErrorCode | Exception | None
Planned = Fault | tuple[str, Fault]


class Leaders:
    """The partitions of topic ``t``: appends as the product's leaders check, unless a plan says otherwise.

    ``plan`` holds the outcomes of the next requests, one entry each. None: no fault. An error code: the
    answer for every partition. An exception or SILENCE: that happens, and nothing is appended. A pair of
    APPENDED and one of these: the records are appended first.
    """

    def __init__(self, scripted: ScriptedCluster) -> None:
        self.scripted = scripted
        self.plan: deque[Planned] = deque()
        self.logs: defaultdict[int, list[Record]] = defaultdict(list)
        self.producers: defaultdict[int, ProducerState] = defaultdict(ProducerState)
        self.headers: list[tuple[int, BatchHeader]] = []
        self.producer_ids = 0
        self.log_append_time_ms = -1
        self.hints = False
        self.in_flight: list[int] = []
        scripted.script(ApiKey.PRODUCE, self.produce)
        scripted.script(ApiKey.INIT_PRODUCER_ID, self.init_producer_id)

    def init_producer_id(self, broker_id: int, request: InitProducerIdRequest, version: int) -> Answer:
        assert request.transactional_id is None
        self.producer_ids += 1
        return InitProducerIdResponse(producer_id=1000 + self.producer_ids, producer_epoch=0)

    def produce(self, broker_id: int, request: ProduceRequest, version: int) -> Answer:
        planned = self.plan.popleft() if self.plan else None
        appends = planned is None
        if isinstance(planned, tuple):
            appends, planned = True, planned[1]
        results = self.results(broker_id, request) if appends else []
        if isinstance(planned, ErrorCode):
            results = [
                [PartitionProduceResponse(index=p.index, error_code=planned) for p in topic.partition_data]
                for topic in request.topic_data
            ]
        elif planned is not None:
            return planned
        if request.acks == 0:
            return NO_ANSWER
        nodes = [NodeEndpoint(node_id=b, host=HOST, port=b) for b in self.scripted.brokers]
        return ProduceResponse(
            responses=[
                TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
                for topic, results in zip(request.topic_data, results, strict=True)
            ],
            node_endpoints=nodes if self.hints else [],
        )

    def results(self, broker_id: int, request: ProduceRequest) -> list[list[PartitionProduceResponse]]:
        return [
            [self.append(broker_id, p.index, bytearray(present(p.records))) for p in topic.partition_data]
            for topic in request.topic_data
        ]

    def append(self, broker_id: int, index: int, data: bytearray) -> PartitionProduceResponse:
        leader, epoch = self.scripted.leaders["t"][index]
        header = read_header(data)
        self.headers.append((index, header))
        if leader != broker_id:
            hint = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            return PartitionProduceResponse(
                index=index,
                error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                current_leader=hint if self.hints else LeaderIdAndEpoch(),
            )
        log, state = self.logs[index], self.producers[index]
        if header.producer_id >= 0:
            try:
                duplicate = state.check(header)
            except KafkaError as error:
                return PartitionProduceResponse(index=index, error_code=error.code)
            if duplicate is not None:
                return PartitionProduceResponse(index=index, base_offset=duplicate.base_offset)
        base_offset = len(log)
        assign_offset(data, 0, base_offset, epoch)
        state.replay(read_header(data))
        log += decode_batch(data)
        return PartitionProduceResponse(
            index=index, base_offset=base_offset, log_append_time_ms=self.log_append_time_ms
        )

    def values(self, index: int = 0) -> list[str]:
        return [present(record.value).decode() for record in self.logs[index]]


@pytest.fixture
def leaders(scripted: ScriptedCluster) -> Leaders:
    scripted.add_topic("t", {0: (1, 0), 1: (2, 0), 2: (1, 0)})
    return Leaders(scripted)


class ProducerSettings(TypedDict, total=False):
    """What tests set of :class:`ProducerConfig`."""

    acks: int
    enable_idempotence: bool
    max_in_flight_requests_per_connection: int
    linger_ms: int
    batch_size_bytes: int
    buffer_memory_bytes: int
    max_request_size_bytes: int
    delivery_timeout_ms: int
    max_block_ms: int


class OneABatch(TypedDict):
    linger_ms: int


@asynccontextmanager
async def running_producer(
    scripted: ScriptedCluster, *, client: ClientSettings | None = None, **config: Unpack[ProducerSettings]
) -> AsyncIterator[Producer]:
    settings: ClientSettings = {"request_timeout_ms": 1_000}
    settings |= client or {}
    addresses = tuple(broker.address for broker in scripted.brokers.values())
    async with nothing_unseen():
        producer = Producer(
            network_of(scripted),
            ClientConfig(addresses, **settings),
            ProducerConfig(**config),
        )
        try:
            yield producer
        finally:
            await producer.close()


producer = in_loop(running_producer, VirtualLoop)


def append(producer: Producer, values: Sequence[str], partition: int = 0) -> list[Future[RecordMetadata]]:
    return [producer.append("t", partition, None, value.encode()) for value in values]


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{n}" for n in range(count)]


async def outcomes(futures: Sequence[Future[RecordMetadata]]) -> list[Any]:
    """The outcome of each record: its offset, or the error."""
    results = await asyncio.gather(*futures, return_exceptions=True)
    return [one if isinstance(one, BaseException) else one.offset for one in results]


async def one_a_batch(
    producer: Producer, values: Sequence[str], partition: int = 0
) -> list[Future[RecordMetadata]]:
    """Send records, in order, that each become a batch and a request of their own."""
    futures: list[Future[RecordMetadata]] = []
    for value in values:
        futures += append(producer, [value], partition)
        await producer.flush(0)  # closes the batch
    return futures


ONE_A_BATCH: OneABatch = {"linger_ms": 0}


async def test_the_sender_gets_the_offset_of_its_record(producer: Producer, leaders: Leaders) -> None:
    first = await producer.send("t", 0, b"k", b"v", [("h", b"x")], 77)
    second = await producer.send("t", 0, None, None, (), 78)
    first, second = first, second
    assert (first.topic, first.partition, first.offset, first.timestamp_ms) == ("t", 0, 0, 77)
    assert (second.offset, second.timestamp_ms) == (1, 78)
    assert leaders.logs[0][0][1:] == (77, b"k", b"v", (("h", b"x"),))
    assert leaders.logs[0][1][1:] == (78, None, None, ())


async def test_the_time_of_the_append_is_returned_if_the_topic_uses_it(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    leaders.log_append_time_ms = 5_000
    results = await producer.send("t", 0, None, b"v", (), 77)
    assert results.timestamp_ms == 5_000


@pytest.mark.world(linger_ms=5)
async def test_records_that_come_together_share_a_batch_and_a_request(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    assert await outcomes(append(producer, names("a", 5)) + append(producer, names("b", 5), 2)) == [
        *range(5),
        *range(5),
    ]
    assert [header.record_count for _, header in leaders.headers] == [5, 5]
    assert len(scripted.requests(ApiKey.PRODUCE)) == 1
    assert (leaders.values(0), leaders.values(2)) == (names("a", 5), names("b", 5))


@pytest.mark.world(linger_ms=1_000, batch_size_bytes=950)
async def test_a_full_batch_does_not_linger(producer: Producer, leaders: Leaders) -> None:
    futures = append(producer, ["a" * 600, "b" * 600, "c" * 900, "d"])
    await asyncio.sleep(0.5)
    done, results = [future.done() for future in futures], await outcomes(futures)
    assert done == [True, True, True, False]
    assert results == [0, 1, 2, 3]


@pytest.mark.world(linger_ms=60_000)
async def test_flush_does_not_linger_and_waits_for_everything(producer: Producer, leaders: Leaders) -> None:
    futures = append(producer, names("a", 3)) + append(producer, names("b", 3), 1)
    assert await producer.flush(500)
    assert [future.done() for future in futures] == [True] * 6


async def test_flush_returns_false_if_something_is_not_answered_in_time(
    producer: Producer, leaders: Leaders
) -> None:
    leaders.plan += [SILENCE]
    (future,) = append(producer, ["a"])
    flushed, done = await producer.flush(500), future.done()
    await future
    assert (flushed, done) == (False, False)


@pytest.mark.world(**ONE_A_BATCH)
async def test_five_requests_are_in_flight_and_no_more(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    leaders.plan += [SILENCE]
    futures = await one_a_batch(producer, names("a", 8))
    await asyncio.sleep(0.5)
    assert (len(scripted.requests(ApiKey.PRODUCE)), await outcomes(futures)) == (5, list(range(8)))


@pytest.mark.world(**ONE_A_BATCH)
async def test_lost_answers_do_not_write_twice_nor_out_of_order(producer: Producer, leaders: Leaders) -> None:
    leaders.plan += [(APPENDED, None), (APPENDED, SILENCE), (APPENDED, SILENCE), SILENCE]
    assert await outcomes(await one_a_batch(producer, names("a", 8))) == list(range(8))
    assert leaders.values() == names("a", 8)


def encoded(*values: str) -> EncodedRecords:
    return encode_records([RecordInput(None, value.encode(), (), 77) for value in values])


async def test_encoded_records_are_batches_of_their_own_and_keep_the_order(
    producer: Producer, leaders: Leaders
) -> None:
    leaders.plan += [(APPENDED, SILENCE), (APPENDED, None), SILENCE]
    await producer.partitions_for("t")
    futures = append(producer, ["a"])
    futures.append(producer.append_encoded("t", 0, encoded("b", "c")))
    futures += append(producer, ["d"])
    futures.append(producer.append_encoded("t", 0, encoded("e")))
    results = [await future for future in futures]
    assert [one.offset for one in results] == [0, 1, 3, 4]
    assert results[1].timestamp_ms == 77
    assert leaders.values() == ["a", "b", "c", "d", "e"]


@pytest.mark.world(buffer_memory_bytes=2 * len(encoded("a" * 500).body))
async def test_encoded_records_take_the_room_of_their_bytes(producer: Producer, leaders: Leaders) -> None:
    """As much as those count that wait for room before they append."""
    content = encoded("a" * 500)
    futures = [producer.append_encoded("t", 0, content) for _ in range(2)]
    with pytest.raises(NotWrittenError, match=r"buffer\.memory"):
        producer.append_encoded("t", 0, content)
    assert [(await future).offset for future in futures] == [0, 1]


@pytest.mark.world(max_request_size_bytes=900)
async def test_encoded_records_that_are_too_large_are_refused_at_once(
    producer: Producer, leaders: Leaders
) -> None:
    with pytest.raises(NotWrittenError, match=r"above max\.request\.size"):
        producer.append_encoded("t", 0, encoded("a" * 1_000))
    assert not leaders.values()


@pytest.mark.world(**ONE_A_BATCH)
async def test_a_broken_connection_does_not_write_twice_nor_out_of_order(
    producer: Producer, leaders: Leaders
) -> None:
    leaders.plan += [None, (APPENDED, ConnectionResetError("gone"))]
    assert await outcomes(await one_a_batch(producer, names("a", 8))) == list(range(8))
    assert leaders.values() == names("a", 8)


@pytest.mark.world(**ONE_A_BATCH)
async def test_batches_after_a_refused_one_keep_their_order(producer: Producer, leaders: Leaders) -> None:
    leaders.plan += [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert await outcomes(await one_a_batch(producer, names("a", 8))) == list(range(8))
    assert leaders.values() == names("a", 8)


@pytest.mark.parametrize("hints", [False, True])
@pytest.mark.world(**ONE_A_BATCH)
async def test_a_moved_leader_is_followed_in_order(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders, hints: bool
) -> None:
    leaders.hints = hints
    first = await outcomes(append(producer, ["a"]))
    scripted.leaders["t"][0] = (3, 1)
    assert first + await outcomes(await one_a_batch(producer, names("b", 7))) == list(range(8))
    assert leaders.values() == ["a", *names("b", 7)]
    # The hint makes a Metadata request unnecessary (KIP-951).
    assert len(scripted.requests(ApiKey.METADATA)) == (1 if hints else 2)


@pytest.mark.world(**ONE_A_BATCH)
async def test_nothing_is_sent_to_a_new_leader_while_the_old_one_has_not_answered(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    """The new leader may not know the producer, and would then accept any sequence."""
    leaders.producers[0] = ProducerState(complete=False)
    leaders.plan += [SILENCE]
    first = append(producer, ["a"])
    await asyncio.sleep(0.1)
    scripted.leaders["t"] |= {0: (3, 1), 1: (3, 1)}
    assert await outcomes(append(producer, ["x"], 1)) == [0]  # so that the new leaders are known
    assert await outcomes(first + append(producer, ["b"])) == [0, 1]
    assert leaders.values() == ["a", "b"]


async def test_a_duplicate_that_the_broker_no_longer_remembers_counts_as_written(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    leaders.plan += [(APPENDED, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)]
    results = await producer.send("t", 0, None, b"v")
    assert results.offset is None
    assert leaders.values() == ["v"]


@pytest.mark.world(delivery_timeout_ms=3_000)
async def test_without_response_until_the_delivery_timeout_the_outcome_is_unknown(
    producer: Producer, leaders: Leaders
) -> None:
    leaders.plan += [(APPENDED, SILENCE)] + [SILENCE] * 10
    with pytest.raises(MaybeWrittenError, match=r"t-0: not acknowledged within 3000 ms"):
        await producer.send("t", 0, None, b"v")
    assert asyncio.get_running_loop().time() == pytest.approx(3.0, abs=0.1)


@pytest.mark.world(delivery_timeout_ms=3_000)
async def test_a_record_without_a_leader_is_certainly_not_written(
    producer: Producer, leaders: Leaders
) -> None:
    with pytest.raises(NotWrittenError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await producer.send("t", 7, None, b"v")
    with pytest.raises(NotWrittenError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await producer.send("other", 0, None, b"v")


@pytest.mark.world(delivery_timeout_ms=3_000)
async def test_a_broker_that_cannot_be_reached_has_written_nothing(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    await producer.send("t", 0, None, b"a")
    scripted.brokers[2].up = False
    with pytest.raises(NotWrittenError, match=r"cannot connect|no leader"):
        await producer.send("t", 1, None, b"b")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, NotWrittenError),
        (ErrorCode.INVALID_RECORD, NotWrittenError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, NotWrittenError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, MaybeWrittenError),
    ],
)
async def test_a_refusal_is_final_and_reports_whether_the_record_may_be_written(
    producer: Producer, leaders: Leaders, code: ErrorCode, error: type[MaybeWrittenError | NotWrittenError]
) -> None:
    leaders.plan += [code]
    with pytest.raises(error) as caught:
        await producer.send("t", 0, None, b"v")
    results, at_s = caught.value.code, asyncio.get_running_loop().time()
    assert results is code
    assert at_s < 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ],
)
@pytest.mark.world(delivery_timeout_ms=2_000)
async def test_errors_that_also_answer_an_append_leave_it_open(
    producer: Producer, leaders: Leaders, code: ErrorCode
) -> None:
    leaders.plan += [(APPENDED, code)] + [code] * 30
    with pytest.raises(MaybeWrittenError):
        await producer.send("t", 0, None, b"v")
    assert leaders.values() == ["v"]


async def test_a_record_refused_after_a_lost_answer_may_be_written(
    producer: Producer, leaders: Leaders
) -> None:
    leaders.plan += [(APPENDED, SILENCE), ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(MaybeWrittenError) as caught:
        await producer.send("t", 0, None, b"v")
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.world(**ONE_A_BATCH)
async def test_records_after_a_refused_one_are_written_in_a_new_epoch(
    producer: Producer, leaders: Leaders
) -> None:
    leaders.plan += [None, ErrorCode.MESSAGE_TOO_LARGE]
    results = await outcomes(await one_a_batch(producer, names("a", 8)))
    assert isinstance(results.pop(1), NotWrittenError)
    assert results == list(range(7))
    assert leaders.values() == [name for name in names("a", 8) if name != "a1"]
    assert {header.producer_epoch for _, header in leaders.headers} == {0, 1}
    assert leaders.producer_ids == 1


@pytest.mark.world(delivery_timeout_ms=2_500, **ONE_A_BATCH)
async def test_a_batch_that_was_given_up_does_not_stop_the_partition(
    producer: Producer, leaders: Leaders
) -> None:
    leaders.plan += [None] + [SILENCE] * 3
    first = await outcomes(append(producer, ["a"]))
    second = await outcomes(append(producer, ["b"]))
    third = await outcomes(append(producer, ["c"]))
    first, second, third = first + second + third
    assert (first, third) == (0, 1)
    assert isinstance(second, MaybeWrittenError)
    assert leaders.values() == ["a", "c"]
    assert leaders.headers[-1][1].producer_epoch == 1
    assert leaders.headers[-1][1].base_sequence == 0


@pytest.mark.world(**ONE_A_BATCH)
async def test_other_partitions_keep_their_epoch_when_one_starts_again(
    producer: Producer, leaders: Leaders
) -> None:
    assert await outcomes([*append(producer, ["a"]), *append(producer, ["b"], 2)]) == [0, 0]
    leaders.plan += [ErrorCode.INVALID_RECORD]
    await outcomes(append(producer, ["c"]))
    assert await outcomes([*append(producer, ["d"]), *append(producer, ["e"], 2)]) == [1, 1]
    last = dict(leaders.headers)
    assert (last[0].producer_epoch, last[0].base_sequence) == (1, 0)
    assert (last[2].producer_epoch, last[2].base_sequence) == (0, 1)


@pytest.mark.world(delivery_timeout_ms=2_500, **ONE_A_BATCH)
async def test_an_unknown_outcome_is_not_written_again_under_another_sequence(
    producer: Producer, leaders: Leaders
) -> None:
    """The first batch is given up, and it is unknown whether the second is in the log."""
    leaders.plan += [None, SILENCE, (APPENDED, SILENCE)] + [SILENCE] * 2
    assert await outcomes(append(producer, ["a"])) == [0]
    futures = await one_a_batch(producer, ["b", "c"])
    results = await outcomes(futures)
    results = results + await outcomes(append(producer, ["d"]))
    assert [type(one) for one in results] == [MaybeWrittenError, MaybeWrittenError, int]
    assert leaders.values() == ["a", "d"]


@pytest.mark.world(**ONE_A_BATCH)
async def test_a_broker_that_forgot_the_producer_is_written_to_in_a_new_epoch(
    producer: Producer, leaders: Leaders
) -> None:
    leaders.plan += [None, ErrorCode.UNKNOWN_PRODUCER_ID]
    assert await outcomes(await one_a_batch(producer, names("a", 6))) == list(range(6))
    assert leaders.values() == names("a", 6)


@pytest.mark.world(**ONE_A_BATCH)
async def test_a_fenced_epoch_is_replaced_by_a_new_producer_id(producer: Producer, leaders: Leaders) -> None:
    leaders.plan += [None, ErrorCode.INVALID_PRODUCER_EPOCH]
    assert await outcomes(await one_a_batch(producer, names("a", 6))) == list(range(6))
    assert leaders.values() == names("a", 6)
    assert leaders.producer_ids == 2


@pytest.mark.world(**ONE_A_BATCH)
async def test_a_sequence_the_broker_refuses_though_all_before_it_was_acknowledged_is_reported(
    producer: Producer, leaders: Leaders
) -> None:
    """Acknowledged records are lost: the sender gets an error; the following records are written again."""
    assert await outcomes(append(producer, ["a"])) == [0]
    leaders.producers[0] = ProducerState()
    leaders.logs[0].clear()
    error, offset = await outcomes(append(producer, ["b"])) + await outcomes(append(producer, ["c"]))
    assert isinstance(error, NotWrittenError)
    assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert offset == 0
    assert leaders.values() == ["c"]


@pytest.mark.world(acks=1, enable_idempotence=False, **ONE_A_BATCH)
async def test_without_idempotence_one_batch_of_a_partition_is_in_flight(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    leaders.plan += [SILENCE]
    futures = await one_a_batch(producer, names("a", 4))
    await asyncio.sleep(0.5)
    sent = len(scripted.requests(ApiKey.PRODUCE))
    sent, results = sent, await outcomes(futures)
    assert sent == 1
    assert results == [0, 1, 2, 3]
    assert leaders.producer_ids == 0
    assert {header.producer_id for _, header in leaders.headers} == {-1}


@pytest.mark.world(acks=0, enable_idempotence=False, **ONE_A_BATCH)
async def test_acks_0_waits_for_no_answer(producer: Producer, leaders: Leaders) -> None:
    results = await outcomes(await one_a_batch(producer, names("a", 8)))
    await asyncio.sleep(0.1)
    assert results == [None] * 8
    assert leaders.values() == names("a", 8)


async def test_a_producer_id_is_requested_until_there_is_one(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    answers = deque([InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 3)
    inner = leaders.init_producer_id
    scripted.script(ApiKey.INIT_PRODUCER_ID, lambda *call: answers.popleft() if answers else inner(*call))
    assert (await producer.send("t", 0, None, b"v")).offset == 0


@pytest.mark.world(max_block_ms=3_000)
async def test_a_topic_that_does_not_exist_is_asked_for_after_pauses_though_another_is_there(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    waiting = asyncio.ensure_future(producer.partitions_for("missing"))
    await asyncio.sleep(0)
    assert await producer.partitions_for("t") == len(scripted.leaders["t"])
    with pytest.raises(NotWrittenError):
        await waiting
    assert len(scripted.requests(ApiKey.METADATA)) < 12


async def test_a_producer_id_that_is_refused_fails_the_records_at_once(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    scripted.script(
        ApiKey.INIT_PRODUCER_ID,
        lambda *_: InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    )
    with pytest.raises(NotWrittenError) as caught:
        await producer.send("t", 0, None, b"v")
    code, at_s = caught.value.code, asyncio.get_running_loop().time()
    assert code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert at_s < 1


@pytest.mark.world(buffer_memory_bytes=1_000)
async def test_a_full_buffer_refuses_and_has_room_again_later(producer: Producer, leaders: Leaders) -> None:
    futures = [producer.append("t", 0, None, b"x" * 400), producer.append("t", 0, None, b"y" * 400)]
    assert producer.is_full(400)
    with pytest.raises(NotWrittenError) as caught:
        producer.append("t", 0, None, b"z" * 400)
    await asyncio.gather(*futures)
    await producer.send("t", 0, None, b"z" * 400)
    assert caught.value.code.retriable


@pytest.mark.world(max_request_size_bytes=2_000)
async def test_a_record_too_large_for_a_request_is_refused_at_once(
    producer: Producer, leaders: Leaders
) -> None:
    with pytest.raises(NotWrittenError) as caught:
        producer.append("t", 0, None, b"x" * 2_000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.world(max_request_size_bytes=1_500, batch_size_bytes=100)
async def test_requests_stay_below_their_greatest_size(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    assert await outcomes([producer.append("t", p, None, b"x" * 900) for p in (0, 2, 0, 2)]) == [0, 0, 1, 1]
    sizes = [
        sum(len(p.records) for topic in request.topic_data for p in topic.partition_data)
        for _, _, request in scripted.requests(ApiKey.PRODUCE)
    ]
    assert max(sizes) < 1_500


@pytest.mark.world(linger_ms=50)
async def test_close_fails_open_records_and_reports_which_may_be_written(
    producer: Producer, leaders: Leaders
) -> None:
    leaders.plan += [SILENCE]
    sent = append(producer, ["a"])
    await asyncio.sleep(0.1)
    waiting = append(producer, ["b"], 1)
    await producer.close()
    with pytest.raises(NotWrittenError, match="closed"):
        producer.append("t", 0, None, b"c")
    results = await outcomes(sent + waiting)
    assert [type(one) for one in results] == [MaybeWrittenError, NotWrittenError]


@pytest.mark.world(linger_ms=60_000)
async def test_close_with_a_timeout_writes_open_records(producer: Producer, leaders: Leaders) -> None:
    futures = append(producer, ["a"])
    await producer.close(1_000)
    assert await outcomes(futures) == [0]


@pytest.mark.world(linger_ms=50)
async def test_a_sender_that_is_cancelled_does_not_harm_its_batch(
    producer: Producer, leaders: Leaders
) -> None:
    lost = asyncio.ensure_future(producer.send("t", 0, None, b"a"))
    kept = asyncio.ensure_future(producer.send("t", 0, None, b"b"))
    await asyncio.sleep(0.001)
    lost.cancel()
    assert (await kept).offset == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": 2},
        {"acks": 1},
        {"max_in_flight_requests_per_connection": 6},
        {"max_in_flight_requests_per_connection": 0},
    ],
)
def test_contradicting_settings_are_refused(settings: ProducerSettings) -> None:
    with pytest.raises(ValueError, match=r"acks|idempotence|flight"):
        ProducerConfig(**settings)


async def test_a_partition_is_found_by_name_where_topics_have_no_id(
    producer: Producer, scripted: ScriptedCluster, leaders: Leaders
) -> None:
    scripted.topic_ids["t"] = ZERO_UUID
    assert (await producer.send("t", 0, None, b"v")).offset == 0
    assert [version for _, version, _ in scripted.requests(ApiKey.PRODUCE)] == [12]


def fault(rng: random.Random) -> Planned:
    """The outcome of one request."""
    answers: list[Fault] = [
        None,
        SILENCE,
        ConnectionResetError("gone"),
        *(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE),
        *(ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.REQUEST_TIMED_OUT),
        *(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_SERVER_ERROR),
    ]
    answer = answers[rng.randrange(len(answers))]
    carried_out = (isinstance(answer, ErrorCode) and answer not in NOT_WRITTEN) or answer is SILENCE
    return (APPENDED, answer) if carried_out and rng.random() < 0.5 else answer


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.loop(new=VirtualLoop)
async def test_under_faults_records_are_in_order_at_most_once_and_at_their_acknowledged_offsets(
    scripted: ScriptedCluster, leaders: Leaders, seed: int
) -> None:
    rng = random.Random(seed)
    leaders.plan += [fault(rng) if rng.random() < 0.4 else None for _ in range(150)]
    leaders.hints = rng.random() < 0.5
    async with running_producer(scripted, delivery_timeout_ms=4_000, linger_ms=rng.randrange(3)) as producer:
        sent = []
        for n in range(60):
            partition = rng.randrange(3)
            sent.append((f"{n:02}", partition, append(producer, [f"{n:02}"], partition)[0]))
            if rng.random() < 0.3:
                await producer.flush(rng.randrange(200))
            if rng.random() < 0.05:
                scripted.leaders["t"][partition] = (rng.randrange(1, 4), n + 1)
        await producer.flush()
        fates = await outcomes([future for *_, future in sent])
        results = [(*one[:2], fate) for one, fate in zip(sent, fates, strict=True)]
        for index in range(3):
            values = leaders.values(index)
            assert values == sorted(set(values)), "out of order or written twice"
        for value, partition, fate in results:
            log = leaders.values(partition)
            if isinstance(fate, NotWrittenError):
                assert value not in log
            elif not isinstance(fate, MaybeWrittenError):
                assert fate is not None and log[fate] == value
