"""How a command is stopped from outside, and the status that it then ends with: that of a process that the signal
has ended, which is also what Java's tools end with.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType


class _Terminated(KeyboardInterrupt):
    """SIGTERM."""


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    with ExitStack() as handlers:
        handlers.callback(signal.signal, signal.SIGTERM, signal.signal(signal.SIGTERM, interrupt))
        yield


def exit_status(interrupt: KeyboardInterrupt) -> int:
    return 128 + (signal.SIGTERM if isinstance(interrupt, _Terminated) else signal.SIGINT)


class StopRequest:
    """A signal that :func:`stop_request` has noted."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    @property
    def exit_status(self) -> int:
        """0 without a signal."""
        return 0 if self.signal is None else 128 + self.signal


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """SIGINT and SIGTERM are only noted, for a loop that ends between two steps."""
    request = StopRequest()
    with ExitStack() as handlers:
        for number in (signal.SIGINT, signal.SIGTERM):
            handlers.callback(signal.signal, number, signal.signal(number, request.note))
        yield request
