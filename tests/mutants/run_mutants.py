"""Plants known bugs and counts how many the simulation finds: ``python -m tests.mutants.run_mutants``.

Each ``<suite>/*.patch`` is one bug of a suite of :mod:`.suites`. Its first line describes the bug; a second
line names its killer, which is tried first: a test, the seed or the name of a schedule of a ring, or the
options of a fault run on real processes. ``--name-killers`` writes the names that are missing or wrong. A
patch is applied to a temporary copy of the package (the product has no switches for this), and the suite's
checker runs against that copy. A patch that no longer applies is a failure, and so is a finding in a copy
without a bug. At the end it prints for each package of the product how many bugs were found by simulation
(``SIMULATIONS`` of :mod:`.suites` and the rings), by unit tests and on real processes, and ``killed/planted``
as its last line. With ``--by-simulation`` only simulations are tried, and survivors are only counted.

The bugs of the suite ``processes`` are in what simulations and unit tests replace. Real processes look for
them, which takes minutes, so it is left out unless it, or one of its patches, is named.

``--share 3 --draw TEXT`` tries a third of them, another third for another text. ``--changed COMMIT`` tries
those that what has changed since then can touch, and a tenth that is always the same (:func:`chosen_for`).

One that survives everything is tried twice more by its killer, with other hashes; if that finds it, it says
so at the end, since such a killer depends on chance.

Exit code 0 only if at least 95 % were found and docs/reliability.md explains each survivor by its name; 2 if
a patch no longer applies.

It is long because copies, killers, verdicts and options are one run.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter

from tests.mutants.suites import (
    FAULT_RUN,
    FAULT_RUN_CLEAN,
    FAULT_RUN_MARKER,
    NAMED_TEST_LIMIT,
    PYTEST,
    RING_1,
    RING_2,
    RING_2_MARKER,
    ROOT,
    SIMULATIONS,
    SUITES,
    Suite,
)

MUTANTS = Path(__file__).resolve().parent
EXPLAINED = ROOT / "docs" / "reliability.md"
LEAST_KILLED = 0.95
FIRST_CHANGE_S = 2_000_000_000
"""A time of change that no source has."""
TIMEOUT_S = 600
TIMEOUT_ON_PROCESSES_S = 1200
"""A fault run whose cluster never works again waits long for that."""
MOST_CHOSEN = 250
"""Of what ``--changed`` chooses: after a move of whole packages that would be nearly all of them."""
SCHEDULES_OF_WHOLE_NODES = "8"
"""Tried with ``--by-simulation``."""


PACKAGES = (
    *("broker", "configuration", "coordinator", "group_coordinator", "jepsen_like", "kafka_client"),
    *("kafka_protocol", "log_store", "metadata_log", "node", "quorum", "regex", "runtime", "spark"),
    *("packaging", "testing", "transaction_coordinator"),
)
PYTEST_PATH = " ".join(str(ROOT / name) for name in ("benchmarks", "examples"))
"""As ``pythonpath`` of the project, but for what is in the copy."""


class BrokenMutantError(Exception):
    """A patch that does not apply, or a run that ended in neither a verdict nor a violation."""


class Copy:
    """A copy of the package in a directory to put on the path, in which one bug after the other is planted.

    Its bytecode is kept, so that only what a patch changes is compiled again.
    """

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory).resolve()
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": str(self.directory),
            "PYTHONPYCACHEPREFIX": str(self.directory / "bytecode"),
        }
        self._package = self.directory / "pykraft"
        path = f"{PYTEST_PATH} {self._package / 'packaging'}"
        self.environment["PYTEST_ADDOPTS"] = f"-o pythonpath='{path}'"
        self._package.mkdir()
        for file in ROOT.glob("*.py"):
            shutil.copy2(file, self._package)
        for name in PACKAGES:
            shutil.copytree(ROOT / name, self._package / name, ignore=shutil.ignore_patterns("__pycache__"))
        self._patches = count(1)
        self._hash_seed = self.environment.get("PYTHONHASHSEED", "random")
        where = self.run(("-c", "import pykraft; print(pykraft.__file__)"), TIMEOUT_S)
        if not where.stdout.startswith(str(self._package)):
            raise BrokenMutantError(f"the copy is not what gets imported, but {where.stdout}{where.stderr}")

    def run(self, arguments: tuple[str, ...], timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Of Python, in a working directory of its own."""
        with tempfile.TemporaryDirectory(dir=self.directory) as working_directory:
            return subprocess.run(
                [sys.executable, *arguments],
                cwd=working_directory,
                env=self.environment | {"PYTHONHASHSEED": self._hash_seed},
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )

    @contextmanager
    def hashing(self, seed: str) -> Iterator[None]:
        """Runs see sets of strings in the order of this seed."""
        before, self._hash_seed = self._hash_seed, seed
        try:
            yield
        finally:
            self._hash_seed = before

    @contextmanager
    def planted(self, patch: Path | None) -> Iterator[None]:
        """With this bug; afterwards as without it."""
        files = changed_files(patch) if patch else []
        try:
            if patch:
                self._apply(patch)
                self._outdate(*files)
            yield
        finally:
            for file in files:
                shutil.copy2(ROOT / file, self._package / file)

    @contextmanager
    def changed(self, file: str, content: bytes) -> Iterator[None]:
        """With this in place of a file (below the package)."""
        path = self._package / file
        try:
            path.write_bytes(content)
            self._outdate(file)
            yield
        finally:
            shutil.copy2(ROOT / file, path)

    def _outdate(self, *files: str) -> None:
        """Bytecode is known to be stale by the time of its source, in seconds."""
        changed_s = FIRST_CHANGE_S + next(self._patches)
        for file in files:
            os.utime(self._package / file, (changed_s, changed_s))

    def _apply(self, patch: Path) -> None:
        done = subprocess.run(
            ["git", "apply", "--whitespace=nowarn", str(patch)],
            cwd=self._package,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(self.directory)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BrokenMutantError(f"{patch.name} does not apply: {done.stderr.strip()}")


def changed_files(patch: Path) -> list[str]:
    """Below the package. A patch neither adds nor removes any."""
    return re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(encoding="utf-8"), re.M)


