"""A guard for background work on a log: an unforeseen error costs that work, never the node.

A value that a client or an operator chose, or bytes of ten years ago, can meet a mistake in the code that
compacts, scrubs, moves or retires one log. Were it to end the node, it would end every replica, and each of
them again at its next start. So such work runs in a guard: what it was about to do is left undone, the log
says so, and :attr:`LogWork.failures` counts it. What the process lacks for a while, descriptors or memory,
costs no more. An error of the disk keeps its meaning: it takes the log offline, or its directory out of use.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pykraft.broker.logs.log_dirs import is_of_the_process
from pykraft.log_store.interface import STORAGE_ERRORS, CorruptLogError
from pykraft.log_store.log.log import Log
from pykraft.runtime.clock import Clock
from pykraft.runtime.log_throttle import LogThrottle

logger = logging.getLogger(__name__)

StorageFailed = Callable[[Log, OSError | CorruptLogError], None]


def _nothing(error: Exception) -> None:
    """The work is tried again by itself."""


class LogWork:
    """``storage_failed`` is called with a log and an error of its files.

    ``failures``: how often each work has failed since the start, by its name.
    """

    def __init__(self, clock: Clock, storage_failed: StorageFailed) -> None:
        self._clock = clock
        self._storage_failed = storage_failed
        self._throttles: dict[str, LogThrottle] = {}
        self.failures: Counter[str] = Counter()

    @contextmanager
    def guarding(
        self, work: str, log: Log, on_failure: Callable[[Exception], None] = _nothing
    ) -> Iterator[None]:
        """Go on after the block, whatever fails in it. ``on_failure`` gets errors that are not the disk's."""
        try:
            yield
        except Exception as error:
            if isinstance(error, STORAGE_ERRORS) and not is_of_the_process(error):
                self._storage_failed(log, error)
            else:
                self.failed(work, log.name, error)
                on_failure(error)

    @contextmanager
    def guarding_all(self, work: str, where: str) -> Iterator[None]:
        """As :meth:`guarding`, for work on several logs at once; errors of the disk pass."""
        try:
            yield
        except Exception as error:
            if isinstance(error, STORAGE_ERRORS) and not is_of_the_process(error):
                raise
            self.failed(work, where, error)

    def failed(self, work: str, what: str, error: Exception) -> None:
        """An error that nobody has foreseen has ended some work on ``what``."""
        self.failures[work] += 1
        throttle = self._throttles.setdefault(work, LogThrottle(logger))
        now_s = self._clock.monotonic_ms() / 1000
        throttle.error(now_s, "%s: %s has failed and is left undone: %r", what, work, error, cause=error)
