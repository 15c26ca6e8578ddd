"""The markers of decided transactions on their way to the leaders of partitions, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from pykraft.broker.peers.peers import Peers
from pykraft.broker.transactions.marker_sender import MarkerSender
from pykraft.jepsen_like.sim.virtual_loop import VirtualLoop
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pykraft.kafka_protocol.schema import Message
from pykraft.metadata_log.image import MetadataImage
from pykraft.runtime.tasks import TaskSupervisor
from pykraft.transaction_coordinator.transaction import Transaction, TransactionState
from tests.faults import unexpected
from tests.group_coordinator.tools import make_image

HERE, PEER = 1, 2


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
        self.sender = MarkerSender(HERE, self, cast("Peers", self), self.write_here, self.tasks)

    def lead(self, leaders: Sequence[int | None]) -> None:
        """Partition by partition, which broker leads; None: none does."""
        topic = self.image.topic("t")
        assert topic is not None
        partitions = tuple(
            replace(one, leader=-1 if leader is None else leader)
            for one, leader in zip(topic.partitions, leaders, strict=True)
        )
        topics = self.image.topics_by_id.set(topic.id, replace(topic, partitions=partitions))
        self.image = replace(self.image, topics_by_id=topics)

    async def write_here(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return await self.call(HERE, request)

    async def call(self, node_id: int, request: Message, *_: object) -> WriteTxnMarkersResponse:
        assert isinstance(request, WriteTxnMarkersRequest)
        count = sum(len(t.partition_indexes) for one in request.markers for t in one.topics)
        self.requests.append((node_id, count))
        await asyncio.sleep(0.001)
        if node_id in self.down:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no answer")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=one.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self.answers.get((one.producer_id, index), ErrorCode.NONE),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in one.topics
                    ],
                )
                for one in request.markers
            ]
        )

    def write(self, producer_id: int, partitions: Sequence[int]) -> asyncio.Future[None]:
        places = frozenset(("t", index) for index in partitions)
        state = TransactionState.PREPARE_COMMIT
        value = Transaction(f"id-{producer_id}", producer_id, 1, 60_000, state, places, 0)
        return asyncio.ensure_future(self.sender.write(value, 3))


def in_virtual_time(scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())


def test_markers_that_nobody_can_take_now_wait_together() -> None:
    async def scenario() -> None:
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

    in_virtual_time(scenario)


def test_broker_that_is_down_holds_up_nobody_else() -> None:
    async def scenario() -> None:
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

    in_virtual_time(scenario)


def test_markers_are_tried_again_until_each_partition_has_its_own() -> None:
    async def scenario() -> None:
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

    in_virtual_time(scenario)


def test_deleted_topic_needs_no_markers() -> None:
    async def scenario() -> None:
        place = Place(partitions=2)
        place.lead([None, None])
        waiting = place.write(1, [0, 1])
        await asyncio.sleep(0.3)
        place.image = make_image({"u": 1})
        await asyncio.wait_for(waiting, 1)
        assert not place.requests
        await place.tasks.close()

    in_virtual_time(scenario)


def test_what_is_given_up_is_sent_no_more() -> None:
    async def scenario() -> None:
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

    in_virtual_time(scenario)
