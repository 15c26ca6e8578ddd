"""What a leader of partitions asks transaction coordinators, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from pykraft.broker.peers import verifier as verifier_module
from pykraft.broker.peers.peers import Peers
from pykraft.broker.peers.verifier import CoordinatorVerifier
from pykraft.coordinator.partitioning import TRANSACTION_STATE_TOPIC, partition_for_key
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from pykraft.metadata_log.image import MetadataImage
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from pykraft.runtime.tasks import TaskSupervisor
from tests.asynchronous import in_loop
from tests.group_coordinator.tools import make_image
from tests.narrowing import present
from tests.stand_ins import stand_in
from tests.unexpected import unexpected

HERE, PEER = 1, 2
Place = tuple[str, int]
T0, T1, U0 = ("t", 0), ("t", 1), ("u", 0)
Codes = Mapping[Place, ErrorCode]


class Asking:
    """A broker that leads partitions, and the coordinators of transactional ids."""

    image: MetadataImage

    def __init__(self) -> None:
        self.image = make_image({TRANSACTION_STATE_TOPIC: 2})
        self.tasks = TaskSupervisor(unexpected)
        self.requests: list[tuple[int, list[AddPartitionsToTxnTransaction]]] = []
        """To which broker, and what was asked."""
        self.answer: Callable[[AddPartitionsToTxnRequest], AddPartitionsToTxnResponse] = answer_all()
        peers = stand_in(Peers, call=self.call)
        self.verifier = CoordinatorVerifier(HERE, self, peers, self.ask_here, self.tasks)
        self.lead([HERE, HERE])

    def lead(self, leaders: Sequence[int]) -> None:
        topic = present(self.image.topic(TRANSACTION_STATE_TOPIC))
        partitions = tuple(
            replace(one, leader=leader) for one, leader in zip(topic.partitions, leaders, strict=True)
        )
        topics = self.image.topics_by_id.set(topic.id, replace(topic, partitions=partitions))
        self.image = replace(self.image, topics_by_id=topics)

    async def ask_here(self, request: AddPartitionsToTxnRequest, version: int) -> AddPartitionsToTxnResponse:
        assert version >= 4, "an answer for each transactional id"
        return await self._ask(HERE, request)

    async def call(self, node_id: int, request: Message, *_: object) -> AddPartitionsToTxnResponse:
        assert node_id != HERE, "a broker needs no connection to itself"
        return await self._ask(node_id, request)

    async def _ask(self, node_id: int, request: Message) -> AddPartitionsToTxnResponse:
        assert isinstance(request, AddPartitionsToTxnRequest)
        self.requests.append((node_id, request.transactions))
        await asyncio.sleep(0.01)
        return self.answer(request)

    @property
    def asked(self) -> list[tuple[int, list[str]]]:
        """The broker and the transactional ids of each request."""
        return [(node, [one.transactional_id for one in those]) for node, those in self.requests]

    def verify(
        self, name: str, places: Sequence[Place] = (T0,), epoch: int = 0, *, adds: bool = True
    ) -> asyncio.Task[Codes]:
        async def verify() -> Codes:
            errors = await self.verifier.verify(name, 7, epoch, places, adds=adds)
            return {place: error.code for place, error in errors.items()}

        return asyncio.ensure_future(verify())


def answer_all(
    code: Callable[[AddPartitionsToTxnTransaction, Place], int] = lambda asked, place: ErrorCode.NONE,
) -> Callable[[AddPartitionsToTxnRequest], AddPartitionsToTxnResponse]:
    """The answer of a coordinator that has an error code, or none, for each partition of each id."""

    def answer(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=code(asked, (topic.name, index)),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in asked.topics
                    ],
                )
                for asked in request.transactions
            ]
        )

    return answer


@asynccontextmanager
async def begun() -> AsyncIterator[Asking]:
    place = Asking()
    async with asyncio.timeout(60):
        yield place
    assert len(place.tasks) == 0, "nothing is due, and nothing runs"
    await place.tasks.close()


place = in_loop(begun, VirtualLoop)


def ids_at(partition: int, count: int) -> list[str]:
    """Transactional ids of this partition of ``__transaction_state``."""
    names = (f"id-{number}" for number in range(100))
    return [name for name in names if partition_for_key(name, 2) == partition][:count]


async def test_what_is_asked_reaches_the_coordinator_of_the_id_as_it_is(place: Asking) -> None:
    place.lead([HERE, PEER])
    (near,), (far,) = ids_at(0, 1), ids_at(1, 1)
    assert await place.verify(near, [T1, U0, T0], epoch=3, adds=True) == {}
    assert await place.verify(far, [T1], adds=False) == {}
    assert place.asked == [(HERE, [near]), (PEER, [far])]
    ((added,), (verified,)) = (those for _, those in place.requests)
    assert (added.producer_id, added.producer_epoch, added.verify_only) == (7, 3, False)
    assert [(topic.name, topic.partitions) for topic in added.topics] == [("t", [0, 1]), ("u", [0])]
    assert verified.verify_only


async def test_what_is_asked_meanwhile_shares_one_request(place: Asking) -> None:
    place.answer = answer_all(lambda asked, _: int(asked.transactional_id[3:]))
    answers = []
    for code in range(1, 6):
        answers.append(place.verify(f"id-{code}"))
        await asyncio.sleep(0)
    assert [dict(codes) for codes in await asyncio.gather(*answers)] == [{T0: c} for c in range(1, 6)]
    assert place.asked == [(HERE, ["id-1"]), (HERE, ["id-2", "id-3", "id-4", "id-5"])]


async def test_each_request_about_one_id_gets_its_own_answer(place: Asking) -> None:
    """Answers are told apart by the transactional id, so one request asks about each only once."""

    def code(asked: AddPartitionsToTxnTransaction, where: Place) -> ErrorCode:
        return ErrorCode.NONE if asked.producer_epoch == 1 else ErrorCode.PRODUCER_FENCED

    place.answer = answer_all(code)
    first = place.verify("other")
    await asyncio.sleep(0)
    waiting = [
        place.verify("same", [T0], epoch=1),
        place.verify("same", [T1], epoch=0),
        place.verify("different", [T0], epoch=1),
        place.verify("same", [U0], epoch=1),
    ]
    assert await first == {T0: ErrorCode.PRODUCER_FENCED}
    assert await asyncio.gather(*waiting) == [{}, {T1: ErrorCode.PRODUCER_FENCED}, {}, {}]
    assert place.asked == [
        (HERE, [*names]) for names in (["other"], ["same", "different"], ["same"], ["same"])
    ]
    assert [those[0].topics[0].name for _, those in place.requests] == ["t", "t", "t", "u"], "in order"


async def test_brokers_are_asked_independently(place: Asking) -> None:
    place.lead([HERE, PEER])
    (near,), (far,) = ids_at(0, 1), ids_at(1, 1)
    await asyncio.gather(place.verify(near), place.verify(far))
    assert asyncio.get_running_loop().time() < 0.02, "neither has waited for the other"
    assert sorted(node for node, _ in place.requests) == [HERE, PEER]


async def test_request_names_no_more_partitions_than_a_coordinator_does_at_once(
    place: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier_module, "_PARTITIONS_PER_REQUEST", 4)
    first = place.verify("first")
    await asyncio.sleep(0)
    sizes = [3, 1, 2, 9, 1]
    waiting = [
        place.verify(f"id-{number}", [("t", index) for index in range(size)])
        for number, size in enumerate(sizes)
    ]
    assert await asyncio.gather(first, *waiting) == [{}] * 6
    assert [len(those) for _, those in place.requests] == [1, 2, 2, 1]


async def test_without_a_coordinator_nothing_is_asked(place: Asking) -> None:
    (near,), (nowhere,) = ids_at(0, 1), ids_at(1, 1)
    place.lead([HERE, -1])
    assert await place.verify(nowhere) == {T0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    place.image = make_image({"t": 1})
    assert await place.verify(near, [T0, U0]) == dict.fromkeys([T0, U0], ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert not place.requests


async def test_errors_are_those_of_the_partitions(place: Asking) -> None:
    codes = {
        T0: ErrorCode.NONE,
        T1: ErrorCode.OPERATION_NOT_ATTEMPTED,
        U0: ErrorCode.TRANSACTION_ABORTABLE,
    }
    place.answer = answer_all(lambda _, where: codes[where])
    assert await place.verify("id", [T0, T1, U0]) == {T1: codes[T1], U0: codes[U0]}


async def test_answer_as_a_whole_is_that_of_everything_that_was_asked(place: Asking) -> None:
    place.answer = lambda _: AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    refused = dict.fromkeys([T0, U0], ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert await place.verify("id", [T0, U0]) == refused


async def test_partition_that_the_answer_leaves_out_counts_as_refused(place: Asking) -> None:
    """Otherwise its records would be written beside the transaction, and no marker would end them."""

    def without_u(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        response = answer_all()(request)
        del response.results_by_transaction[0].topic_results[1]
        return response

    place.answer = without_u
    assert await place.verify("id", [T0, U0]) == {U0: ErrorCode.UNKNOWN_SERVER_ERROR}
    place.answer = lambda _: AddPartitionsToTxnResponse()
    assert await place.verify("id") == {T0: ErrorCode.UNKNOWN_SERVER_ERROR}


def _unknown_code(_: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
    return answer_all(lambda *_: 32_000)(_)


def _raise(error: Exception) -> Callable[[AddPartitionsToTxnRequest], AddPartitionsToTxnResponse]:
    def answer(_: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        raise error

    return answer


@pytest.mark.parametrize("leader", [HERE, PEER])
@pytest.mark.parametrize(
    ("failing", "code"),
    [
        (_raise(KafkaError(ErrorCode.NETWORK_EXCEPTION)), ErrorCode.NETWORK_EXCEPTION),
        (_raise(ValueError("a bug")), ErrorCode.UNKNOWN_SERVER_ERROR),
        (_unknown_code, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["no answer", "bug", "code of another version"],
)
async def test_exchange_that_fails_costs_what_was_in_it_and_nothing_after_it(
    place: Asking,
    failing: Callable[[AddPartitionsToTxnRequest], AddPartitionsToTxnResponse],
    code: ErrorCode,
    leader: int,
) -> None:
    place.lead([leader, leader])
    place.answer = failing
    first = place.verify("first", [T0, U0])
    await asyncio.sleep(0.005)
    second = place.verify("second")  # due while the first is on its way
    assert await first == dict.fromkeys([T0, U0], code)
    place.answer = answer_all()
    assert await asyncio.wait_for(second, 1) == {}
    assert await asyncio.wait_for(place.verify("third"), 1) == {}
    place.answer = failing
    assert await asyncio.wait_for(place.verify("fourth"), 1) == {T0: code}
    await asyncio.sleep(0)
    place.answer = answer_all()
    assert await asyncio.wait_for(place.verify("fifth"), 1) == {}


async def test_caller_that_is_gone_takes_no_answer_from_others(place: Asking) -> None:
    gone, waits = place.verify("gone"), place.verify("waits")
    await asyncio.sleep(0.005)
    late = place.verify("gone", [U0])
    gone.cancel()
    assert await waits == {} and await late == {}
    place.answer = _raise(KafkaError(ErrorCode.NETWORK_EXCEPTION))
    gone, waits = place.verify("gone"), place.verify("waits")
    await asyncio.sleep(0.005)
    gone.cancel()
    assert await waits == {T0: ErrorCode.NETWORK_EXCEPTION}
