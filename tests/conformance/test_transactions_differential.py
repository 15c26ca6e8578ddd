"""The comparison of transactions with Apache Kafka, without Apache Kafka: scripts, masks, settling."""

from typing import Any

from pykraft.jepsen_like.conformance import settling
from pykraft.jepsen_like.conformance.answer_pairs import places_of
from pykraft.jepsen_like.conformance.generate_transactions import generate_transactions
from pykraft.jepsen_like.conformance.known.producers import (
    beside_the_records,
    later_sequence,
    named_twice,
)
from pykraft.jepsen_like.conformance.learning import learn
from pykraft.jepsen_like.conformance.masks import Masks
from pykraft.jepsen_like.conformance.producer_blanks import (
    FIRST_TIME_MS,
    STRANGER_ID,
    Batch,
    ProducerEpoch,
    ProducerId,
)
from pykraft.jepsen_like.conformance.script import Actor, Script, Step, blank
from pykraft.jepsen_like.conformance.told_batches import told
from pykraft.jepsen_like.conformance.transaction_draw import TRANSACTION_TOPICS
from pykraft.kafka_protocol.api_keys import ApiKey, request_class
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.markers import ABORT, Marker, build_marker
from pykraft.kafka_protocol.messages.records import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from pykraft.kafka_protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListedTransaction,
    ListTransactionsResponse,
)
from pykraft.kafka_protocol.records import read_header

OF_TRANSACTIONS = (
    *(ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.FIND_COORDINATOR, ApiKey.INIT_PRODUCER_ID),
    *(ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.WRITE_TXN_MARKERS),
    *(ApiKey.TXN_OFFSET_COMMIT, ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS),
    *(ApiKey.LIST_TRANSACTIONS, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_COMMIT, ApiKey.DELETE_RECORDS),
)
IN_EVERY_VERSION = (
    *(ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN),
    *(ApiKey.TXN_OFFSET_COMMIT, ApiKey.WRITE_TXN_MARKERS, ApiKey.LIST_TRANSACTIONS),
)
OF_GROUPS = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.CONSUMER_GROUP_HEARTBEAT)
VERSIONS = {
    int(key): (request_class(key).MIN_VERSION, request_class(key).MAX_VERSION)
    for key in (*OF_TRANSACTIONS, *OF_GROUPS)
}
NO_NAMES: dict[str, str] = {}
NO_TOPICS: dict[Uuid, str] = {}


class Facts:
    def __init__(self) -> None:
        self.actors = {number: Actor() for number in range(3)}

    def actor(self, number: int) -> Actor:
        return self.actors[number]

    def own_name(self, name: str) -> str:
        return f"run-{name}"

    def topic_name(self, name: str) -> str:
        return f"run-{name}"

    def topic_id(self, name: str) -> Uuid:
        return Uuid(bytes(16))


def masks(names: dict[str, str] | None = None) -> Masks:
    return Masks(frozenset(), names or {}, {})


def produced(code: ErrorCode = ErrorCode.NONE) -> ProduceResponse:
    partitions = [PartitionProduceResponse(index=0, error_code=code, error_message="why")]
    return ProduceResponse(responses=[TopicProduceResponse(name="run-t", partition_responses=partitions)])


def produce_step(batch: Batch) -> Step:
    data = [PartitionProduceData(index=batch.partition, records=blank(batch))]
    return Step(0, 11, ProduceRequest(topic_data=[TopicProduceData(name=batch.topic, partition_data=data)]))


def test_a_seed_is_one_script_and_every_api_of_transactions_is_drawn_in_every_version() -> None:
    scripts = [generate_transactions(seed, VERSIONS) for seed in range(150)]
    assert [str(one) for one in scripts] == [
        str(generate_transactions(seed, VERSIONS)) for seed in range(150)
    ]
    drawn = {(step.request.API_KEY, step.version) for script in scripts for step in script.steps}
    assert {key for key, _ in drawn} >= set(OF_TRANSACTIONS)
    for key in IN_EVERY_VERSION:
        lowest, highest = VERSIONS[key]
        assert {version for other, version in drawn if other == key} == set(range(lowest, highest + 1)), key
    assert {version for key, version in drawn if key == ApiKey.PRODUCE} >= set(range(9, 14))
    assert any(step.until_ended for script in scripts for step in script.steps)
    assert {script.fresh_topics for script in scripts} == {TRANSACTION_TOPICS}


