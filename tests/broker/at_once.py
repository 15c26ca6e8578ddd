"""The logs of a broker without an event loop: their coroutines are run to the end at once."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.log_opening import LogOpening
from pykraft.broker.logs.producers.jobs import ProducerJobs
from pykraft.runtime.tasks import Workers

T = TypeVar("T")


def now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never really waits."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("the coroutine waits")


class AtOnce(Workers):
    async def run(self, job: Callable[[], T]) -> T:
        return job()


class Producers(ProducerJobs):
    """``pauses`` counts how often other work would have had its turn."""

    pauses = 0

    async def pause(self) -> None:
        self.pauses += 1

    def write_soon(self) -> None:
        now(self.write_due())


class Opening(LogOpening):
    """Opens one directory after the other."""

    async def run_together(self, jobs: Sequence[Callable[[], None]]) -> None:
        for job in jobs:
            job()


class Logs(LogManager):
    """Never waits."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.producers.__class__ = Producers
        self.opening.__class__ = Opening

    def remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Leave the files of deleted segments to the next start."""
