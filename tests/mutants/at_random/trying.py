"""Tries mutants in memory, one child for each: the tests that execute the line, the fastest first.

The first failure ends it, and so does a test that takes many times as long as without the bug, or ends the
process. A test counts only if it passes without any bug: each that has found one is run again so.
"""

import resource
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import process_time
from typing import Any

from tests.mutants.at_random.coverage_map import ROOT, MeasuredTest
from tests.mutants.at_random.forked import Collected, Job, Lost, run_session
from tests.mutants.at_random.in_memory import Functions
from tests.mutants.at_random.mutant import Mutant
from tests.mutants.at_random.schedules import FILE, SCHEDULES

LEAST_LIMIT_S = 10
"""Processor time of a test whose usual time is short."""
TIMES_AS_LONG = 5
LIMIT_S = 3600.0
NOT_IN_MEMORY = "it runs when it is imported"


@dataclass(frozen=True, slots=True)
class Attempt:
    """``tests``: those that may find it, in this order."""

    mutant: Mutant
    tests: tuple[MeasuredTest, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """``by``: the test that failed, or None: ``why``."""

    by: str | None
    why: str


def try_in_memory(
    attempts: Sequence[Attempt], budget_s: float, processes: int, tell: Callable[[Mutant, Found], None]
) -> None:
    """``budget_s``: processor time for the tests of one mutant, after which no other is begun."""
    if attempts:
        test_files = sorted({test.shard for each in attempts for test in each.tests} - {FILE})
        run_session(
            test_files, lambda collected: _Session(collected, attempts, budget_s, tell).jobs, processes
        )


class _Session:
    """``jobs`` grows by what the first results ask for."""

    def __init__(
        self,
        collected: Collected,
        attempts: Sequence[Attempt],
        budget_s: float,
        tell: Callable[[Mutant, Found], None],
    ) -> None:
        self._functions = Functions({each.mutant.path for each in attempts})
        self._sources = {path: (ROOT / path).read_bytes() for path in {each.mutant.path for each in attempts}}
        self._budget_s = budget_s
        self._tell = tell
        self._fails_anyway: dict[str, bool] = {}
        self.jobs = deque(self._job(each, collected) for each in attempts)

    def _job(self, attempt: Attempt, collected: Collected) -> Job:
        known = [test for test in attempt.tests if test.name in collected.items or test.name in SCHEDULES]
        attempt = replace(attempt, tests=tuple(known))
        return Job(partial(self._run, attempt=attempt), partial(self._judge, attempt, collected), LIMIT_S)

    def _run(self, collected: Collected, attempt: Attempt) -> Found:
        if not self._functions.plant(attempt.mutant, self._sources[attempt.mutant.path]):
            return Found(None, NOT_IN_MEMORY)
        began_s = process_time()
        for number, test in enumerate(attempt.tests):
            if process_time() - began_s > self._budget_s:
                left = len(attempt.tests) - number
                return Found(None, f"the first {number} tests passed; no time for {left} others")
            failure = run_one(collected, test)
            if failure is not None:
                return Found(test.name, failure)
        return Found(None, f"all {len(attempt.tests)} tests passed")

    def _judge(self, attempt: Attempt, collected: Collected, answer: Any) -> None:
        found = answer
        if isinstance(answer, Lost):
            found = Found(answer.doing, answer.why)
        if found.by is None or self._fails_anyway.get(found.by) is False:
            self._tell(attempt.mutant, found)
        elif self._fails_anyway.get(found.by):
            rest = tuple(test for test in attempt.tests if test.name != found.by)
            self.jobs.append(self._job(replace(attempt, tests=rest), collected))
        else:
            self._check(attempt, collected, found)

    def _check(self, attempt: Attempt, collected: Collected, found: Found) -> None:
        """Whether the test that failed passes without a bug."""
        test = next(test for test in attempt.tests if test.name == found.by)

        def judge(failure: Any) -> None:
            self._fails_anyway[test.name] = failure is not None
            self._judge(attempt, collected, found)

        self.jobs.appendleft(Job(partial(run_one, test=test), judge, LIMIT_S))


def run_one(collected: Collected, test: MeasuredTest) -> str | None:
    """Why it failed, or None. Ends the process if it takes far too long."""
    collected.does(test.name)
    limit_s = int(process_time() + max(LEAST_LIMIT_S, TIMES_AS_LONG * test.cpu_s)) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))
    if test.name in SCHEDULES:
        return SCHEDULES[test.name].run()
    (_, failure), *_ = collected.run([collected.items[test.name]])
    return failure