def test_batches_have_the_id_the_epoch_and_the_next_sequence_of_their_producer() -> None:
    facts = Facts()
    actor = facts.actors[0]
    learn(actor, InitProducerIdResponse(producer_id=7, producer_epoch=2), NO_TOPICS, NO_NAMES)
    first, later = (
        Batch(0, "t", 0, number=0, count=3),
        Batch(0, "t", 0, number=3, gap=1, epoch_more=-1, producer=1),
    )
    header = read_header(memoryview(first.fill(facts)))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)
    assert (header.record_count, header.base_timestamp) == (3, FIRST_TIME_MS)
    learn(actor, produced(ErrorCode.NOT_ENOUGH_REPLICAS), NO_TOPICS, {"run-t": "t"})
    assert read_header(memoryview(first.fill(facts))).base_sequence == 0
    learn(actor, produced(), NO_TOPICS, {"run-t": "t"})
    header = read_header(memoryview(later.fill(facts)))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, 1, 4)


def test_a_new_epoch_begins_at_sequence_0_and_the_former_is_remembered() -> None:
    facts = Facts()
    actor = facts.actors[0]
    learn(actor, InitProducerIdResponse(producer_id=7, producer_epoch=2), NO_TOPICS, NO_NAMES)
    actor.producer.next_sequences["t", 0] = 5
    learn(actor, EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED), NO_TOPICS, NO_NAMES)
    assert actor.producer.next_sequences == {("t", 0): 5}
    learn(actor, EndTxnResponse(producer_id=7, producer_epoch=3), NO_TOPICS, NO_NAMES)
    assert not actor.producer.next_sequences
    assert [ProducerId(0).fill(facts), ProducerEpoch(0, 1).fill(facts)] == [7, 4]
    assert [ProducerId(0, older=True).fill(facts), ProducerEpoch(0, older=True).fill(facts)] == [7, 2]


def test_producer_ids_are_numbered_in_order_of_first_sight() -> None:
    def init(producer_id: int) -> InitProducerIdResponse:
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=4)

    one = masks()
    assert [one.plain(init(id))["producer_id"] for id in (4001, 12, 4001, -1, STRANGER_ID)] == [
        *("<producer 1>", "<producer 2>", "<producer 1>", -1, STRANGER_ID)
    ]
    assert one.plain(init(12))["producer_epoch"] == 4


def test_records_are_told_by_batch_and_transactions_of_other_runs_are_left_out() -> None:
    facts = Facts()
    facts.actors[0].producer.learn(4001, 0)
    batch = Batch(0, "t", 0, number=8).fill(facts)
    records = batch + build_marker(4001, 1, Marker(ABORT, 3), 99) + batch[:-1]
    content = [one["content"] for one in told(records)]
    assert content == ["0=b'8'", "abort by coordinator epoch 3"]
    data = PartitionData(
        records=records, aborted_transactions=[AbortedTransaction(producer_id=4001, first_offset=0)]
    )
    topics = [FetchableTopicResponse(topic="run-t", partitions=[data, PartitionData()]) for _ in range(2)]
    (topic,) = masks({"run-t": "t"}).plain(FetchResponse(responses=topics))["responses"]
    assert (topic["topic"], len(topic["partitions"])) == ("t", 4)
    full = max(topic["partitions"], key=lambda one: len(one["records"]))
    assert {one["producer_id"] for one in full["records"]} == {"<producer 1>"}
    assert full["aborted_transactions"] == [{"producer_id": "<producer 1>", "first_offset": 0}]
    assert sorted(str(one["timestamp"]) for one in full["records"]) == [
        str(FIRST_TIME_MS + 8000),
        "some time",
    ]
    listed = [ListedTransaction(transactional_id=name, producer_id=4) for name in ("other-t", "run-t")]
    plain = masks({"run-t": "t"}).plain(ListTransactionsResponse(transaction_states=listed))
    assert [one["transactional_id"] for one in plain["transaction_states"]] == ["t"]


