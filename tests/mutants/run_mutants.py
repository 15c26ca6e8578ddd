"""Plants known bugs and counts how many the simulation finds: ``python tests/mutants/run_mutants.py``.

Each ``<suite>/*.patch`` is one bug, with a sentence on top that says which. It is applied to a temporary copy
of the package (the product has no switches for this), and the suite's checker runs against that copy. A patch
that no longer applies is a failure, and so is a copy without any bug that the checker complains about.
Prints ``killed/planted`` as its last line; exit code 0 only if every bug was found.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = Path(__file__).resolve().parent
TIMEOUT_S = 120


@dataclass(frozen=True)
class Suite:
    """``packages`` are copied; ``command`` must exit 1 and print ``marker`` when it finds a bug.

    ``seeds``: how many to try on a planted bug, and on a copy without one. ``directed``: what leaves out the
    schedules written by hand, if there are any.
    """

    packages: tuple[str, ...]
    command: tuple[str, ...]
    marker: str
    seeds: tuple[str, str] = ("200", "20")
    directed: tuple[str, ...] = ()


SUITES = {
    "quorum": Suite(
        ("jepsen_like", "kafka_protocol", "log_store", "quorum", "runtime"),
        ("-m", "pykraft.jepsen_like.sim.quorum", "--seeds"),
        "reproduce: ",
        directed=("--no-directed",),
    ),
    "quorum_nodes": Suite(
        ("jepsen_like", "kafka_protocol", "log_store", "quorum", "runtime"),
        ("-m", "pykraft.jepsen_like.sim.quorum_nodes", "--seeds"),
        "reproduce: ",
        seeds=("12", "2"),
    ),
}


class BrokenMutantError(Exception):
    """A patch that does not apply, or a run that ended in neither a verdict nor a violation."""


@contextmanager
def copied_package(suite: Suite) -> Iterator[Path]:
    """A directory to put on the path in which ``pykraft`` is a copy of the suite's packages."""
    with tempfile.TemporaryDirectory(prefix="pykraft-mutant-") as directory:
        package = Path(directory) / "pykraft"
        package.mkdir()
        shutil.copy(ROOT / "__init__.py", package)
        for name in suite.packages:
            shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
        yield Path(directory)


def apply(patch: Path, directory: Path) -> None:
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(directory)}
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", str(patch)],
        cwd=directory / "pykraft",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BrokenMutantError(f"{patch.name} does not apply: {done.stderr.strip()}")


def run(suite: Suite, directory: Path, seeds: str) -> str | None:
    """What the checker found, or None if it found nothing."""
    environment = {**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
    where = subprocess.run(
        [sys.executable, "-c", "import pykraft; print(pykraft.__file__)"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    if not where.stdout.startswith(str(directory)):
        raise BrokenMutantError(f"the copy is not what gets imported, but {where.stdout.strip()}")
    done = subprocess.run(
        [sys.executable, *suite.command, seeds],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0:
        return None
    if done.returncode != 1 or not lines or suite.marker not in lines[-1]:
        raise BrokenMutantError(f"exit code {done.returncode}: {done.stdout[-300:]}{done.stderr[-1000:]}")
    return lines[-1].partition(f"; {suite.marker}")[0]


def run_suite(suite: Suite, name: str, only: list[str], by_chance: bool) -> tuple[int, int]:
    """(killed, planted), printing a line for each bug."""
    if by_chance:
        suite = replace(suite, command=(*suite.command[:-1], *suite.directed, suite.command[-1]))
    with copied_package(suite) as directory:
        found = run(suite, directory, suite.seeds[1])
        if found is not None:
            raise BrokenMutantError(f"the checker complains without a planted bug: {found}")
    patches = [p for p in sorted((MUTANTS / name).glob("*.patch")) if not only or p.stem in only]
    killed = 0
    for patch in patches:
        began = perf_counter()
        with copied_package(suite) as directory:
            apply(patch, directory)
            found = run(suite, directory, suite.seeds[0])
        killed += found is not None
        verdict = "SURVIVED" if found is None else f"killed: {found}"
        print(f"{name}/{patch.stem} ({perf_counter() - began:.1f} s) {verdict[:160]}", flush=True)
    return killed, len(patches)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", choices=sorted(SUITES), action="append")
    parser.add_argument("--by-chance", action="store_true", help="without the schedules written by hand")
    parser.add_argument("only", nargs="*", help="names of patches; all if none is given")
    options = parser.parse_args(arguments)
    killed = planted = 0
    try:
        for name in options.suite or sorted(SUITES):
            counts = run_suite(SUITES[name], name, options.only, options.by_chance)
            killed += counts[0]
            planted += counts[1]
    except (BrokenMutantError, subprocess.TimeoutExpired) as error:
        print(f"broken: {error}")
        return 2
    print(f"{killed}/{planted} killed")
    return 0 if killed == planted else 1


if __name__ == "__main__":
    sys.exit(main())
