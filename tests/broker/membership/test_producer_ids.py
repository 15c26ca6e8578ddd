"""Producer ids: unique, and nobody waits for the controller."""

import asyncio
import logging

import pytest

from pykraft.broker.membership.producer_ids import ProducerIdAllocator
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.runtime.tasks import TaskSupervisor
from tests.unexpected import unexpected


class Controller:
    """Gives these blocks, one after the other, when it is told to."""

    def __init__(self, *blocks: tuple[int, int] | KafkaError) -> None:
        self.blocks = iter(blocks)
        self.calls = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.tasks = TaskSupervisor(unexpected)
        self.ids = ProducerIdAllocator(self.allocate, self.tasks)

    async def allocate(self) -> tuple[int, int]:
        self.calls += 1
        await self.may_answer.wait()
        block = next(self.blocks)
        if isinstance(block, KafkaError):
            raise block
        return block

    def take(self, count: int) -> list[int]:
        return [self.ids.next_id() for _ in range(count)]

    def refuses(self) -> bool:
        """Whether there is no id now, as clients are told."""
        with pytest.raises(KafkaError) as refused:
            self.ids.next_id()
        return refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def answer(self) -> None:
        self.may_answer.set()
        while len(self.tasks):
            await asyncio.sleep(0)


async def test_ids_come_from_one_block_after_the_other() -> None:
    controller = Controller((0, 3), (5_000, 3), (9_000, 3))
    controller.ids.fetch_block()
    taken: list[int] = []
    while len(taken) < 8:
        await controller.answer()
        taken += controller.take(1)
    assert taken == [0, 1, 2, 5_000, 5_001, 5_002, 9_000, 9_001]


async def test_nobody_waits_for_the_controller_and_it_is_asked_once() -> None:
    controller = Controller((7_000, 1_000))
    controller.may_answer.clear()
    assert all(controller.refuses() for _ in range(5))
    await asyncio.sleep(0)
    assert all(controller.refuses() for _ in range(5)) and controller.calls == 1
    await controller.answer()
    assert controller.take(2) == [7_000, 7_001] and controller.calls == 1


async def test_next_block_is_there_before_the_last_is_used_up() -> None:
    controller = Controller((0, 100), (200, 100), (400, 100))
    controller.ids.fetch_block()
    await controller.answer()
    assert controller.take(89) == [*range(89)]
    await controller.answer()
    assert controller.calls == 1
    assert controller.take(1) == [89]
    await controller.answer()
    assert controller.calls == 2
    assert controller.take(20) == [*range(90, 100), *range(200, 210)]
    controller.ids.fetch_block()  # once more than is needed
    await controller.answer()
    controller.ids.fetch_block()
    await controller.answer()
    assert controller.calls == 3
    assert controller.take(190) == [*range(210, 300), *range(400, 500)]


async def test_block_that_comes_late_loses_no_id() -> None:
    controller = Controller((0, 10), (10, 10))
    controller.ids.fetch_block()
    await controller.answer()
    controller.may_answer.clear()
    assert controller.take(10) == [*range(10)]
    assert controller.refuses()
    await controller.answer()
    assert controller.take(10) == [*range(10, 20)]


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH])
async def test_controller_that_refuses_is_asked_again_by_the_next_producer(
    code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        controller = Controller(KafkaError(code, "nobody leads"), (7_000, 1_000))
        assert controller.refuses()
        await controller.answer()
        assert controller.refuses() and "nobody leads" in caplog.text
        await controller.answer()
        assert controller.take(1) == [7_000]
