"""The transactional producer: what calls do in each state, what errors mean, what lost answers cost.

Most tests run by both rules of transactions, over a coordinator and leaders with the product's own rules.

It is long because every test needs the same coordinator and leaders, by both rules.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pykraft.kafka_client.errors import (
    AbortableError,
    ClientTimeoutError,
    FatalTransactionError,
    FencedError,
    NotWrittenError,
    OutcomeUnknownError,
    ProduceError,
    TransactionError,
)
from pykraft.kafka_client.group.config import GroupIdentity
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.kafka_client.producer.transactional import TransactionalProducer
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import EndTxnRequest
from pykraft.transaction_coordinator.log.records import record_of
from pykraft.transaction_coordinator.log.replay import replay
from pykraft.transaction_coordinator.transaction import TransactionState, TransactionVersion
from tests.kafka_client.transaction_world import GROUP, NEVER, UNHEARD, Fault, Lost, TransactionWorld
from tests.transaction_coordinator.shards import a_transaction

TV_0, TV_2 = TransactionVersion.TV_0, TransactionVersion.TV_2
SOURCE = ("source", 0)
API_OF_OLD_RULES = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN)
by_both_rules = pytest.mark.parametrize("rules", [TV_0, TV_2], ids=["TV_0", "TV_2"])
Call = Callable[[TransactionalProducer], Awaitable[object]]


class Once:
    """The first request of an API, or the first few, meet a fault."""

    def __init__(self, api: int, *faults: Fault) -> None:
        self.api = api
        self.faults = list(faults)

    def __call__(self, api: int, request: object) -> Fault:
        return self.faults.pop(0) if api == self.api and self.faults else None


async def offsets(producer: TransactionalProducer, offset: int, member: GroupIdentity | None = None) -> None:
    where = {TopicPartition(*SOURCE): OffsetAndMetadata(offset)}
    await producer.send_offsets_to_transaction(where, GROUP, member, timeout_ms=10_000)


async def write(producer: TransactionalProducer, value: str) -> None:
    """A record to each of two partitions, and an offset, in the open transaction."""
    for partition in (0, 1):
        await producer.send("t", partition, None, value.encode())
    await offsets(producer, int(value))


async def transaction(producer: TransactionalProducer, value: str) -> bool:
    """Whether it is committed; after what can only be aborted it is."""
    await producer.begin_transaction()
    try:
        await write(producer, value)
        for _ in range(20):
            try:
                await producer.commit_transaction(5_000)
                return True
            except OutcomeUnknownError:
                assert producer.error is None
    except (AbortableError, ProduceError):
        await producer.abort_transaction()
    return False


def read(world: TransactionWorld) -> tuple[list[str], list[str], int | None]:
    return world.committed("t", 0), world.committed("t", 1), world.offsets.get(SOURCE)


def requests(world: TransactionWorld) -> int:
    return sum(len(broker.seen) for broker in world.cluster.brokers.values())


# -- calls and states --------------------------------------------------------------------------------------

CALLS: dict[str, Call] = {
    "init": lambda producer: producer.init_transactions(),
    "begin": lambda producer: producer.begin_transaction(),
    "append": lambda producer: producer.append("t", 0, None, b"v"),
    "offsets": lambda producer: offsets(producer, 1),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
}
STATES = {
    "new": {"init"},
    "ready": {"begin"},
    "open": {"append", "offsets", "commit", "abort"},
    "committing": {"commit"},
    "aborting": {"abort"},
    "closed": set(),
}


async def bring_to(world: TransactionWorld, producer: TransactionalProducer, state: str) -> None:
    if state == "new":
        return
    await producer.init_transactions()
    if state == "ready":
        return
    await producer.begin_transaction()
    await write(producer, "1")
    if state in ("committing", "aborting"):
        world.fault = Once(ApiKey.END_TXN, *[NEVER] * 50)
        with pytest.raises(OutcomeUnknownError):
            if state == "committing":
                await producer.commit_transaction(500)
            else:
                await producer.abort_transaction(500)
        world.fault = Once(-1)
    if state == "closed":
        await producer.close()


@by_both_rules
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("call", CALLS)
async def test_a_call_that_does_not_fit_asks_nobody_and_changes_nothing(
    world: TransactionWorld, state: str, call: str
) -> None:
    producer = world.producer()
    await bring_to(world, producer, state)
    before, identity = requests(world), producer.identity
    if call in STATES[state]:
        await CALLS[call](producer)
    else:
        with pytest.raises(RuntimeError) as refused:
            await CALLS[call](producer)
        assert not isinstance(refused.value, KafkaError)
        await asyncio.sleep(1)
        assert (requests(world), producer.identity) == (before, identity)
    await producer.close()


@by_both_rules
async def test_an_empty_transaction_asks_nobody(world: TransactionWorld) -> None:
    producer = world.producer()
    await producer.init_transactions()
    before = requests(world)
    for end in (producer.commit_transaction, producer.abort_transaction):
        await producer.begin_transaction()
        await end()
    assert requests(world) == before
    await producer.close()


@by_both_rules
async def test_records_that_close_gives_up_are_not_committed(world: TransactionWorld) -> None:
    producer = world.producer(config=ProducerConfig(linger_ms=100))
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send("t", 0, None, b"1")
    world.fault = Once(ApiKey.PRODUCE, *[NEVER] * 50)
    lost = producer.append("t", 1, None, b"1")
    commit = asyncio.ensure_future(producer.commit_transaction())
    await asyncio.sleep(0.2)
    await producer.close()
    with pytest.raises(TransactionError):
        await commit
    with pytest.raises(ProduceError):
        await lost
    await asyncio.sleep(70)
    assert world.committed() == []


@by_both_rules
async def test_a_commit_without_an_answer_ends_when_the_producer_is_closed(world: TransactionWorld) -> None:
    producer = world.producer()
    await bring_to(world, producer, "open")
    world.fault = Once(ApiKey.END_TXN, *[Lost(is_silent=True)] * 50)
    commit = asyncio.ensure_future(producer.commit_transaction())
    await asyncio.sleep(0.2)
    await producer.close()
    with pytest.raises(OutcomeUnknownError):
        await asyncio.wait_for(commit, 2)
    before = requests(world)
    await asyncio.sleep(5)
    assert requests(world) == before


# -- errors ------------------------------------------------------------------------------------------------

E = ErrorCode
_PASSING = (E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)
_FATAL = (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_TXN_STATE, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_FENCED = (E.INVALID_PRODUCER_EPOCH, E.PRODUCER_FENCED)
ERRORS: dict[ApiKey, dict[str, tuple[ErrorCode, ...]]] = {
    ApiKey.ADD_PARTITIONS_TO_TXN: {
        "passing": (*_PASSING, E.CONCURRENT_TRANSACTIONS, E.UNKNOWN_TOPIC_OR_PARTITION),
        "abortable": (E.TOPIC_AUTHORIZATION_FAILED, E.TRANSACTION_ABORTABLE),
        "fatal": _FATAL,
        "fenced": _FENCED,
    },
    ApiKey.ADD_OFFSETS_TO_TXN: {
        "passing": (*_PASSING, E.CONCURRENT_TRANSACTIONS),
        "abortable": (E.GROUP_AUTHORIZATION_FAILED, E.TRANSACTION_ABORTABLE),
        "fatal": _FATAL,
        "fenced": _FENCED,
    },
    ApiKey.TXN_OFFSET_COMMIT: {
        "passing": (*_PASSING, E.UNKNOWN_TOPIC_OR_PARTITION),
        "abortable": (
            E.GROUP_AUTHORIZATION_FAILED,
            E.ILLEGAL_GENERATION,
            E.UNKNOWN_MEMBER_ID,
            E.FENCED_INSTANCE_ID,
            E.TRANSACTION_ABORTABLE,
        ),
        "fatal": _FATAL,
        "fenced": _FENCED,
    },
    ApiKey.END_TXN: {
        "passing": (*_PASSING, E.CONCURRENT_TRANSACTIONS),
        "abortable": (E.TRANSACTION_ABORTABLE,),
        "fatal": _FATAL,
        "fenced": _FENCED,
    },
    ApiKey.PRODUCE: {
        "passing": (E.NOT_LEADER_OR_FOLLOWER, E.NOT_ENOUGH_REPLICAS),
        "abortable": (
            E.TOPIC_AUTHORIZATION_FAILED,
            E.MESSAGE_TOO_LARGE,
            E.TRANSACTION_ABORTABLE,
            E.INVALID_PRODUCER_EPOCH,
            E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ),
        "fatal": _FATAL,
    },
    ApiKey.INIT_PRODUCER_ID: {
        "passing": (*_PASSING, E.CONCURRENT_TRANSACTIONS),
        "fatal": (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.INVALID_TRANSACTION_TIMEOUT),
        "fenced": _FENCED,
    },
}
KINDS = [
    pytest.param(rules, api, kind, code, id=f"{rules.name}-{api.name}-{code.name}-{kind}")
    for api, kinds in ERRORS.items()
    for kind, codes in kinds.items()
    for code in codes
    for rules in (TV_0, TV_2)
    if not (rules is TV_2 and api in API_OF_OLD_RULES)
]


@pytest.mark.parametrize(("rules", "api", "kind", "code"), KINDS)
async def test_an_error_is_retried_aborts_or_ends_the_producer(
    world: TransactionWorld, api: ApiKey, kind: str, code: ErrorCode
) -> None:
    world.fault = Once(api, code)
    producer = world.producer()
    if kind == "passing":
        await producer.init_transactions()
        assert await transaction(producer, "1")
    elif kind == "abortable":
        await producer.init_transactions()
        assert not await transaction(producer, "1")
    else:
        expected = FencedError if kind == "fenced" else FatalTransactionError
        with pytest.raises(expected):
            await producer.init_transactions()
            await producer.begin_transaction()
            try:
                await write(producer, "1")
            finally:
                await producer.commit_transaction()
        for call in CALLS.values():
            with pytest.raises(expected):
                await call(producer)
    if kind in ("passing", "abortable"):
        assert await transaction(producer, "2")
    await producer.close()
    await asyncio.sleep(70)
    await world.settled()
    values = {"passing": ["1", "2"], "abortable": ["2"]}.get(kind, [])
    assert read(world) == (values, values, int(values[-1]) if values else None)


@pytest.mark.parametrize("rules", [TV_0, TV_2])
async def test_a_refused_abort_ends_the_producer(world: TransactionWorld) -> None:
    producer = world.producer()
    await bring_to(world, producer, "open")
    world.fault = Once(ApiKey.END_TXN, ErrorCode.TRANSACTION_ABORTABLE)
    with pytest.raises(FatalTransactionError):
        await producer.abort_transaction()
    with pytest.raises(FatalTransactionError):
        await producer.abort_transaction()
    await producer.close()


# -- lost answers ------------------------------------------------------------------------------------------

LOST = {
    "never": NEVER,
    "unheard": UNHEARD,
    "silent": Lost(is_silent=True),
    "silent and done": Lost(0, is_silent=True),
    "soon": Lost(30),
    "within the next": Lost(400),
    "after the next": Lost(7_000),
    "long after": Lost(40_000),
    "append within the next": Lost(400, is_begun=True),
    "append after the next": Lost(7_000, is_begun=True),
}
LOST_CASES = [
    pytest.param(rules, api, fault, count, id=f"{rules.name}-{api.name}-{name}-{count}")
    for api in ERRORS
    for name, fault in LOST.items()
    for count in (1, 3)
    for rules in (TV_0, TV_2)
    if not (rules is TV_2 and api in API_OF_OLD_RULES) and not (fault.is_begun and api is not ApiKey.PRODUCE)
]


@pytest.mark.parametrize(("rules", "api", "fault", "count"), LOST_CASES)
async def test_a_request_without_an_answer_is_carried_out_once_or_not_at_all(
    world: TransactionWorld, rules: TransactionVersion, api: ApiKey, fault: Lost, count: int
) -> None:
    """Also if it arrives in the middle of a later transaction: the hole of the old rules (KIP-890)."""
    outcomes: list[bool] = []
    producer = world.producer()
    world.fault = Once(api, *[fault] * count)
    await producer.init_transactions()
    for number in range(6):
        try:
            outcomes.append(await transaction(producer, str(number)))
        except FencedError:
            # A late request of the old rules has opened a transaction for nobody, and the answer to the
            # epoch that closes it off is a fence; a late InitProducerId is another producer.
            assert api is ApiKey.INIT_PRODUCER_ID or (rules is TV_0 and api in API_OF_OLD_RULES)
            await producer.close()
            outcomes.append(False)
            producer = world.producer()
            await producer.init_transactions()
        await asyncio.sleep(2)
    await producer.close()
    await asyncio.sleep(130)
    await world.settled()
    committed = [str(number) for number, is_committed in enumerate(outcomes) if is_committed]
    assert read(world) == (committed, committed, int(committed[-1]))
    assert len(committed) >= 4


@pytest.mark.world(rules=TV_0)
async def test_a_late_record_of_an_aborted_transaction_is_not_in_the_next_one(
    world: TransactionWorld,
) -> None:
    """By the old rules: the next transaction has the same partitions, so only another epoch keeps it out."""
    producer = world.producer(config=ProducerConfig(linger_ms=0, delivery_timeout_ms=1_500))
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send("t", 0, None, b"1")
    world.fault = Once(ApiKey.PRODUCE, *[Lost(5_000, is_silent=True)] * 9)
    with pytest.raises(ProduceError):
        await producer.send("t", 0, None, b"zombie")
    first = producer.identity
    world.fault = Once(-1)
    await producer.abort_transaction()
    await producer.begin_transaction()
    assert producer.identity != first
    await producer.send("t", 0, None, b"2")
    await asyncio.sleep(10)
    await producer.commit_transaction()
    await producer.close()
    await world.settled()
    assert world.committed() == ["2"]


# -- commits that are not sure -----------------------------------------------------------------------------


@by_both_rules
@pytest.mark.parametrize("fault", [NEVER, UNHEARD], ids=["not carried out", "carried out"])
async def test_an_unknown_commit_is_asked_again(world: TransactionWorld, fault: Lost) -> None:
    producer = world.producer()
    await bring_to(world, producer, "open")
    world.fault = Once(ApiKey.END_TXN, fault, *[NEVER] * 99)
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            await producer.commit_transaction(700)
    with pytest.raises(RuntimeError, match="call commit_transaction"):
        await producer.abort_transaction()
    world.fault = Once(-1)
    await producer.commit_transaction()
    assert await transaction(producer, "2")
    await producer.close()
    await world.settled()
    assert read(world) == (["1", "2"], ["1", "2"], 2)


@by_both_rules
@pytest.mark.parametrize("was_committed", [False, True])
async def test_an_unknown_commit_stays_unknown_if_another_takes_over(
    world: TransactionWorld, was_committed: bool
) -> None:
    producer, other = world.producer(), world.producer()
    await bring_to(world, producer, "open")
    world.fault = Once(ApiKey.END_TXN, UNHEARD if was_committed else NEVER, *[NEVER] * 99)
    with pytest.raises(OutcomeUnknownError):
        await producer.commit_transaction(700)
    world.fault = Once(-1)
    await other.init_transactions()
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            await producer.commit_transaction()
    assert producer.error is not None
    for one in (producer, other):
        await one.close()
    await world.settled()
    assert world.committed() == (["1"] if was_committed else [])


@by_both_rules
async def test_a_transaction_that_took_too_long_is_not_committed(world: TransactionWorld) -> None:
    producer = world.producer(transaction_timeout_ms=2_000)
    await bring_to(world, producer, "open")
    await asyncio.sleep(4)
    with pytest.raises(FatalTransactionError):
        await producer.commit_transaction()
    await producer.close()
    await world.settled()
    assert read(world) == ([], [], None)


@by_both_rules
@pytest.mark.parametrize("after_ms", range(12))
async def test_a_commit_beside_a_timeout_is_whole_or_nothing(world: TransactionWorld, after_ms: int) -> None:
    producer = world.producer(transaction_timeout_ms=2_000)
    await bring_to(world, producer, "open")
    await asyncio.sleep(2.49 + after_ms / 1_000 - asyncio.get_running_loop().time())
    try:
        await producer.commit_transaction()
        committed = True
    except FatalTransactionError:
        committed = False
    await producer.close()
    await world.settled()
    assert read(world) == ((["1"], ["1"], 1) if committed else ([], [], None))


# -- fencing -----------------------------------------------------------------------------------------------


@by_both_rules
@pytest.mark.parametrize("state", ["ready", "open", "aborting"])
async def test_a_producer_whose_id_was_taken_is_fenced(world: TransactionWorld, state: str) -> None:
    old, new = world.producer(), world.producer()
    await bring_to(world, old, state)
    await new.init_transactions()
    with pytest.raises(FencedError):
        if state == "ready":
            await old.begin_transaction()
            try:
                await write(old, "3")
            except (AbortableError, ProduceError):
                await old.abort_transaction()
        elif state == "open":
            await old.commit_transaction()
        else:
            await old.abort_transaction()
    with pytest.raises(FencedError):
        await old.begin_transaction()
    assert await transaction(new, "2")
    for one in (old, new):
        await one.close()
    await world.settled()
    assert read(world) == (["2"], ["2"], 2)


@by_both_rules
async def test_offsets_of_a_member_that_left_its_group_are_refused(world: TransactionWorld) -> None:
    world.member = ("m", 4)
    producer = world.producer()
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send("t", 0, None, b"1")
    with pytest.raises(AbortableError, match="ILLEGAL_GENERATION"):
        await offsets(producer, 1, GroupIdentity("m", 3))
    with pytest.raises(AbortableError):
        await producer.commit_transaction()
    await producer.abort_transaction()
    await producer.begin_transaction()
    await producer.send("t", 0, None, b"2")
    await offsets(producer, 2, GroupIdentity("m", 4))
    await producer.commit_transaction()
    await producer.close()
    await world.settled()
    assert (world.committed(), world.offsets[SOURCE]) == (["2"], 2)


# -- epochs and features -----------------------------------------------------------------------------------


async def test_the_producer_id_changes_when_its_epochs_are_used_up(world: TransactionWorld) -> None:
    last = a_transaction(TransactionState.COMPLETE_COMMIT, epoch=32_760)
    world.shard.state = replay(world.shard.state, record_of(last))
    ids = set()
    producer = world.producer()
    await producer.init_transactions()
    for number in range(12):
        ids.add(producer.identity)
        assert await transaction(producer, str(number))
    await producer.close()
    await world.settled()
    assert len(ids) == 12
    assert len({identity.producer_id for identity in ids if identity}) == 2
    assert world.committed() == [str(number) for number in range(12)]


@by_both_rules
async def test_a_producer_without_epochs_gets_another_id_after_an_abort(world: TransactionWorld) -> None:
    last = a_transaction(TransactionState.COMPLETE_COMMIT, epoch=32_765)
    world.shard.state = replay(world.shard.state, record_of(last))
    producer = world.producer(config=ProducerConfig(linger_ms=0, delivery_timeout_ms=1_500))
    await producer.init_transactions()
    first = producer.identity
    world.fault = Once(ApiKey.PRODUCE, *[Lost(9_000)] * 99)
    assert not await transaction(producer, "1")
    world.fault = Once(-1)
    assert await transaction(producer, "2")
    assert first is not None and producer.identity is not None
    assert producer.identity.producer_id != first.producer_id
    await asyncio.sleep(20)
    await producer.close()
    await world.settled()
    assert read(world) == (["2"], ["2"], 2)


@pytest.mark.world(rules=TV_0)
async def test_a_feature_that_is_raised_takes_effect_between_transactions(world: TransactionWorld) -> None:
    producer = world.producer()
    await producer.init_transactions()
    assert await transaction(producer, "1")
    await producer.begin_transaction()
    world.set_rules(TV_2)
    await write(producer, "2")
    world.fault = Once(ApiKey.END_TXN, UNHEARD)  # the next connection tells of the feature
    await producer.commit_transaction()
    asked = len(world.cluster.requests(ApiKey.ADD_PARTITIONS_TO_TXN))
    assert await transaction(producer, "3")
    assert len(world.cluster.requests(ApiKey.ADD_PARTITIONS_TO_TXN)) == asked > 0
    await producer.close()
    await world.settled()
    assert read(world) == (["1", "2", "3"], ["1", "2", "3"], 3)
    versions = [version for _, version, _ in world.cluster.requests(ApiKey.END_TXN)]
    assert versions[:-1] == [4] * (len(versions) - 1) and versions[-1] == 5


async def test_a_broker_that_does_not_know_the_new_rules_is_not_written_to(world: TransactionWorld) -> None:
    """It would take the records without putting its partition into the transaction."""
    world.limit(ApiKey.PRODUCE, 11, [2])
    producer = world.producer()
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send("t", 0, None, b"1")
    with pytest.raises(NotWrittenError, match=r"transaction\.version 2"):
        await producer.send("t", 1, None, b"1")
    with pytest.raises(TransactionError):
        await producer.commit_transaction()
    await producer.close()
    await asyncio.sleep(70)
    assert world.logs["t", 1].everything() == world.committed() == []


@by_both_rules
async def test_versions_say_by_which_rules_a_transaction_goes(
    world: TransactionWorld, rules: TransactionVersion
) -> None:
    producer = world.producer()
    await producer.init_transactions()
    assert await transaction(producer, "1")
    await producer.close()

    def versions(api: int) -> set[int]:
        return {version for _, version, _ in world.cluster.requests(api)}

    old = rules is TV_0
    assert all((version <= 11) == old for version in versions(ApiKey.PRODUCE))
    assert versions(ApiKey.TXN_OFFSET_COMMIT) == {4 if old else 5}
    assert versions(ApiKey.END_TXN) == {4 if old else 5}
    assert versions(ApiKey.ADD_PARTITIONS_TO_TXN) == ({3} if old else set())
    assert bool(versions(ApiKey.ADD_OFFSETS_TO_TXN)) == old


# -- records -----------------------------------------------------------------------------------------------


@by_both_rules
async def test_abort_gives_up_what_is_in_flight_and_the_next_transaction_goes_on(
    world: TransactionWorld, rules: TransactionVersion
) -> None:
    producer = world.producer(config=ProducerConfig(linger_ms=0))
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send("t", 0, None, b"1")
    world.fault = Once(ApiKey.PRODUCE, Lost(300, is_silent=True))
    futures = [producer.append("t", 0, None, b"1") for _ in range(50)]
    await asyncio.sleep(0.05)
    waiting = producer.append("t", 1, None, b"1")
    if rules is TV_0:
        with pytest.raises(ClientTimeoutError):
            await producer.abort_transaction(100)
    await producer.abort_transaction()
    results = await asyncio.gather(waiting, *futures, return_exceptions=True)
    assert all(isinstance(one, ProduceError) or one for one in results)
    assert await transaction(producer, "2")
    await asyncio.sleep(20)
    await producer.close()
    await world.settled()
    assert read(world) == (["2"], ["2"], 2)


@by_both_rules
async def test_a_full_buffer_refuses_the_record_and_not_the_transaction(world: TransactionWorld) -> None:
    producer = world.producer(config=ProducerConfig(linger_ms=50, buffer_memory_bytes=300))
    await producer.init_transactions()
    await producer.begin_transaction()
    producer.append("t", 0, None, b"1" * 200)
    with pytest.raises(NotWrittenError, match="buffer"):
        producer.append("t", 0, None, b"2" * 200)
    await producer.flush()
    await producer.send("t", 0, None, b"3")
    await producer.commit_transaction()
    await producer.close()
    await world.settled()
    assert world.committed() == ["1" * 200, "3"]


@by_both_rules
async def test_a_commit_that_has_no_time_to_write_can_be_repeated_or_aborted(world: TransactionWorld) -> None:
    producer = world.producer(config=ProducerConfig(linger_ms=0))
    await producer.init_transactions()
    for value in ("1", "2"):
        await producer.begin_transaction()
        world.fault = Once(ApiKey.PRODUCE, NEVER, Lost(is_silent=True))
        record = producer.append("t", 0, None, value.encode())
        with pytest.raises(ClientTimeoutError):
            await producer.commit_transaction(100)
        if value == "1":
            await producer.commit_transaction()
            assert (await record).offset == 0
        else:
            await producer.abort_transaction()
            with pytest.raises(ProduceError):
                await record
    await producer.close()
    await world.settled()
    assert world.committed() == ["1"]


@by_both_rules
@pytest.mark.parametrize("state", ["new", "ready", "open", "committing", "aborting"])
async def test_close_ends_at_once_and_the_coordinator_aborts_what_is_open(
    world: TransactionWorld, state: str
) -> None:
    producer = world.producer()
    await bring_to(world, producer, state)
    began_s = asyncio.get_running_loop().time()
    await producer.close(1_000)
    await producer.close()
    assert asyncio.get_running_loop().time() - began_s < 0.1
    await asyncio.sleep(70)
    await world.settled()
    assert read(world) == ([], [], None)


@by_both_rules
async def test_several_partitions_are_put_into_a_transaction_by_one_request(
    world: TransactionWorld, rules: TransactionVersion
) -> None:
    producer = world.producer()
    await producer.init_transactions()
    await producer.begin_transaction()
    for partition in (0, 1):
        producer.append("t", partition, None, b"1")
    await producer.commit_transaction()
    await producer.close()
    asked: list[Any] = [request for _, _, request in world.cluster.requests(ApiKey.ADD_PARTITIONS_TO_TXN)]
    assert [sorted(request.v3_and_below_topics[0].partitions) for request in asked] == (
        [[0, 1]] if rules is TV_0 else []
    )
    ends = [request for _, _, request in world.cluster.requests(ApiKey.END_TXN)]
    assert all(isinstance(end, EndTxnRequest) and end.committed for end in ends) and len(ends) == 1


@by_both_rules
@pytest.mark.parametrize("api", [ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT])
async def test_a_call_that_is_cancelled_leaves_no_request_to_the_next_transaction(
    world: TransactionWorld, api: ApiKey
) -> None:
    """Its request may be carried out at any time."""
    producer = world.producer()
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send("t", 0, None, b"1")
    world.fault = Once(api, Lost(3_000, is_silent=True))
    call = producer.commit_transaction() if api is ApiKey.END_TXN else offsets(producer, 1)
    task = asyncio.ensure_future(call)
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    committed = ["1"] if api is ApiKey.END_TXN else []
    if committed:
        await producer.commit_transaction()
    else:
        with pytest.raises(AbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
    await producer.begin_transaction()
    await producer.send("t", 0, None, b"2")
    await asyncio.sleep(5)
    await producer.abort_transaction()
    assert await transaction(producer, "3")
    await producer.close()
    await world.settled()
    committed = committed
    assert world.committed() == [*committed, "3"]
    assert world.offsets[SOURCE] == 3


@by_both_rules
@pytest.mark.parametrize("is_silent", [False, True])
async def test_a_late_commit_does_not_commit_the_next_transaction(
    world: TransactionWorld, is_silent: bool
) -> None:
    producer = world.producer()
    await bring_to(world, producer, "open")
    world.fault = Once(ApiKey.END_TXN, Lost(4_000, is_silent=is_silent))
    await producer.commit_transaction()
    await producer.begin_transaction()
    await producer.send("t", 0, None, b"2")
    await asyncio.sleep(6)
    await producer.abort_transaction()
    await producer.close()
    await world.settled()
    assert read(world) == (["1"], ["1"], 1)


@by_both_rules
async def test_late_offsets_do_not_replace_later_ones(world: TransactionWorld) -> None:
    """Within one transaction no epoch keeps them out: it can only be aborted."""
    producer = world.producer()
    await producer.init_transactions()
    await producer.begin_transaction()
    world.fault = Once(ApiKey.TXN_OFFSET_COMMIT, Lost(500))
    await offsets(producer, 5)
    with pytest.raises(AbortableError):
        await offsets(producer, 9)
    await asyncio.sleep(1)
    with pytest.raises(AbortableError):
        await producer.commit_transaction()
    await producer.abort_transaction()
    assert await transaction(producer, "9")
    await producer.close()
    await world.settled()
    assert world.offsets[SOURCE] == 9