def run(suite: Suite, copy: Copy, seeds: str) -> str | None:
    """What the checker found, or None if it found nothing."""
    return check(suite, copy, (*suite.command, seeds))


def named_by(patch: Path) -> str | None:
    """What a patch names to try first."""
    named = re.search(r"^Found by (.*)\.$", patch.read_text(encoding="utf-8").partition("\n--- ")[0], re.M)
    return named[1] if named else None


def named_schedule(patch: Path) -> tuple[str, ...] | None:
    """The command that runs the schedule of a ring that a patch names."""
    named = named_by(patch) or ""
    if directed := re.fullmatch(r"schedule ([\w-]+) of ring 1", named):
        return (*RING_1, "--directed", directed[1])
    if (seed := re.fullmatch(r"seed (\d+) of ring ([12]|quorum_nodes)(?: with (\w+))?", named)) is None:
        return None
    number, ring, workload = seed.groups()
    if ring == "2":
        return (*RING_2, "--seed", number, *(("--workload", workload) if workload else ()))
    suite = SUITES["quorum" if ring == "1" else "quorum_nodes"]
    return (*suite.command, "1", "--first", number, *suite.directed)


def run_schedule(suite: Suite, copy: Copy, command: tuple[str, ...]) -> str | None:
    return check(replace(suite, marker=RING_2_MARKER), copy, command)


def run_first(suite: Suite, copy: Copy, patch: Path) -> str | None:
    """What the killer that a patch names found; None if it names none, or that finds nothing."""
    named = named_by(patch)
    if named is None:
        return None
    if schedule := named_schedule(patch):
        return run_schedule(suite, copy, schedule)
    return run_named(suite, copy, named)


def run_again(suite: Suite, copy: Copy, patch: Path) -> str | None:
    """What the killer finds that has found nothing."""
    for seed in ("1", "2"):
        with copy.hashing(seed):
            if found := run_first(suite, copy, patch):
                return found
    return None


def killer_of(suite: str, found: str) -> str:
    """How a patch names what has found its bug."""
    if test := re.search(r"FAILED \S*?(tests/[^:]+::[^\[ ]+(?:\[.*?\](?= - |$))?)", found):
        return test[1]
    name = found.partition(": ")[0]
    match suite:
        case "quorum":
            return f"{name if name.startswith('seed ') else f'schedule {name}'} of ring 1"
        case "quorum_nodes":
            return f"{name} of ring quorum_nodes"
        case _:
            return f"{name} of ring 2{' with transactions' if suite == 'transactions' else ''}"


