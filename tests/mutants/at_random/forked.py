"""A pytest session that collects once and then runs chosen tests in forked children.

Importing and collecting takes most of the time of a short run of tests. A child has all of it, changes what
it likes (:mod:`.in_memory`), runs some tests, reports what its function returns, and is gone.
"""

import gc
import os
import pickle
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.mutants.at_random.coverage_map import ROOT

NOT_HERE = "not interop and not spark"
"""Tests that need what a busy machine has no time for: other programs, a Java virtual machine."""
PROFILE = "mutants"
_PROFILE_VARIABLE = "HYPOTHESIS_PROFILE"
WALL_LIMIT_S = 180
"""Of a phase of a test. What waits in vain, waits so long."""
MEMORY_BYTES = 4 << 30
"""What a child may take beside what it has inherited."""
_POLL_S = 0.005
_DOING = "doing"

settings.register_profile(
    PROFILE,
    derandomize=True,
    database=None,
    deadline=None,
    phases=(Phase.explicit, Phase.generate, Phase.target),
)
"""As the tests are run everywhere, but a failure is not reduced."""


@dataclass(slots=True)
class Job:
    """``run`` is called in a child with the session; ``done`` with what it returned, or why there is nothing.

    ``limit_s``: real time.
    """

    run: "Callable[[Collected], Any]"
    done: Callable[[Any], None]
    limit_s: float


@dataclass(frozen=True, slots=True)
class Lost:
    """In place of a result: the child ended without one; ``doing``: what it had said last."""

    why: str
    doing: str | None


@dataclass(slots=True)
class Collected:
    """The items of a session by their names, and what the reports of those that run say."""

    items: dict[str, pytest.Item]
    failures: list[str] = field(default_factory=list)
    doing: Path | None = None
    """In a child: the file that says so."""

    def does(self, what: str) -> None:
        """Known to the parent, also if this process does not survive it."""
        if self.doing is not None:
            self.doing.write_text(what, encoding="utf-8")

    def run(
        self, items: Sequence[pytest.Item], before: Callable[[pytest.Item], None] = lambda item: None
    ) -> Iterator[tuple[pytest.Item, str | None]]:
        """Each with its failure, or None; ``before`` is called before each."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            self.failures.clear()
            before(item)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield item, self.failures[0] if self.failures else None


class ForkedSession:
    """The plugin: the jobs are asked for when everything has been collected, and run ``processes`` at a time.

    What a job does when it is done may add others.
    """

    def __init__(self, jobs: Callable[[Collected], deque[Job]], processes: int) -> None:
        self._jobs = jobs
        self._processes = processes
        self._collected = Collected({})

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._collected.items = {item.nodeid: item for item in session.items}
        jobs = self._jobs(self._collected)
        gc.collect()
        gc.freeze()  # what children do not touch stays shared
        run_jobs(jobs, self._collected, self._processes)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        os.environ.pop(_PROFILE_VARIABLE)  # it has been read, and processes that tests start know no such one

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._collected.failures.append(f"{report.when}: {report.longreprtext[-2000:]}")


def run_session(test_files: Sequence[str], jobs: Callable[[Collected], deque[Job]], processes: int) -> None:
    """Collect these files (below the root) and run the jobs. Ends the process if that is not possible."""
    os.environ[_PROFILE_VARIABLE] = PROFILE
    options = ["-q", "-p", "no:cacheprovider", "--capture=sys", "--no-header", "-m", NOT_HERE]
    limits = ["-o", f"wall_limit_s={WALL_LIMIT_S}"]
    files = [str(ROOT / name) for name in test_files]
    code = pytest.main(
        [*options, *limits, f"--rootdir={ROOT}", *files], plugins=[ForkedSession(jobs, processes)]
    )
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        sys.exit(f"pytest could not collect the tests: {code!r}")


@dataclass(slots=True)
class _Child:
    pid: int
    job: Job
    result: Path
    home: Path
    end_s: float


def run_jobs(jobs: deque[Job], collected: Collected, processes: int) -> None:
    running: list[_Child] = []
    try:
        while jobs or running:
            while jobs and len(running) < processes:
                running.append(_start(jobs.popleft(), collected))
            for child in list(running):
                if _has_ended(child):
                    running.remove(child)
                    _finish(child)
            sleep(_POLL_S)
    finally:
        for child in running:
            _kill(child)
            os.waitpid(child.pid, 0)


def _start(job: Job, collected: Collected) -> _Child:
    home = Path(tempfile.mkdtemp(prefix="pykraft-mutants-"))
    result = home / "result"
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _be_child(job, collected, home, result)
    return _Child(pid, job, result, home, monotonic() + job.limit_s)


def _be_child(job: Job, collected: Collected, home: Path, result: Path) -> None:
    code = 1
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nowhere, number)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = os.environ["TMPDIR"] = tempfile.tempdir = str(home)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))
        try:
            collected.doing = home / _DOING
            answer = job.run(collected)
        except BaseException:
            answer = Lost(traceback.format_exc(), None)
        result.write_bytes(pickle.dumps(answer))
        code = 0
    finally:
        os._exit(code)


def _has_ended(child: _Child) -> bool:
    if monotonic() > child.end_s:
        _kill(child)
        os.waitpid(child.pid, 0)
        return True
    return os.waitpid(child.pid, os.WNOHANG)[0] == child.pid


def _finish(child: _Child) -> None:
    _kill(child)  # what it has started and left behind
    late = monotonic() > child.end_s
    doing = child.home / _DOING
    answer: Any = Lost(
        f"more than {child.job.limit_s:g} s" if late else "the process ended",
        doing.read_text(encoding="utf-8") if doing.exists() else None,
    )
    if child.result.exists() and not late:
        answer = pickle.loads(child.result.read_bytes())
    shutil.rmtree(child.home, ignore_errors=True)
    child.job.done(answer)


def _kill(child: _Child) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
