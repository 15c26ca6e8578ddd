"""The signals that stop a server: an interrupt, a request to terminate, and the end of its terminal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable


def handle_stop_signals(loop: asyncio.AbstractEventLoop, handle: Callable[[str], None]) -> None:
    """Call ``handle`` with the name of each such signal, on the loop."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A process started by nohup has SIGHUP ignored, and must continue without the terminal.
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, handle, number.name)
