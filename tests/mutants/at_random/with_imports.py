"""Tries mutants of what runs when it is imported: in a copy of the package, with a process for the tests.

There is no line that a test must execute. Those that may find such a bug execute a line that uses the name it
changes, anywhere in the product, or else any function of its file.
"""

import ast
import re
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from subprocess import TimeoutExpired

from tests.mutants.at_random.coverage_map import ROOT, CoverageMap, MeasuredTest
from tests.mutants.at_random.drawing import PRODUCT, sources
from tests.mutants.at_random.forked import WALL_LIMIT_S
from tests.mutants.at_random.mutant import Mutant
from tests.mutants.at_random.schedules import FILE, SCHEDULES
from tests.mutants.at_random.trying import Attempt, Found
from tests.mutants.run_mutants import Copy
from tests.mutants.suites import PYTEST

TIMEOUT_S = 1200
TESTS_AT_A_TIME = 400


def tests_that_use(mutant: Mutant, known: CoverageMap) -> tuple[MeasuredTest, ...]:
    """The fastest first."""
    name = _bound_name(mutant)
    lines = _lines_with(name) if name is not None else {}
    found = {test.name: test for path, at in lines.items() for test in known.covering(path, at)}
    if not found:
        found = {test.name: test for test in known.covering(mutant.path, _lines_of_functions(mutant))}
    return tuple(sorted(found.values(), key=lambda test: (test.cpu_s, test.name)))


def try_with_imports(
    attempts: Sequence[Attempt], budget_s: float, processes: int, tell: Callable[[Mutant, Found], None]
) -> None:
    """As :func:`.trying.try_in_memory`, but the fastest tests that fit into the budget are run as one."""
    if not attempts:
        return
    with ExitStack() as stack:
        idle: SimpleQueue[Copy] = SimpleQueue()
        for _ in range(min(processes, len(attempts))):
            idle.put(Copy(stack.enter_context(tempfile.TemporaryDirectory(prefix="pykraft-mutants-"))))

        def try_one(attempt: Attempt) -> Found:
            copy = idle.get()
            try:
                return _try(copy, attempt, budget_s)
            finally:
                idle.put(copy)

        pool = stack.enter_context(ThreadPoolExecutor(processes))
        for attempt, found in zip(attempts, pool.map(try_one, attempts), strict=True):
            tell(attempt.mutant, found)


def _try(copy: Copy, attempt: Attempt, budget_s: float) -> Found:
    path = attempt.mutant.path
    changed = attempt.mutant.apply((ROOT / path).read_bytes())
    names = _affordable(attempt.tests, budget_s)
    while True:
        with copy.changed(path, changed):
            found = _first_failure(copy, names)
        if found is None:
            return Found(None, f"{len(names)} of {len(attempt.tests)} tests passed")
        if found.by not in names or _first_failure(copy, [found.by]) is None:
            return found
        names.remove(found.by)  # it fails anyway


def _affordable(tests: Sequence[MeasuredTest], budget_s: float) -> list[str]:
    """The names of the first, and those of all schedules."""
    names = []
    for test in tests:
        if test.shard == FILE or budget_s > 0:
            names.append(test.name)
            budget_s -= test.cpu_s
    return names


def _first_failure(copy: Copy, names: Sequence[str]) -> Found | None:
    tests = [name for name in names if name not in SCHEDULES]
    for first in range(0, len(tests), TESTS_AT_A_TIME):
        if found := _failing_test(copy, tests[first : first + TESTS_AT_A_TIME]):
            return found
    for name in names:
        if name in SCHEDULES:
            done = copy.run(tuple(name.split()[1:]), TIMEOUT_S)
            if done.returncode != 0:
                return Found(name, done.stdout[-500:])
    return None


def _failing_test(copy: Copy, tests: Sequence[str]) -> Found | None:
    """A test that has gone since it was measured is passed over."""
    limit = ("-o", f"wall_limit_s={WALL_LIMIT_S}")
    try:
        done = copy.run((*PYTEST, *limit, *(str(ROOT / name) for name in sorted(tests))), TIMEOUT_S)
    except TimeoutExpired:
        return Found(tests[0], f"the {len(tests)} tests from here on took more than {TIMEOUT_S} s")
    said = done.stdout + done.stderr
    gone = set(re.findall(rf"^ERROR: not found: {re.escape(str(ROOT))}/(.+)$", said, re.M))
    if left := [name for name in tests if name not in gone]:
        if gone:
            return _failing_test(copy, left)
        if done.returncode != 0:
            failed = re.search(r"^(?:FAILED|ERROR) (?:\S*/)?(tests/.+?)(?: - .*)?$", said, re.M)
            return Found(failed[1] if failed else tests[0], said[-500:])
    return None


def _bound_name(mutant: Mutant) -> str | None:
    """Of the statement at the level of a module or class that is changed, if it gives a name to something."""
    tree = ast.parse((ROOT / mutant.path).read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno <= mutant.lines[0] <= (
            node.end_lineno or 0
        ):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            return target.id if isinstance(target, ast.Name) else None
    return None


def _lines_with(name: str) -> dict[str, list[int]]:
    """Of each source of the product, those with this word."""
    word = re.compile(rf"\b{name}\b".encode())
    texts = {path: (ROOT / path).read_bytes().splitlines() for path in sources(PRODUCT)}
    return {
        path: [number for number, line in enumerate(text, 1) if word.search(line)]
        for path, text in texts.items()
    }


def _lines_of_functions(mutant: Mutant) -> list[int]:
    tree = ast.parse((ROOT / mutant.path).read_bytes())
    inner = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        line for node in inner for line in range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)
    ]
