"""The end of a process that writes nothing more, and of the power."""

import random

from pykraft.broker.logs.log_manager import LogManager


def abandon(logs: LogManager) -> None:
    """Release the files of all logs as they are, as ``kill -9`` does."""
    for opened in logs.logs.values():
        opened.log.abandon()


class EverythingIsLost(random.Random):
    """Of a power loss: nothing survives that was not flushed."""

    def random(self) -> float:
        return 0.75

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]
        return 0
