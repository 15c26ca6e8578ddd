"""Ends a run whose process stands still, with the stacks of its threads.

librdkafka's Python binding calls it in a rebalance callback while it holds the interpreter's lock; when a
consumer that is being closed never answers that call, no other thread can do anything any more. So
the watch must not need the lock: a timer in C that a thread of Python winds up again and again.
"""

import faulthandler
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

AFTER_S: Final = 180.0
"""A loaded machine may take long to switch to a thread."""
_WIND_UP_S: Final = 5.0


@contextmanager
def no_standstill(after_s: float = AFTER_S, wind_up_s: float = _WIND_UP_S) -> Iterator[None]:
    """Within it the process ends with status 1 once it has stood still for ``after_s``. For one at a time,
    and not where pytest uses the same timer."""
    is_over = threading.Event()

    def wind_up() -> None:
        while not is_over.is_set():
            faulthandler.dump_traceback_later(after_s, exit=True, file=sys.__stderr__ or sys.stderr)
            is_over.wait(wind_up_s)

    winding = threading.Thread(target=wind_up, name="standstill", daemon=True)
    winding.start()
    try:
        yield
    finally:
        is_over.set()
        winding.join()
        faulthandler.cancel_dump_traceback_later()
