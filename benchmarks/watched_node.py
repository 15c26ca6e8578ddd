"""``pykraft`` that watches its event loop and its heartbeats to the controller, for ``groups.py``.

SIGUSR1 begins to watch, SIGUSR2 ends it and writes what was seen to the file that ``PYKRAFT_WATCH`` names, as
JSON in ms: the longest turn of the loop (by the wall clock, and by the processor time of its thread), the
longest pause between two heartbeats and the longest wait for the answer to one. While nobody watches, the
node is the one that ships.
"""

import asyncio
import itertools
import json
import os
import signal
import time
from typing import Any

from ticker import Ticker, stall_figures

from pykraft.broker.membership.lifecycle_driver import LifecycleDriver
from pykraft.node import run
from pykraft.node.__main__ import main


class Watch:
    """Of the process; ``begin`` and ``end`` are called on the loop."""

    def __init__(self) -> None:
        self._ticker: Ticker | None = None
        self._heartbeats: list[tuple[float, float]] = []

    def begin(self) -> None:
        self._ticker = Ticker(asyncio.get_running_loop())
        self._heartbeats = self._heartbeats[-1:]

    def end(self) -> None:
        assert self._ticker is not None
        self._ticker.stop()
        beats = [*self._heartbeats, (time.monotonic(), 0.0)]
        pauses_s = [late - early for (early, _), (late, _) in itertools.pairwise(beats)]
        seen = stall_figures(self._ticker) | {
            "heartbeat_pause_ms": max(pauses_s, default=0.0) * 1000,
            "heartbeat_answer_ms": max(taken_s for _, taken_s in beats) * 1000,
        }
        target = os.environ["PYKRAFT_WATCH"]
        with open(f"{target}.new", "w", encoding="utf-8") as file:
            json.dump(seen, file)
        os.replace(f"{target}.new", target)

    def note_heartbeat(self, began_s: float) -> None:
        self._heartbeats.append((began_s, time.monotonic() - began_s))


watch = Watch()
_heartbeat = LifecycleDriver._heartbeat
_serve = run._serve


async def heartbeat(driver: LifecycleDriver) -> None:
    began_s = time.monotonic()
    await _heartbeat(driver)
    watch.note_heartbeat(began_s)


async def serve(*arguments: Any) -> int:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, watch.begin)
    loop.add_signal_handler(signal.SIGUSR2, watch.end)
    return await _serve(*arguments)


if __name__ == "__main__":
    LifecycleDriver._heartbeat = heartbeat  # type: ignore[assignment,method-assign]
    run._serve = serve  # type: ignore[assignment]
    main()
