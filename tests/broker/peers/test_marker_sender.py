"""The markers of decided transactions on their way to the leaders of partitions, in virtual time."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from pykraft.broker.peers.marker_sender import MarkerSender
from pykraft.broker.peers.peers import Peers
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import ABORT, COMMIT, EndOfTransaction, Marker
from pykraft.kafka_protocol.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykraft.metadata_log.image import MetadataImage
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from pykraft.runtime.tasks import TaskSupervisor
from pykraft.transaction_coordinator.ports import MarkersRefusedError
from pykraft.transaction_coordinator.transaction import Transaction, TransactionState, TransactionVersion
from tests.group_coordinator.tools import make_image
from tests.narrowing import present
from tests.stand_ins import stand_in
from tests.unexpected import unexpected

HERE, PEER = 1, 2


pytestmark = pytest.mark.loop(new=VirtualLoop)


class Supervisor(TaskSupervisor):
    def __init__(self) -> None:
        super().__init__(unexpected)
        self.most = 0

    def start(self, *args: Any) -> asyncio.Task[Any]:
        task = super().start(*args)
        self.most = max(self.most, len(self))
        return task


class Place:
    """A broker that coordinates, and the leaders of partitions."""

    image: MetadataImage

    def __init__(self, partitions: int) -> None:
        self.image = make_image({"t": partitions})
        self.tasks = Supervisor()
        self.requests: list[tuple[int, int]] = []
        """To which broker, and how many markers."""
        self.answers: dict[tuple[int, int], ErrorCode] = {}
        """By producer id and partition."""
        self.down: set[int] = set()
        self.broken: dict[int, Exception] = {}
        """What goes wrong in an exchange with a broker."""
        self.silent: set[int] = set()
        """Partitions that answers leave out."""
        self.markers: list[tuple[EndOfTransaction, Sequence[tuple[str, int]]]] = []
        peers = stand_in(Peers, call=self.call)
        self.sender = MarkerSender(HERE, self, peers, self.write_here, self.tasks)

    def lead(self, leaders: Sequence[int | None]) -> None:
        """Partition by partition, which broker leads; None: none does."""
        topic = present(self.image.topic("t"))
        partitions = tuple(
            replace(one, leader=-1 if leader is None else leader)
            for one, leader in zip(topic.partitions, leaders, strict=True)
        )
        topics = self.image.topics_by_id.set(topic.id, replace(topic, partitions=partitions))
        self.image = replace(self.image, topics_by_id=topics)

    async def write_here(
        self, ends: Sequence[tuple[EndOfTransaction, Sequence[tuple[str, int]]]]
    ) -> dict[tuple[int, str, int], ErrorCode]:
        return await self._write_at(HERE, ends)

    async def call(self, node_id: int, request: Message, *_: object) -> WriteTxnMarkersResponse:
        assert node_id != HERE, "a broker needs no connection to itself"
        assert isinstance(request, WriteTxnMarkersRequest)
        ends = [
            (
                EndOfTransaction(
                    one.producer_id,
                    one.producer_epoch,
                    Marker(COMMIT if one.transaction_result else ABORT, one.coordinator_epoch),
                    one.transaction_version,
                ),
                [(topic.name, index) for topic in one.topics for index in topic.partition_indexes],
            )
            for one in request.markers
        ]
        codes = await self._write_at(node_id, ends)
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            ],
                        )
                    ],
                )
                for (id, topic, index), code in codes.items()
            ]
        )

    async def _write_at(
        self, node_id: int, ends: Sequence[tuple[EndOfTransaction, Sequence[tuple[str, int]]]]
    ) -> dict[tuple[int, str, int], ErrorCode]:
        self.requests.append((node_id, sum(len(places) for _, places in ends)))
        self.markers += ends
        await asyncio.sleep(0.001)
        if node_id in self.broken:
            raise self.broken[node_id]
        if node_id in self.down:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no answer")
        return {
            (end.producer_id, topic, index): self.answers.get((end.producer_id, index), ErrorCode.NONE)
            for end, places in ends
            for topic, index in places
            if index not in self.silent
        }

    def write(self, producer_id: int, partitions: Sequence[int]) -> asyncio.Future[None]:
        places = frozenset(("t", index) for index in partitions)
        state = TransactionState.PREPARE_COMMIT
        value = Transaction(f"id-{producer_id}", producer_id, 1, 60_000, state, places, 0)
        return asyncio.ensure_future(self.sender.write(value, 3))


async def test_markers_that_nobody_can_take_now_wait_together() -> None:
    place = Place(partitions=300)
    place.lead([None] * 300)
    waiting = [place.write(id, range(300)) for id in range(20)]
    await asyncio.sleep(2)
    assert place.tasks.most <= 3, "not a task for each of 6,000 markers, ten times a second"
    assert not place.requests and not any(one.done() for one in waiting)
    place.lead([PEER] * 300)
    await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert sum(count for _, count in place.requests) == 6_000
    await place.tasks.close()


async def test_broker_that_is_down_holds_up_nobody_else() -> None:
    place = Place(partitions=3)
    place.lead([HERE, PEER, None])
    place.down = {PEER}
    waiting = place.write(1, [0, 1, 2])
    other = place.write(2, [0])
    await asyncio.wait_for(other, 1)
    await asyncio.sleep(1)
    assert not waiting.done()
    place.lead([HERE, HERE, HERE])
    await asyncio.wait_for(waiting, 1)
    await place.tasks.close()


async def test_markers_are_tried_again_until_each_partition_has_its_own() -> None:
    place = Place(partitions=2)
    place.lead([PEER, PEER])
    place.answers[1, 1] = ErrorCode.NOT_ENOUGH_REPLICAS
    waiting = place.write(1, [0, 1])
    await asyncio.sleep(0.05)
    assert place.requests == [(PEER, 2)] and not waiting.done()
    place.answers.clear()
    await asyncio.wait_for(waiting, 1)
    assert place.requests == [(PEER, 2), (PEER, 1)], "what was written is not written again"
    await place.tasks.close()


async def test_deleted_topic_needs_no_markers() -> None:
    place = Place(partitions=2)
    place.lead([None, None])
    waiting = place.write(1, [0, 1])
    await asyncio.sleep(0.3)
    place.image = make_image({"u": 1})
    await asyncio.wait_for(waiting, 1)
    assert not place.requests
    await place.tasks.close()


async def test_what_is_given_up_is_sent_no_more() -> None:
    place = Place(partitions=2)
    place.lead([PEER, None])
    place.down = {PEER}
    waiting = place.write(1, [0, 1])
    await asyncio.sleep(0.5)
    waiting.cancel()
    await asyncio.sleep(0.2)
    sent = len(place.requests)
    await asyncio.sleep(1)
    assert len(place.requests) == sent and len(place.tasks) == 0
    await place.tasks.close()


@pytest.mark.parametrize("leader", [HERE, PEER])
@pytest.mark.parametrize(
    ("state", "is_commit"), [(TransactionState.PREPARE_COMMIT, True), (TransactionState.PREPARE_ABORT, False)]
)
async def test_marker_says_what_the_coordinator_has_decided(
    state: TransactionState, is_commit: bool, leader: int
) -> None:
    place = Place(partitions=3)
    place.lead([leader] * 3)
    value = Transaction(
        "id",
        1_000,
        7,
        60_000,
        state,
        frozenset({("t", 2), ("t", 0)}),
        0,
        client_version=TransactionVersion.TV_2,
    )
    await place.sender.write(value, 5)
    end = EndOfTransaction(1_000, 7, Marker(COMMIT if is_commit else ABORT, 5), 2)
    assert place.markers == [(end, [("t", 0), ("t", 2)])]
    await place.tasks.close()


async def test_transaction_that_wrote_nothing_needs_no_markers() -> None:
    place = Place(partitions=1)
    await asyncio.wait_for(place.write(1, []), 1)
    assert not place.requests
    await place.tasks.close()


async def test_request_has_no_more_markers_than_a_leader_writes_at_once() -> None:
    place = Place(partitions=1)
    place.lead([PEER])
    first = place.write(0, [0])
    await asyncio.sleep(0)
    waiting = [place.write(id, [0]) for id in range(1, 1_201)]
    await asyncio.gather(first, *waiting)
    assert place.requests == [(PEER, 1), (PEER, 500), (PEER, 500), (PEER, 200)]
    await place.tasks.close()


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
async def test_coordinator_that_was_overtaken_stops(code: ErrorCode) -> None:
    place = Place(partitions=3)
    place.lead([PEER, PEER, None])
    place.answers[1, 1] = code
    waiting, other = place.write(1, [0, 1, 2]), place.write(2, [0, 1])
    with pytest.raises(MarkersRefusedError, match=f"t-1: {code.name}"):
        await asyncio.wait_for(waiting, 1)
    await other
    sent = len(place.requests)
    place.lead([PEER] * 3)
    await asyncio.sleep(1)
    assert len(place.requests) == sent
    await place.tasks.close()


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
async def test_partition_that_has_no_transactions_needs_no_marker(code: ErrorCode) -> None:
    place = Place(partitions=1)
    place.answers[1, 0] = code
    place.lead([PEER])
    await asyncio.wait_for(place.write(1, [0]), 1)
    assert len(place.requests) == 1
    await place.tasks.close()


async def test_partition_that_the_answer_leaves_out_is_asked_again() -> None:
    place = Place(partitions=2)
    place.lead([PEER, PEER])
    place.silent = {1}
    waiting = place.write(1, [0, 1])
    await asyncio.sleep(0.15)
    assert not waiting.done() and place.requests == [(PEER, 2), (PEER, 1)]
    place.silent.clear()
    await asyncio.wait_for(waiting, 1)
    await place.tasks.close()


async def test_partition_of_a_namesake_with_fewer_needs_no_marker() -> None:
    place = Place(partitions=2)
    place.lead([HERE, HERE])
    await asyncio.wait_for(place.write(1, [1, 2]), 1)
    assert place.requests == [(HERE, 1)]
    await place.tasks.close()


@pytest.mark.parametrize("leader", [HERE, PEER])
async def test_exchange_that_goes_wrong_is_repeated_and_holds_up_nothing(leader: int) -> None:
    """Whatever the reason: a transaction that was decided is ended, and a node goes on."""
    place = Place(partitions=2)
    place.lead([leader, leader])
    place.broken[leader] = ValueError("a bug")
    first = place.write(1, [0])
    await asyncio.sleep(0.0005)
    second = place.write(2, [1])  # due while the first is on its way
    await asyncio.sleep(0.5)
    assert not first.done() and not second.done()
    assert 5 <= len(place.requests) <= 15, "after a pause"
    place.broken.clear()
    await asyncio.wait_for(asyncio.gather(first, second, place.write(3, [0, 1])), 1)
    assert len(place.tasks) == 0
    await place.tasks.close()