def write_killer(patch: Path, killer: str) -> None:
    """The second line of the patch."""
    head, _, diff = patch.read_text(encoding="utf-8").partition("\n--- ")
    head = re.sub(r"^Found by .*\.\n", "", head, flags=re.M).rstrip("\n")
    patch.write_text(f"{head}\nFound by {killer}.\n\n--- {diff}", encoding="utf-8")


def run_named(suite: Suite, copy: Copy, named: str) -> str | None:
    """What a test, or a fault run with these options, found."""
    if options := re.fullmatch("a fault run: (.*)", named):
        finder = replace(suite, marker=FAULT_RUN_MARKER, clean=FAULT_RUN_CLEAN)
        return check(finder, copy, (*FAULT_RUN, *options[1].split()))
    path, _, test = named.partition("::")
    if not (ROOT / path).exists():
        return None
    limit, marker = ((), suite.marker) if suite.on_processes else (NAMED_TEST_LIMIT, "FAILED ")
    try:
        command = (*PYTEST, *limit, f"{ROOT / path}::{test}")
        return check(replace(suite, marker=marker), copy, command)
    except BrokenMutantError:  # the test no longer exists
        return None


def run_simulations(suite: Suite, copy: Copy) -> str | None:
    """What the simulations among a suite's tests found, then a few schedules of whole nodes."""
    found = None
    if suite.simulations:
        files = (str(ROOT / "tests" / path) for path in suite.simulations)
        found = check(suite, copy, (*PYTEST, *files))
    return found or check(
        replace(suite, marker=RING_2_MARKER), copy, (*RING_2, "--seeds", SCHEDULES_OF_WHOLE_NODES)
    )


def run_all_named(suite: Suite, copy: Copy, patches: list[Path]) -> str | None:
    """What the tests and runs that these patches name found, each tried once."""
    named = dict.fromkeys(filter(None, map(named_by, patches)))
    return next(filter(None, (run_named(suite, copy, one) for one in named)), None)


def is_simulation(found: str) -> bool:
    """Whether a test that is one, or a ring, has found it."""
    return "FAILED " not in found or any(f"tests/{path}::" in found for path in SIMULATIONS)


def check(suite: Suite, copy: Copy, command: tuple[str, ...]) -> str | None:
    done = copy.run(command, TIMEOUT_ON_PROCESSES_S if suite.on_processes else TIMEOUT_S)
    if done.returncode in suite.clean:
        return None
    found = [line for line in done.stdout.splitlines() if re.search(suite.marker, line)]
    if done.returncode != 1 or not found:
        raise BrokenMutantError(f"exit code {done.returncode}: {done.stdout[-300:]}{done.stderr[-1000:]}")
    return found[-1].strip().partition(f"; {suite.marker}")[0]


@dataclass(frozen=True)
class Verdict:
    """The outcome of one planted bug: ``found`` is None if it survived; ``broken``: why it is unknown.

    ``package``: the package of the product in which the bug is planted. ``on_processes``: as of its suite.
    ``killer``: what the patch should name, if it names something else; ``again``: whether only a further try
    found it.
    """

    name: str
    package: str
    on_processes: bool
    found: str | None
    broken: str | None
    wall_s: float
    killer: str | None = None
    again: bool = False

    def __str__(self) -> str:
        outcome = f"BROKEN: {self.broken}" if self.broken else f"killed: {self.found}"
        if not self.broken and self.found is None:
            outcome = "SURVIVED"
        return f"{self.name} ({self.wall_s:.1f} s) {outcome[:160]}"


def package_of(patch: Path | None) -> str:
    """The package of the product that a patch changes."""
    changed = re.search(r"^\+\+\+ b/(\w+)/", patch.read_text(encoding="utf-8"), re.M) if patch else None
    return changed[1] if changed else ""


