"""Signals during a run: SIGTERM unwinds it, the first Ctrl-C only ends its faults early."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class OrderlyTermination:
    """Turns SIGTERM into an exit that unwinds, so that no node outlives the run."""

    def __enter__(self) -> None:
        self._before = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._exit)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    @staticmethod
    def _exit(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)


@contextmanager
def early_end(end: Callable[[], None]) -> Iterator[threading.Event]:
    """Within it the first Ctrl-C sets the event and calls ``end``; the next one is a KeyboardInterrupt.

    ``end`` is called on a thread of its own: the main thread may hold any lock at that moment. Nothing is
    changed where Ctrl-C is ignored, or outside of the main thread.
    """
    asked = threading.Event()
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield asked
        return

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        asked.set()
        threading.Thread(target=end, name="early end", daemon=True).start()

    signal.signal(signal.SIGINT, handle)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
