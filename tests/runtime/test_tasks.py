"""Work that begins at once: it has a task only if it waits, and then as if it had had one all along."""

import asyncio
import traceback
from collections.abc import Callable

import pytest
import uvloop

from pykraft.runtime.tasks import TaskSupervisor, Workers
from tests.unexpected import unexpected

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])


def make_future() -> asyncio.Future[int]:
    return asyncio.get_running_loop().create_future()


async def test_work_that_does_not_wait_is_done_at_once_without_a_task() -> None:
    seen: list[str] = []

    async def work() -> None:
        seen.append("done")

    supervisor = TaskSupervisor(unexpected)
    assert supervisor.begin(work(), "work") is None
    assert seen == ["done"]
    assert len(supervisor) == 0


@LOOPS
async def test_two_that_wait_for_the_same_both_go_on(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    awaited = make_future()
    seen: list[int] = []

    async def work(number: int) -> None:
        seen.append(number + await awaited)
        await asyncio.sleep(0)
        seen.append(-number)

    supervisor = TaskSupervisor(unexpected)
    tasks = [supervisor.begin(work(number), "work") for number in (1, 2)]
    awaited.set_result(10)
    for task in tasks:
        assert task is not None
        await task
    assert seen == [11, 12, -1, -2]


async def test_work_that_first_lets_others_run_goes_on_after_them() -> None:
    seen: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        seen.append("work")

    asyncio.get_running_loop().call_soon(seen.append, "others")
    task = TaskSupervisor(unexpected).begin(work(), "work")
    assert task is not None
    await task
    assert seen == ["others", "work"]


@pytest.mark.parametrize("waits", [False, True])
async def test_failure_before_and_after_the_first_wait_is_fatal(
    waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[BaseException] = []

    async def work() -> None:
        if waits:
            await asyncio.sleep(0)
        raise ZeroDivisionError

    task = TaskSupervisor(failures.append).begin(work(), "work")
    assert (task is not None) is waits
    if task is not None:
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert [type(failure) for failure in failures] == [ZeroDivisionError]
    assert "task work failed" in caplog.text


async def test_cancelled_before_its_task_has_begun_it_cancels_what_it_waits_for() -> None:
    awaited = make_future()
    seen: list[str] = []

    async def work() -> None:
        try:
            await awaited
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = TaskSupervisor(unexpected).begin(work(), "work")
    assert task is not None
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert seen == ["cancelled"]
    assert task.cancelled() and awaited.cancelled()


async def test_cancelled_before_its_task_has_begun_it_ends_after_what_it_gathers() -> None:
    seen: list[str] = []

    async def part(name: str) -> None:
        try:
            await make_future()
        finally:
            seen.append(name)

    async def work() -> None:
        try:
            await asyncio.gather(part("one"), part("two"))
        finally:
            seen.append("work")

    supervisor = TaskSupervisor(unexpected)
    task = supervisor.begin(work(), "work")
    assert task is not None
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert seen == ["one", "two", "work"]


async def test_cancelled_when_what_it_waited_for_has_just_ended_it_still_ends() -> None:
    awaited = make_future()

    async def work() -> None:
        await awaited
        await make_future()

    task = TaskSupervisor(unexpected).begin(work(), "work")
    assert task is not None
    awaited.set_result(1)
    task.cancel()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()


async def test_nothing_begins_after_the_close_and_what_waits_is_cancelled() -> None:
    seen: list[str] = []

    async def work(name: str) -> None:
        seen.append(name)
        try:
            await make_future()
        finally:
            seen.append(f"end of {name}")

    supervisor = TaskSupervisor(unexpected)
    supervisor.begin(work("before"), "before")
    await supervisor.close()
    late = supervisor.begin(work("after"), "after")
    assert late is not None
    await asyncio.wait([late], timeout=10)
    assert late.cancelled()
    assert seen == ["before", "end of before"]


@LOOPS
def test_error_of_a_job_tells_where_in_the_job_it_was_raised(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    def broken() -> None:
        raise ValueError("wrong")

    async def work() -> None:
        with pytest.raises(ValueError, match="wrong") as raised:
            await Workers().run(broken)
        assert "in broken" in "".join(traceback.format_exception(raised.value))

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work())