def try_mutant(
    copy: Copy, suite: Suite, name: str, patch: Path | None, chosen: list[Path], *, by_simulation: bool
) -> Verdict:
    """Without a patch it is reversed: the checker, and what ``chosen`` name, must then find nothing."""
    began = perf_counter()
    label = f"{name}/{patch.stem if patch else 'no bug'}"
    found = broken = killer = None
    again = False
    try:
        with copy.planted(patch):
            if patch is not None:
                found = run_first(suite, copy, patch)
            else:
                named = {schedule for each in chosen if (schedule := named_schedule(each))}
                found = next(filter(None, (run_schedule(suite, copy, one) for one in sorted(named))), None)
                if suite.on_processes:
                    found = found or run_all_named(suite, copy, chosen)
            if by_simulation and patch is not None and suite.tests:
                if found is None or not is_simulation(found):
                    found = run_simulations(suite, copy)
            elif patch is None:
                found = found or (None if suite.on_processes else run(suite, copy, suite.seeds[1]))
            elif found is None:
                found = run(suite, copy, suite.seeds[0])
                killer = killer_of(name, found) if found else None
                if found is None:
                    found = run_again(suite, copy, patch)
                    again = found is not None
        if patch is None and found is not None:
            broken = f"the checker complains without a planted bug: {found}"
    except (BrokenMutantError, subprocess.TimeoutExpired) as error:
        broken = str(error)
    wall_s = perf_counter() - began
    return Verdict(label, package_of(patch), suite.on_processes, found, broken, wall_s, killer, again)


Job = tuple[Suite, str, Path | None, list[Path]]


def is_drawn(patch: Path, share: int, draw: str) -> bool:
    """Whether it is in the part of one in ``share`` that is drawn by ``draw``."""
    return _lot(patch, draw) % share == 0


def _lot(patch: Path, draw: str) -> int:
    return zlib.crc32(f"{draw}/{patch.parent.name}/{patch.stem}".encode())


