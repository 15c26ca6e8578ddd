"""``pykraft`` with a profiler of processor time, for ``profile_requests.py``.

A timer of the process's own processor time interrupts it; what it runs then is counted. SIGUSR1 begins anew,
SIGUSR2 ends and writes the counts to the file that ``PYKRAFT_PROFILE`` names: a line for each stack,
innermost first, as ``path:function`` separated by ``;``, and its count. (A profiler from outside samples
time: where a system call wakes a client, that includes the time of the client.)
"""

import os
import signal
from collections import Counter
from types import FrameType

from pykraft.node.__main__ import main

INTERVAL_S = 0.002

counts: Counter[tuple[tuple[str, str], ...]] = Counter()


def count(_: int, frame: FrameType | None) -> None:
    stack = []
    while frame is not None:
        stack.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    counts[tuple(stack)] += 1


def begin(_: int, __: FrameType | None) -> None:
    counts.clear()
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)


def end(_: int, __: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    target = os.environ["PYKRAFT_PROFILE"]
    with open(f"{target}.new", "w", encoding="utf-8") as file:
        for stack, times in counts.items():
            file.write(";".join(f"{path}:{function}" for path, function in stack) + f" {times}\n")
    os.replace(f"{target}.new", target)


if __name__ == "__main__":
    signal.signal(signal.SIGPROF, count)
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    main()
