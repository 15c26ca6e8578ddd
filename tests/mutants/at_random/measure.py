"""Measures which lines each test executes, file by file, and keeps that in the map: ``make coverage-map``.

It takes about three times as long as the tests themselves, and continues where it was interrupted.
"""

import os
import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from tests.mutants.at_random.coverage_map import IMPORTS, ROOT, CoverageMap, MeasuredTest
from tests.mutants.at_random.drawing import PRODUCT
from tests.mutants.at_random.forked import Collected, Job, Lost, run_jobs, run_session
from tests.mutants.at_random.schedules import FILE, SCHEDULES

LIMIT_S = 3600.0
MEASURED = (*PRODUCT, "jepsen_like")
_STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec"})

Executed = dict[str, dict[str, list[int]]]


def measure(
    known: CoverageMap,
    test_files: Sequence[str],
    packages: Sequence[str],
    processes: int,
    say: Callable[[str], None],
) -> None:
    """All tests of these files that are not in the map."""
    missing = [name for name in test_files if not known.is_measured(name)]
    if missing:
        say(f"{len(missing)} of {len(test_files)} files of tests are to be measured")
        run_session(missing, lambda collected: _jobs(collected, known, missing, packages, say), processes)


def _jobs(
    collected: Collected,
    known: CoverageMap,
    test_files: Sequence[str],
    packages: Sequence[str],
    say: Callable[[str], None],
) -> deque[Job]:
    by_file: dict[str, list[pytest.Item]] = {name: [] for name in test_files}
    for item in collected.items.values():
        by_file[item.nodeid.partition("::")[0]].append(item)

    def keep(test_file: str, answer: Any) -> None:
        if isinstance(answer, Lost):
            say(f"{test_file}: {answer.why}")
            return
        tests, executed = answer
        known.write(test_file, tests, executed)
        failed = sum(not test.passed for test in tests)
        cpu_s = sum(test.cpu_s for test in tests)
        say(f"{test_file}: {len(tests)} tests, {cpu_s:.1f} s" + (f", {failed} failed" if failed else ""))

    return deque(
        Job(partial(_measure, items=items, packages=packages), partial(keep, test_file), LIMIT_S)
        for test_file, items in by_file.items()
    )


def _measure(
    collected: Collected, items: list[pytest.Item], packages: Sequence[str]
) -> tuple[list[MeasuredTest], Executed]:
    if not items:  # all are for Spark, or for other clients
        return [], {}
    started: list[str] = []
    sys.addaudithook(lambda event, _: started.append(event) if event in _STARTS else None)
    watched = _watch(packages)
    tests: list[MeasuredTest] = []
    watched.start()
    watched.switch_context("before")
    began_s = _cpu_s()
    for item, failure in collected.run(items, before=lambda item: watched.switch_context(item.nodeid)):
        ended_s = _cpu_s()
        test_file = item.nodeid.partition("::")[0]
        tests.append(MeasuredTest(item.nodeid, test_file, ended_s - began_s, failure is None, bool(started)))
        started.clear()
        began_s = ended_s
    watched.switch_context("after")
    watched.stop()
    return tests, _executed(watched.get_data(), {test.name for test in tests})


def measure_imports(known: CoverageMap, packages: Sequence[str]) -> None:
    if not known.is_measured(IMPORTS):
        command = [sys.executable, "-m", "tests.mutants.at_random.imports", str(known.directory), *packages]
        subprocess.run(command, cwd=ROOT, check=True)


def measure_schedules(
    known: CoverageMap, packages: Sequence[str], processes: int, say: Callable[[str], None]
) -> None:
    """Those of the simulation, one child for each."""
    if known.is_measured(FILE):
        return
    tests: list[MeasuredTest] = []
    executed: dict[str, dict[str, list[int]]] = defaultdict(dict)

    def keep(answer: Any) -> None:
        assert not isinstance(answer, Lost), answer.why
        test, lines = answer
        say(f"{test.name}: {test.cpu_s:.1f} s")
        tests.append(test)
        for source, by_test in lines.items():
            executed[source] |= by_test

    jobs = deque(
        Job(partial(_measure_schedule, name=name, packages=packages), keep, LIMIT_S) for name in SCHEDULES
    )
    run_jobs(jobs, Collected({}), processes)
    known.write(FILE, tests, executed)


def _measure_schedule(_: Collected, name: str, packages: Sequence[str]) -> tuple[MeasuredTest, Executed]:
    watched = _watch(packages)
    watched.start()
    watched.switch_context(name)
    began_s = _cpu_s()
    failure = SCHEDULES[name].run()
    test = MeasuredTest(name, FILE, _cpu_s() - began_s, failure is None, False)
    watched.stop()
    return test, _executed(watched.get_data(), {name})


def _watch(packages: Sequence[str]) -> Any:
    import coverage  # only to measure, which is done once

    sources = [str(ROOT / name) for name in packages]
    return coverage.Coverage(data_file=None, config_file=False, source=sources)


def _executed(data: Any, names: set[str]) -> Executed:
    found: Executed = {}
    for source in data.measured_files():
        by_test: dict[str, list[int]] = defaultdict(list)
        for line, contexts in data.contexts_by_lineno(source).items():
            for name in contexts:
                if name in names:
                    by_test[name].append(line)
        if by_test:
            found[str(Path(source).relative_to(ROOT))] = by_test
    return found


def _cpu_s() -> float:
    times = os.times()
    return process_time() + times.children_user + times.children_system
