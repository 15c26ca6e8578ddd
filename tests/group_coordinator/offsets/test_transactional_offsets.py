"""Offsets that a transaction commits: pending until its marker, then in force or gone (KIP-447).

It is long because each way to end a transaction is met by everything else that happens to the group.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pykraft.broker.replicas.leading.coordinator_topic import unfold_batches
from pykraft.coordinator.writer import PartitionWriter
from pykraft.group_coordinator.housekeeping import (
    Sweep,
    sweep_after_load,
    sweep_deleted_topics,
    sweep_expired_groups,
    sweep_expired_offsets,
)
from pykraft.group_coordinator.loading import SLICE_STEPS, Loader
from pykraft.group_coordinator.offsets import fetch as offset_fetch
from pykraft.group_coordinator.offsets import transactional as transactional_offsets
from pykraft.group_coordinator.offsets.delete_groups import handle_delete_groups
from pykraft.group_coordinator.offsets.large_fetches import LargeFetch
from pykraft.group_coordinator.offsets.transactional import TransactionalCommit, refuse_all
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicMember, ClassicState
from pykraft.group_coordinator.state.codec import encode_record
from pykraft.group_coordinator.state.commits import TopicCommit
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import ConsumerMember
from pykraft.group_coordinator.state.offset_table import rows_of
from pykraft.group_coordinator.state.pending_offsets import NOTHING_PENDING
from pykraft.group_coordinator.state.records import GroupRecord, OffsetCommitKey, OffsetCommitValue
from pykraft.group_coordinator.state.result import CoordinatorResult
from pykraft.group_coordinator.state.shard_state import Group
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.groups import DeleteGroupsResponse
from pykraft.kafka_protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
)
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import NO_SEQUENCE, TRANSACTIONAL_BIT
from pykraft.metadata_log.persistent import Map
from tests.asynchronous import in_loop
from tests.group_coordinator import tools
from tests.group_coordinator.coordinators import Coordinator, running
from tests.group_coordinator.transactional_log import (
    TransactionalLab,
    TransactionalLog,
    Verify,
    codes_of,
    commit_request,
    end_of,
    load_state,
    verified,
)
from tests.waits import settle

LONG_MS = 10**12


def commit_outside(
    lab: TransactionalLab, offset: int, partition: int = 0, topic: str = "t", group_id: str = "g"
) -> None:
    value = OffsetCommitValue(offset, -1, "", lab.clock.now_ms, None, tools.topic_id(topic))
    commit = TopicCommit(group_id, topic, rows_of(partition, value))
    lab.apply(lambda _: CoordinatorResult(None, (commit,)))


# -- what counts ---------------------------------------------------------------------------------------------


def test_offset_counts_when_its_transaction_is_committed() -> None:
    lab = TransactionalLab()
    assert lab.commit(commit_request({0: 5, 2: 6}, metadata="m")) == [0, 0]
    assert lab.offset(0) is None and lab.is_open(0) and lab.is_open(2)
    lab.end(1, commits=True)
    assert (lab.offset(0), lab.offset(2)) == (5, 6)
    value = lab.state.committed("g", "t", 0)
    assert value is not None and (value.metadata, value.topic_id) == ("m", tools.topic_id("t"))
    assert lab.state.pending == NOTHING_PENDING


def test_offset_of_an_aborted_transaction_is_dropped() -> None:
    lab = TransactionalLab()
    commit_outside(lab, 3)
    lab.commit(commit_request({0: 5}))
    assert lab.offset() == 3
    lab.end(1, commits=False)
    assert lab.offset() == 3 and lab.state.pending == NOTHING_PENDING


@pytest.mark.parametrize("fails_over", [False, True])
def test_later_record_wins_and_not_the_later_marker(fails_over: bool) -> None:
    lab = TransactionalLab()
    lab.commit(commit_request({0: 5, 1: 5}))
    commit_outside(lab, 6)
    assert lab.is_open(0)  # whoever wants stable offsets waits nevertheless
    lab.commit(commit_request({1: 7}, 2))
    lab.commit(commit_request({1: 8}, 3))
    if fails_over:
        lab.fail_over()
    lab.end(2, commits=True)
    assert lab.offset(1) == 7
    lab.end(1, commits=True)
    assert (lab.offset(0), lab.offset(1)) == (6, 7)
    lab.end(3, commits=True)
    assert lab.offset(1) == 8


def test_offset_committed_again_counts_although_it_was_crossed_out() -> None:
    lab = TransactionalLab()
    lab.commit(commit_request({0: 5}))
    commit_outside(lab, 6)
    lab.commit(commit_request({0: 7}))
    lab.end(1, commits=True)
    assert lab.offset() == 7


def test_aborted_transaction_crosses_nothing_out() -> None:
    lab = TransactionalLab()
    lab.commit(commit_request({0: 5}))
    lab.commit(commit_request({0: 6}, 2))
    lab.end(2, commits=False)
    lab.end(1, commits=True)
    assert lab.offset() == 5


# -- what is written -----------------------------------------------------------------------------------------


def test_batch_is_transactional_and_has_no_sequence() -> None:
    lab = TransactionalLab()
    lab.commit(commit_request({0: 5, 1: 6}, 9, epoch=3))
    ((header, _),) = lab.log.batches
    assert header.attributes == TRANSACTIONAL_BIT
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 3, NO_SEQUENCE)


def test_batch_holds_the_results_of_one_transaction_only() -> None:
    lab = TransactionalLab()

    def stage(request: TxnOffsetCommitRequest) -> bool:
        decide = TransactionalCommit(request, lab.call()).decide
        return lab.shard.stage(decide, wall_ms=1, now_ms=1) is not None

    assert stage(commit_request({0: 1})) and stage(commit_request({1: 1}))
    assert not stage(commit_request({0: 1}, 2)) and not stage(commit_request({0: 1}, epoch=1))
    plain = TopicCommit("g", "t", rows_of(0, OffsetCommitValue(1, -1, "", 1, None, ZERO_UUID)))
    outcome = lab.shard.stage(lambda _: CoordinatorResult(None, (plain,)), wall_ms=1, now_ms=1)
    assert outcome is None
    assert lab.shard.stage(lambda _: CoordinatorResult("seen"), wall_ms=1, now_ms=1) is not None
    lab.shard.flush()
    (batch,) = lab.log.batches
    assert batch.header.record_count == 2
    assert stage(commit_request({0: 1}, 2))


def test_batch_of_a_producer_that_was_fenced_changes_nothing() -> None:
    lab = TransactionalLab()
    lab.commit(commit_request({0: 5}, epoch=4))
    before = lab.state
    assert lab.commit(commit_request({0: 6}, epoch=3)) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    with pytest.raises(KafkaError) as refused:
        lab.end(1, commits=True, epoch=3)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert lab.state is before


# -- who may commit ------------------------------------------------------------------------------------------


def classic(state: ClassicState = ClassicState.STABLE) -> ClassicGroup:
    member = ClassicMember("m", "i", "cli", "/127.0.0.1", 60_000, 30_000, (("range", b""),))
    return ClassicGroup("g", state, 4, "consumer", "range", "m", Map({"m": member}))


def consumer() -> ConsumerGroup:
    member = ConsumerMember("m", epoch=4, topic_names=("t",))
    return ConsumerGroup("g", epoch=4, members=Map({"m": member}))


CLASSIC, CONSUMER = classic(), consumer()
EMPTY_CLASSIC, EMPTY_CONSUMER = ClassicGroup("g", generation=4), ConsumerGroup("g", epoch=4)
Named = tuple[int, str, str | None]
NOBODY: Named = (-1, "", None)


@pytest.mark.parametrize(
    ("group", "named", "expected"),
    [
        (None, NOBODY, ErrorCode.NONE),
        (None, (-1, "m", None), ErrorCode.NONE),
        (None, (0, "m", None), ErrorCode.ILLEGAL_GENERATION),
        (CLASSIC, NOBODY, ErrorCode.NONE),
        (CLASSIC, (-2, "", None), ErrorCode.NONE),
        (CLASSIC, (4, "m", None), ErrorCode.NONE),
        (classic(ClassicState.COMPLETING_REBALANCE), (4, "m", None), ErrorCode.NONE),
        (CLASSIC, (3, "m", None), ErrorCode.ILLEGAL_GENERATION),
        (CLASSIC, (-1, "m", None), ErrorCode.ILLEGAL_GENERATION),
        (CLASSIC, (4, "x", None), ErrorCode.UNKNOWN_MEMBER_ID),
        (CLASSIC, (-1, "x", None), ErrorCode.UNKNOWN_MEMBER_ID),
        (EMPTY_CLASSIC, (-1, "x", None), ErrorCode.NONE),
        (EMPTY_CLASSIC, (4, "x", None), ErrorCode.UNKNOWN_MEMBER_ID),
        (CONSUMER, NOBODY, ErrorCode.NONE),
        (CONSUMER, (-2, "", None), ErrorCode.UNKNOWN_MEMBER_ID),
        (CONSUMER, (4, "m", None), ErrorCode.NONE),
        (CONSUMER, (5, "m", None), ErrorCode.ILLEGAL_GENERATION),
        (CONSUMER, (3, "m", None), ErrorCode.ILLEGAL_GENERATION),
        (CONSUMER, (4, "x", None), ErrorCode.UNKNOWN_MEMBER_ID),
        (CONSUMER, (-1, "", "i"), ErrorCode.UNKNOWN_MEMBER_ID),
        (EMPTY_CONSUMER, (-1, "x", None), ErrorCode.NONE),
        (EMPTY_CONSUMER, (0, "x", None), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_member_is_asked_for_only_if_it_is_named(
    group: Group | None, named: Named, expected: ErrorCode
) -> None:
    lab = TransactionalLab()
    state = lab.state if group is None else lab.state.with_group(group)
    generation, member_id, instance_id = named
    request = commit_request({0: 5}, generation=generation, member_id=member_id, instance_id=instance_id)
    commit = TransactionalCommit(request, lab.call())
    try:
        result = commit.decide(state)
    except KafkaError as error:
        assert error.code is expected
        assert codes_of(at_once(commit.refuse(error.code))) == [expected]
    else:
        assert expected is ErrorCode.NONE
        assert result.records and result.producer == (1, 0) and not result.timers


def test_member_that_has_moved_on_commits_what_it_has_kept() -> None:
    lab = TransactionalLab()
    kept: Map[tuple[Uuid, int], int] = Map({(tools.topic_id("t"), 0): 2})
    member = ConsumerMember("m", epoch=4, topic_names=("t",), assignment_epochs=kept)
    state = lab.state.with_group(ConsumerGroup("g", epoch=4, members=Map({"m": member})))
    for partition, expected in ((0, True), (1, False)):
        request = commit_request({partition: 5}, generation=3, member_id="m")
        try:
            is_taken = bool(TransactionalCommit(request, lab.call()).decide(state).records)
        except KafkaError as error:
            assert error.code is ErrorCode.ILLEGAL_GENERATION
            is_taken = False
        assert is_taken is expected


def test_partitions_that_do_not_exist_and_long_metadata_have_errors_of_their_own() -> None:
    lab = TransactionalLab()
    long = "x" * (lab.config.offset_metadata_max_bytes + 1)
    request = commit_request({0: 5, 9: 5, -1: 5})
    request.topics += commit_request({1: 5}, topic="u", metadata=long).topics
    request.topics += commit_request({0: 5}, topic="none").topics
    answer = lab.answer(request)
    told = {
        (topic.name, one.partition_index): one.error_code
        for topic in answer.topics
        for one in topic.partitions
    }
    assert told == {
        ("t", 0): ErrorCode.NONE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 1): ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert [topic.name for topic in answer.topics] == ["t", "none", "u"]
    assert lab.is_open(0) and not lab.is_open(1, "u")
    refused = TransactionalCommit(request, lab.call()).refuse(ErrorCode.NOT_COORDINATOR)
    assert sorted(codes_of(at_once(refused))) == [3, 3, 3, 16, 16]


@pytest.mark.parametrize(("version", "expected"), [(1, 15), (2, 14)])
def test_old_producers_are_not_told_that_the_coordinator_loads(version: int, expected: int) -> None:
    commit = TransactionalCommit(commit_request({0: 5}), TransactionalLab().call(version))
    refused = at_once(commit.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert codes_of(refused) == [expected]


# -- readers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names_topics", [True, False])
@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_reader_of_stable_offsets_waits_for_open_transactions(version: int, names_topics: bool) -> None:
    lab = TransactionalLab()
    for partition in (0, 1):
        commit_outside(lab, 3, partition)
    lab.commit(commit_request({1: 5, 2: 5}))
    asked = OffsetFetchRequestTopics(name="t", topic_id=tools.topic_id("t"), partition_indexes=[0, 1, 2, 3])
    group = OffsetFetchRequestGroup(group_id="g", topics=[asked] if names_topics else None)

    def told(*, require_stable: bool) -> dict[int, tuple[int, int]]:
        found = offset_fetch.find_offsets(lab.state, group, require_stable=require_stable)
        answer = offset_fetch.build_group(group, found, lab.topics, version)
        large = LargeFetch([group], [found], lab.topics, version)
        for _ in large.build():
            pass
        assert large.body == offset_fetch.build_response([answer], version).encode(version)
        return {
            one.partition_index: (one.committed_offset, one.error_code)
            for topic in answer.topics
            for one in topic.partitions
        }

    named = {2: (-1, 0), 3: (-1, 0)} if names_topics else {}
    assert told(require_stable=False) == {0: (3, 0), 1: (3, 0), **named}
    if names_topics:
        named[2] = (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert told(require_stable=True) == {0: (3, 0), 1: (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), **named}
    lab.end(1, commits=True)
    named = {3: (-1, 0)} if names_topics else {}
    assert told(require_stable=True) == {0: (3, 0), 1: (5, 0), 2: (5, 0), **named}


# -- what is deleted -----------------------------------------------------------------------------------------


def sweep(lab: TransactionalLab, *sweeps: Sweep) -> None:
    for one in sweeps:
        while not one.is_finished:
            lab.apply(lambda state, one=one: one.build_slice(state, lab.call()))  # type: ignore[misc]
            one.slice_is_written()


def test_pending_offset_keeps_the_committed_one_from_expiry() -> None:
    lab = TransactionalLab()
    commit_outside(lab, 3, 0)
    commit_outside(lab, 3, 1)
    lab.commit(commit_request({0: 5}))
    lab.clock.now_ms += LONG_MS
    sweep(lab, sweep_expired_offsets(lab.state))
    assert (lab.offset(0), lab.offset(1)) == (3, None)
    lab.end(1, commits=False)
    sweep(lab, sweep_expired_offsets(lab.state))
    assert lab.offset(0) is None


def test_group_with_pending_offsets_alone_is_not_removed() -> None:
    lab = TransactionalLab()
    group = ClassicGroup("g", generation=4, state_timestamp_ms=0)
    lab.shard.adopt(0, lab.state.with_group(group))
    lab.commit(commit_request({0: 5}))
    lab.clock.now_ms += LONG_MS
    sweep(lab, sweep_expired_groups(lab.state))
    assert "g" in lab.state.groups
    lab.end(1, commits=False)
    sweep(lab, sweep_expired_groups(lab.state))
    assert lab.state.group("g") is None


def test_deleted_group_forgets_what_is_pending() -> None:
    lab = TransactionalLab()
    commit_outside(lab, 3, 0)
    lab.commit(commit_request({0: 5, 1: 5}))
    answer = lab.apply(lambda state: handle_delete_groups(state, ["g"], 1 << 20)).result.response
    assert isinstance(answer, DeleteGroupsResponse)
    assert answer.results[0].error_code == ErrorCode.NONE
    assert lab.log.batches[-1].header.record_count == 3  # one tombstone for each partition, and the group's
    assert lab.state.group("g") is None and lab.state.pending == NOTHING_PENDING
    lab.end(1, commits=True)
    assert lab.state.group("g") is None


def test_pending_offsets_of_a_deleted_topic_are_swept() -> None:
    lab = TransactionalLab()
    lab.commit(commit_request({0: 5, 1: 5}))
    lab.commit(commit_request({0: 5}, topic="u"))
    sweep(lab, sweep_deleted_topics(lab.state, [("t", tools.topic_id("t"))]))
    assert not lab.is_open(0) and lab.is_open(0, "u")
    lab.end(1, commits=True)
    assert (lab.offset(0), lab.offset(0, "u")) == (None, 5)


def test_new_coordinator_sweeps_pending_offsets_of_topics_that_are_gone() -> None:
    lab = TransactionalLab()
    lab.commit(commit_request({0: 5}))
    lab.commit(commit_request({0: 5}, topic="u"))
    lab.fail_over()
    lab.topics = TopicsView(tools.make_image({"u": 4}))
    sweep(lab, sweep_after_load(lab.state, lab.topics, ()))
    assert not lab.is_open(0) and lab.is_open(0, "u")


# -- loads ---------------------------------------------------------------------------------------------------


def lab_of_three(others: int) -> TransactionalLab:
    """Three pending offsets, after those of ``others``."""
    lab = TransactionalLab()
    for number in range(others):
        lab.commit(commit_request({0: 1}, 100 + number, group_id=f"other{number}"))
    lab.commit(commit_request({0: 5, 1: 5, 2: 5}))
    return lab


@pytest.mark.parametrize("others", [0, 100])
def test_load_knows_what_crosses_out_pending_offsets(others: int) -> None:
    """Few names are searched for in the bytes of a batch, many are looked up."""
    lab = lab_of_three(others)
    commit_outside(lab, 6, 0)
    commit_outside(lab, 6, 0, "u")
    lab.apply(lambda _: tools.tombstones([("g", "t", 1)]))
    lab.fail_over()
    assert not lab.is_open(1)
    lab.end(1, commits=True)
    assert [lab.offset(partition) for partition in (0, 1, 2)] == [6, None, 5]
    lab.fail_over()
    assert [lab.offset(partition) for partition in (0, 1, 2)] == [6, None, 5]
    assert load_state(lab.log) == lab.state


@pytest.mark.parametrize("others", [0, 100])
def test_load_takes_nothing_from_records_before_the_start_of_the_log(others: int) -> None:
    lab = lab_of_three(others)
    lab.apply(lambda _: tools.tombstones([("g", "t", 0), ("g", "t", 1)]))
    batches, _ = unfold_batches(b"".join(batch.data for batch in lab.log.batches), 0, "test")
    *before, deletion = batches
    assert deletion.record_count == 2
    loader = Loader(0)
    kept = deletion._replace(start_offset=deletion.base_offset + 1)
    for work in (loader.load([*before, kept]), loader.finish()):
        for _ in work:
            pass
    assert list(loader.state.pending.of_topic("g", "t")) == [0, 2]


@pytest.mark.parametrize("others", [0, 100])
def test_record_without_a_key_does_not_end_the_load_of_its_batch(others: int) -> None:
    """No coordinator writes one; with the batch, what crosses out pending offsets would be lost."""
    lab = TransactionalLab()
    for number in range(others):
        lab.commit(commit_request({0: 1}, 100 + number, group_id=f"other{number}"))
    lab.commit(commit_request({0: 5, 1: 5}))
    key, _ = encode_record(GroupRecord(OffsetCommitKey("g", "t", 1), None))
    inputs = [RecordInput(None, b"v", (), 0), RecordInput(key, None, (), 0)]
    lab.log._append(bytearray(encode_batch(inputs)), None)
    assert list(load_state(lab.log).pending.of_topic("g", "t")) == [0]


def test_load_of_a_large_transaction_is_sliced() -> None:
    lab = TransactionalLab()
    lab.topics = TopicsView(tools.make_image({"t": 3_000}))
    lab.commit(commit_request(dict.fromkeys(range(3_000), 5)))
    lab.end(1, commits=True)
    loader = Loader(0)
    batches, _ = unfold_batches(b"".join(batch.data for batch in lab.log.batches), 0, "test")
    slices = list(loader.load(batches))
    assert max(slices) < 2 * SLICE_STEPS and len(slices) > 50
    for _ in loader.finish():
        pass
    assert loader.state == lab.state


# -- the service ---------------------------------------------------------------------------------------------


class Broker(Coordinator):
    """Its log has transactions."""

    def __init__(self) -> None:
        self.log = TransactionalLog()
        self.asked: list[int] = []
        super().__init__()

    @property
    def written_to(self) -> PartitionWriter:
        return self.log

    async def txn_commit(self, request: TxnOffsetCommitRequest, verify: Verify = verified) -> list[int]:
        def asking(partition: int) -> Awaitable[Callable[[], None]]:
            self.asked.append(partition)
            return verify(partition)

        return codes_of(await self.service.txn_offset_commit(tools.CALLER, request, 5, asking))

    async def stable(self) -> tuple[int, int]:
        """Offset and error code of partition 0, of a reader of stable offsets."""
        topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        answer = await self.service.offset_fetch(tools.CALLER, request, 9)
        assert isinstance(answer, OffsetFetchResponse)
        one = answer.groups[0].topics[0].partitions[0]
        return one.committed_offset, one.error_code

    def release(self) -> None:
        self.log.mark = self.log.end
        self.service.on_high_watermark(0, self.log.mark)


broker = in_loop(lambda leads=True: running(Broker(), leads=leads))


async def test_offset_is_told_when_the_marker_is_committed(broker: Broker) -> None:
    assert await broker.txn_commit(commit_request({0: 5})) == [0]
    assert await broker.stable() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    broker.log.hold = True
    ending = asyncio.ensure_future(broker.service.end_transaction(0, end_of(1, commits=True)))
    fetching = asyncio.ensure_future(broker.stable())
    await settle()
    assert broker.log.batches[-1].header.is_control
    assert not ending.done() and not fetching.done()
    broker.release()
    await ending
    assert await fetching == (5, ErrorCode.NONE)


async def test_marker_does_not_overtake_what_was_decided_before(broker: Broker) -> None:
    deciding = asyncio.Event()

    async def verify(partition: int) -> Callable[[], None]:
        return deciding.set

    committing = asyncio.ensure_future(broker.txn_commit(commit_request({0: 5}), verify))
    await deciding.wait()
    await broker.service.end_transaction(0, end_of(1, commits=True))
    assert await committing == [0]
    assert [batch.header.is_control for batch in broker.log.batches] == [False, True]
    assert await broker.stable() == (5, ErrorCode.NONE)


async def test_nothing_is_written_after_a_marker_has_overtaken_the_verification(broker: Broker) -> None:

    async def verify(partition: int) -> Callable[[], None]:
        def is_over() -> None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "over")

        return is_over

    assert await broker.txn_commit(commit_request({0: 5}), verify) == [ErrorCode.INVALID_TXN_STATE]
    assert not broker.log.batches


@pytest.mark.world(leads=False)
async def test_nobody_is_asked_about_what_is_refused_anyway(broker: Broker) -> None:
    assert await broker.txn_commit(commit_request({0: 5})) == [ErrorCode.NOT_COORDINATOR]
    await broker.lead()
    assert await broker.txn_commit(commit_request({9: 5})) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await broker.txn_commit(commit_request({0: 5}, group_id="")) == [ErrorCode.INVALID_GROUP_ID]
    assert broker.asked == [] and not broker.log.batches
    assert await broker.txn_commit(commit_request({0: 5})) == [0]
    assert broker.asked == [0]


@pytest.mark.world(leads=False)
@pytest.mark.parametrize("is_loaded", [False, True])
async def test_marker_that_cannot_be_written_leaves_the_offsets_pending(
    broker: Broker, is_loaded: bool
) -> None:
    end = end_of(1, commits=True)
    with pytest.raises(KafkaError) as refused:
        await broker.service.end_transaction(0, end)
    assert refused.value.code is ErrorCode.NOT_COORDINATOR
    await broker.lead()
    await broker.txn_commit(commit_request({0: 5}))
    broker.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(KafkaError) as failed:
        await broker.service.end_transaction(0, end)
    assert failed.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    broker.log.refuse = None
    if is_loaded:
        broker.service.on_resigned(0)
        broker.service.on_elected(0, 2)
        with pytest.raises(KafkaError) as loading:
            await broker.service.end_transaction(0, end)
        assert loading.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await settle()
    assert await broker.stable() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    await broker.service.end_transaction(0, end)
    assert await broker.stable() == (5, ErrorCode.NONE)


def large_request(topics: int, partitions: int, producer_id: int = 1) -> TxnOffsetCommitRequest:
    """Of topics t-0, t-1 …, each with so many partitions."""
    request = commit_request({}, producer_id)
    request.topics = [
        one
        for number in range(topics)
        for one in commit_request(dict.fromkeys(range(partitions), 5), topic=f"t-{number}").topics
    ]
    return request


def test_transaction_commits_many_offsets_and_not_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them count in one turn, when the marker comes."""
    monkeypatch.setattr(transactional_offsets, "MAX_PARTITIONS", 12)
    monkeypatch.setattr(transactional_offsets, "MAX_TOPICS", 3)
    lab = TransactionalLab(dict.fromkeys([f"t-{number}" for number in range(4)], 13))
    too_large = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    for request in (large_request(4, 1), large_request(1, 13)):
        with pytest.raises(KafkaError) as refused:
            TransactionalCommit(request, lab.call())
        assert refused.value.code is too_large
        answer = at_once(refuse_all(request, 5, too_large))
        assert [topic.name for topic in answer.topics] == [topic.name for topic in request.topics]
        assert set(codes_of(answer)) == {too_large}
    assert set(lab.commit(large_request(2, 5))) == {0}
    before = lab.state
    assert set(lab.commit(large_request(3, 4))) == {too_large}, "with those that it has committed before"
    assert set(lab.commit(large_request(1, 8))) == {too_large}
    assert lab.state is before
    assert set(lab.commit(large_request(2, 6))) == {0}, "ten of twelve again"
    assert set(lab.commit(large_request(3, 1))) == {too_large}
    assert set(lab.commit(large_request(3, 4, producer_id=2))) == {0}, "of another transaction"
    lab.end(1, commits=True)
    assert {lab.offset(n, f"t-{topic}") for topic in (0, 1) for n in range(6)} == {5}
    assert set(lab.commit(large_request(3, 4))) == {0}, "of the next one"