def test_only_answers_that_stem_from_speed_are_early() -> None:
    def early(request: Any, answer: Any, *, until_ended: bool = False) -> bool:
        return settling.is_early(Step(0, 0, request, until_ended), answer)

    concurrent = EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
    assert early(EndTxnRequest(), concurrent)
    assert not early(EndTxnRequest(), EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED))
    assert early(ProduceRequest(), produced(ErrorCode.NOT_ENOUGH_REPLICAS))
    assert not early(ProduceRequest(), produced(ErrorCode.INVALID_TXN_STATE))
    assert not early(InitProducerIdRequest(), InitProducerIdResponse())

    def described(state: str, timeout_ms: int) -> DescribeTransactionsResponse:
        one = DescribedTransaction(transaction_state=state, transaction_timeout_ms=timeout_ms)
        return DescribeTransactionsResponse(transaction_states=[one])

    asked = DescribeTransactionsRequest()
    assert early(asked, described("Ongoing", 1000), until_ended=True)
    assert early(asked, described("PrepareAbort", 1000), until_ended=True)
    assert not early(asked, described("CompleteAbort", 1000), until_ended=True)
    assert not early(asked, described("Ongoing", 600_000), until_ended=True)
    assert not early(asked, described("Ongoing", 1000))


def test_the_places_that_differ_are_named() -> None:
    ours = {"a": [{"b": 1, "c": 2}], "d": []}
    assert places_of(ours, {"a": [{"b": 1, "c": 3}], "d": [4]}) == [("a[].c", 2, 3), ("d", [], [4])]
    assert places_of(ours, ours) == []


def test_known_differences_explain_nothing_else() -> None:
    def answer(code: int) -> dict[str, Any]:
        return masks({"run-t": "t"}).plain(produced(ErrorCode(code)))

    step = produce_step(Batch(0, "t", 0, number=1, gap=4))
    began = Step(0, 4, InitProducerIdRequest()), {"error_code": 0, "producer_id": "<producer 1>"}
    before = produce_step(Batch(0, "t", 0, number=0)), answer(0)
    assert later_sequence([began], step, answer(45), answer(0))
    assert not later_sequence([began, before], step, answer(45), answer(0))
    assert not later_sequence([began], step, answer(0), answer(45))
    asked = Step(0, 3, AddPartitionsToTxnRequest())
    assert named_twice([], asked, {"results": [1]}, {"results": [1, 1]})
    assert not named_twice([], asked, {"results": [1]}, {"results": [1, 2]})


def test_an_aborted_transaction_that_matters_to_the_reader_must_be_told() -> None:
    def answer(*first_offsets: int) -> dict[str, Any]:
        facts = Facts()
        facts.actors[0].producer.learn(4001, 0)
        records = Batch(0, "t", 0, number=0, count=3).fill(facts)
        aborted = [AbortedTransaction(producer_id=4001, first_offset=first) for first in first_offsets]
        data = PartitionData(records=records, aborted_transactions=aborted)
        return masks().plain(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])]))

    step = Step(0, 11, FetchRequest())
    assert beside_the_records([], step, answer(0), answer(0, 3))
    assert not beside_the_records([], step, answer(), answer(2))
    assert not beside_the_records([], step, answer(2), answer(3))


def test_the_last_steps_look_at_all_that_is_left() -> None:
    script: Script = generate_transactions(3, VERSIONS)
    last = [step.request.API_KEY for step in script.steps[-9:]]
    read = [ApiKey.FETCH, ApiKey.LIST_OFFSETS] * 2
    assert last == [
        *(*read, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_FETCH),
        *(ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS),
    ]