def changed_since(commit: str) -> frozenset[str]:
    """Files that differ from a commit, or from the one before HEAD if it is HEAD itself or unknown."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    base = git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") if commit else ""
    if base in ("", git("rev-parse", "HEAD")):
        base = git("rev-parse", "--verify", "--quiet", "HEAD~1^{commit}")
    listed = f"{git('diff', '--name-only', base) if base else ''}\n" + git(
        "ls-files", "--others", "--exclude-standard"
    )
    return frozenset(filter(None, listed.splitlines()))


def is_touched(patch: Path, changed: frozenset[str]) -> bool:
    """Whether the patch, a file that it changes or the file of its killer has changed."""
    killer = (named_by(patch) or "").partition("::")[0]
    return not changed.isdisjoint([*changed_files(patch), str(patch.relative_to(ROOT)), killer])


def chosen_for(changed: frozenset[str], patches: list[Path], draw: str) -> tuple[set[Path], int]:
    """A fixed tenth and what is touched, :data:`MOST_CHOSEN` at most; how many were left out for that."""
    tenth = {patch for patch in patches if is_drawn(patch, 10, "the fixed tenth")}
    touched = [patch for patch in patches if patch not in tenth and is_touched(patch, changed)]
    touched.sort(key=lambda patch: _lot(patch, draw))
    taken = touched[: MOST_CHOSEN - len(tenth)]
    return tenth | set(taken), len(touched) - len(taken)


def jobs(suites: list[str], by_chance: bool, chosen: set[Path], seen_clean: set[str]) -> Iterator[Job]:
    """Arguments of :func:`try_mutant` after the first: for each suite without a bug first.

    ``seen_clean``: suites that need no such run.
    """
    for name in suites:
        suite = SUITES[name]
        if by_chance:
            suite = replace(suite, command=(*suite.command[:-1], *suite.directed, suite.command[-1]))
        here = sorted(patch for patch in chosen if patch.parent.name == name)
        if here and name not in seen_clean:
            yield suite, name, None, here
        yield from ((suite, name, patch, here) for patch in here)


def shares(planted: list[Verdict]) -> Iterator[str]:
    """How bugs were found, in each package and in all."""
    packages = sorted({verdict.package for verdict in planted})
    for package in (*packages, "all"):
        here = [verdict for verdict in planted if package in (verdict.package, "all")]
        ways = Counter(map(way, here))
        yield (
            f"{package}: by simulation: {ways['simulation']}, by unit tests: {ways['unit tests']},"
            f" on real processes: {ways['processes']}, survived: {ways['survived']}, of {len(here)}"
        )


def remarks(planted: list[Verdict]) -> Iterator[str]:
    """Killers that are to be repaired, a line each."""
    for verdict in planted:
        if verdict.killer:
            yield f"wrong killer: {verdict.name} was found by {verdict.killer}\n"
        if verdict.again:
            yield f"killer by chance: {verdict.name} was found only when tried again: {verdict.found}\n"


def choose(options: argparse.Namespace, suites: list[str]) -> tuple[set[Path], set[str]]:
    """Which bugs are tried, and in which suites nothing is tried without a bug."""
    patches = [patch for name in suites for patch in sorted((MUTANTS / name).glob("*.patch"))]
    if options.only:
        patches = [patch for patch in patches if patch.stem in options.only]
    if options.changed is None:
        return {it for it in patches if is_drawn(it, options.share, options.draw)}, set()
    changed = changed_since(options.changed)
    chosen, left_out = chosen_for(changed, patches, options.changed)
    print(
        f"{len(chosen)} of {len(patches)} planted bugs; {left_out} that were touched are left out", flush=True
    )
    # The tests of the others have just passed without a bug; one suite shows that they do in a copy.
    checked = {patch.parent.name for patch in chosen if is_touched(patch, changed)} or {min(suites)}
    # make sim has run the schedules of these.
    return chosen, set(suites) - checked | {"metadata", "transactions"}


def way(verdict: Verdict) -> str:
    """How a bug was found, if it was."""
    if verdict.found is None:
        return "survived"
    if verdict.on_processes:
        return "processes"
    return "simulation" if is_simulation(verdict.found) else "unit tests"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=sorted(SUITES), action="append")
    parser.add_argument("--by-chance", action="store_true", help="without the schedules written by hand")
    parser.add_argument("--by-simulation", action="store_true", help="without unit tests")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="mutants tried at a time")
    parser.add_argument("--share", type=int, default=1, help="only one bug in so many, drawn by --draw")
    parser.add_argument("--draw", default="", help="any text: another one draws others")
    parser.add_argument("--changed", metavar="COMMIT", help="what has changed since then, and a fixed tenth")
    parser.add_argument(
        "--name-killers", action="store_true", help="write what has found a bug into its patch"
    )
    parser.add_argument("only", nargs="*", help="names of patches; all if none is given")
    options = parser.parse_args(arguments)
    planted: list[Verdict] = []
    broken = 0
    with ExitStack() as stack:
        idle: SimpleQueue[Copy] = SimpleQueue()
        for _ in range(options.processes):
            idle.put(Copy(stack.enter_context(tempfile.TemporaryDirectory(prefix="pykraft-mutants-"))))

        def try_one(job: Job) -> Verdict:
            copy = idle.get()
            try:
                return try_mutant(copy, *job, by_simulation=options.by_simulation)
            finally:
                idle.put(copy)

        pool = stack.enter_context(ThreadPoolExecutor(options.processes))
        wanted = options.suite or [
            name for name, suite in sorted(SUITES.items()) if options.only or not suite.on_processes
        ]
        tried = list(jobs(wanted, options.by_chance, *choose(options, wanted)))
        verdicts = pool.map(try_one, tried)
        for (_, _, patch, _), verdict in zip(tried, verdicts, strict=True):
            broken += verdict.broken is not None
            if patch is not None:
                planted.append(verdict)
            if patch is not None or verdict.broken:
                print(verdict, flush=True)
            if patch is not None and verdict.killer and options.name_killers:
                write_killer(patch, verdict.killer)
    print(*shares(planted), sep="\n")
    killed = sum(verdict.found is not None for verdict in planted)
    if options.by_simulation:
        print(f"{killed}/{len(planted)} killed")
        return 2 if broken else 0
    print(*remarks(planted), sep="\n", end="")
    explained = EXPLAINED.read_text(encoding="utf-8")
    for verdict in planted:
        if verdict.found is None and not verdict.broken:
            known = f"`{verdict.name}`" in explained
            broken += not known
            print(
                f"survivor: {verdict.name}, {'explained' if known else 'not explained'} in {EXPLAINED.name}"
            )
    print(f"{killed}/{len(planted)} killed")
    if broken:
        return 2 if any(verdict.broken for verdict in planted) else 1
    return 0 if killed >= LEAST_KILLED * len(planted) else 1


if __name__ == "__main__":
    sys.exit(main())
