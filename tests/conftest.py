"""Every test has two limits. A test that exceeds one fails and shows what was running; the process continues.

``cpu_limit_s`` is processor time of the test's own process, so that a machine that is busy with something
else fails no test. ``wall_limit_s`` is real time and ends a test that hangs; it is so long that a test that
makes progress never reaches it, however many other processes want the processor. Both apply to setup, call
and teardown separately. A test that never returns to Python is ended by pytest's own
``faulthandler_timeout``, which prints the stacks.

A test may be a coroutine: :mod:`tests.asynchronous` runs it.

Hypothesis draws the same examples in every run, so that a test means the same everywhere. The profile "hunt"
(``HYPOTHESIS_PROFILE=hunt``) draws others each time; what it finds becomes an ``@example``.

``tests/slow_tests.txt`` lists what ``make check`` leaves to ``make test``, ``tests/long_tests.py`` what that
leaves to ``make test-long``. Where several processes share the tests, the slowest files begin first.
"""

import asyncio
import inspect
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import settings

from pykraft.compiled import form
from tests import asynchronous
from tests.long_tests import is_long
from tests.timings import begin_first, slow_tests

settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("hunt", database=None, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

_AGAIN_S = 30.0
"""An event loop swallows a failure raised in a callback and may then sleep, so it is raised again,
this long after the first in wall time.
"""


def pytest_configure(config: pytest.Config) -> None:
    if form() == "compiled":
        config.option.tbstyle = "native"  # others read the frames of compiled functions, which have no code
    config.addinivalue_line("markers", "loop(new): the event loop of this test (asynchronous.py)")
    config.addinivalue_line("markers", "world(**options): of the world of this test (asynchronous.py)")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asynchronous.run(pyfuncitem)
    return True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("cpu_limit_s", "Processor time of one phase of a test", default="0")
    parser.addini("wall_limit_s", "Real time of one phase of a test", default="0")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow = slow_tests()
    for item in items:
        file, _, test = item.nodeid.partition("::")
        if is_long(f"{file.removeprefix('tests/')}::{test}"):
            item.add_marker(pytest.mark.long)
        if f"{file}::{test.partition('[')[0]}" in slow:
            item.add_marker(pytest.mark.slow)
    if hasattr(config, "workerinput"):
        place = {file: number for number, file in enumerate(begin_first())}
        items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _limited(item, "setup"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _limited(item, "call"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    return (yield from _limited(item, "teardown"))


def _limited(item: pytest.Item, phase: str) -> Generator[None, object, object]:
    where, config = f"{phase} of {item.nodeid}", item.config
    try:
        cpu_s, wall_s = (float(config.getini(name)) for name in ("cpu_limit_s", "wall_limit_s"))
        _limit(signal.SIGPROF, signal.ITIMER_PROF, cpu_s, f"{where}: more than {cpu_s:g} s of processor time")
        _limit(signal.SIGALRM, signal.ITIMER_REAL, wall_s, f"{where}: more than {wall_s:g} s of real time")
        return (yield)
    finally:
        for number, timer in ((signal.SIGPROF, signal.ITIMER_PROF), (signal.SIGALRM, signal.ITIMER_REAL)):
            signal.setitimer(timer, 0)
            signal.signal(number, signal.SIG_DFL)


def _limit(number: signal.Signals, timer: int, limit_s: float, message: str) -> None:
    def expire(_: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGALRM, expire)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
        pytest.fail(f"{message}\n{_what_runs(frame)}", pytrace=False)

    signal.signal(number, expire)
    signal.setitimer(timer, limit_s)


def _what_runs(frame: FrameType | None) -> str:
    """The stacks of all threads and tasks, and the command lines of child processes."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames() | {threading.get_ident(): frame}
    parts = [
        f"--- thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(stack))}"
        for ident, stack in frames.items()
        if stack is not None
    ]
    loop = asyncio._get_running_loop()
    for task in () if loop is None else asyncio.all_tasks(loop):
        stacks = [line for one in task.get_stack() for line in traceback.format_stack(one)[-1:]]
        parts.append(f"--- task {task.get_name()} {task.get_coro()}\n{''.join(stacks)}")
    return "\n".join([*parts, *_children()])


def _children() -> list[str]:
    found = []
    for listed in Path("/proc/self/task").glob("*/children"):
        for pid in listed.read_text().split():
            try:
                command = (
                    Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue  # the process has just ended
            found.append(f"--- child {pid}: {command}")
    return found
