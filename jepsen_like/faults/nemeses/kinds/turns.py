"""Faults that begin and end again and again until they are repaired."""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from pykraft.jepsen_like.faults.nemeses.kind import Repair


def in_turns(begin: Callable[[], Repair], lasts_s: float, rests_s: float | None) -> Repair:
    """Begin and end in turns; begin once if it never rests (None). The repair raises their errors."""
    over = threading.Event()
    outcome: Future[None] = Future()

    def drive(end: Repair) -> None:
        try:
            over.wait(lasts_s)
            end()
            while not over.wait(rests_s):
                end = begin()
                over.wait(lasts_s)
                end()
        except Exception as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(None)

    threading.Thread(target=drive, args=(begin(),), name="in turns", daemon=True).start()

    def stop() -> None:
        over.set()
        outcome.result()

    return stop
