"""Bugs that operators over the syntax tree make, drawn by a seed: ``python -m tests.mutants.at_random``.

``make mutants-random SEED=1 N=300 PACKAGES="quorum broker/replicas"``. Each mutant is tried with the tests
that execute its line, the fastest first (:mod:`.trying`), then with a few schedules of the simulation that
execute it. What survives is written down with its difference from the original, and is the list of what to
do: a test that finds it, or an entry in ``equivalents.toml`` with the reason why there can be none. Run it
again with ``--again`` to try the survivors of the same draw once more. The score is printed by package.

Which tests execute which lines is measured once (:mod:`.measure`), with ``--measure all``; later, tests that
have changed since are measured again if they are of the packages that are drawn over.
"""

import argparse
import os
import sys
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.mutants.at_random.coverage_map import DEFAULT, IMPORTS, ROOT, CoverageMap
from tests.mutants.at_random.drawing import PRODUCT, draw, find
from tests.mutants.at_random.measure import MEASURED, measure, measure_imports, measure_schedules
from tests.mutants.at_random.mutant import Mutant
from tests.mutants.at_random.results import Results, Verdict, read_equivalents, survivor, table
from tests.mutants.at_random.schedules import FILE
from tests.mutants.at_random.trying import NOT_IN_MEMORY, Attempt, Found, try_in_memory
from tests.mutants.at_random.with_imports import tests_that_use, try_with_imports

RESULTS = ROOT / "build" / "mutants-random"
NOT_COVERED = "no test executes it"


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    paths = options.paths or list(PRODUCT)
    known = CoverageMap(options.map)
    test_files = _test_files()
    _measure(known, test_files, paths, options)
    if not options.number:
        return 0
    name = f"{options.seed}-{zlib.crc32(' '.join(sorted(paths)).encode()):08x}"
    results = Results(RESULTS / f"{name}.jsonl")
    mutants = _drawn(results, paths, options)
    if options.list:
        print(
            *(f"{mutant.key} {mutant.path}:{mutant.lines[0]} {mutant.operator}" for mutant in mutants),
            sep="\n",
        )
        return 0
    _try(mutants, results, known, test_files, options)
    _report(mutants, results, RESULTS / f"{name}-survivors.md")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.at_random", description=__doc__)
    parser.add_argument(
        "paths", nargs="*", help="packages, folders and files to draw over; default: the product"
    )
    parser.add_argument("--seed", default="1", help="any text")
    parser.add_argument("--number", type=int, default=300, help="mutants; 0: only measure")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="mutants tried at a time")
    parser.add_argument(
        "--budget-s", type=float, default=120, help="processor time for the tests of a mutant"
    )
    parser.add_argument("--no-simulation", action="store_true", help="only unit tests")
    parser.add_argument("--again", action="store_true", help="the survivors of this draw once more")
    parser.add_argument("--list", action="store_true", help="only show what is drawn")
    parser.add_argument(
        "--map", type=Path, default=DEFAULT, help="where it is kept which tests execute which lines"
    )
    parser.add_argument(
        "--measure", choices=("all", "near", "none"), default="near", help="tests that are not in the map"
    )
    return parser


def _test_files() -> list[str]:
    found = (path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    return sorted(path for path in found if not path.startswith("tests/mutants/"))


def _measure(
    known: CoverageMap, test_files: Sequence[str], paths: Sequence[str], options: argparse.Namespace
) -> None:
    say = partial(print, file=sys.stderr, flush=True)
    near = {f"tests/{path.partition('/')[0]}/" for path in paths}
    wanted = [
        path
        for path in test_files
        if options.measure == "all" or (options.measure == "near" and any(path.startswith(it) for it in near))
    ]
    measure(known, wanted, MEASURED, options.processes, say)
    if options.measure == "all":
        measure_imports(known, MEASURED)
        measure_schedules(known, MEASURED, options.processes, say)
    missing = known.load([*test_files, FILE, IMPORTS])
    if missing:
        say(f"{len(missing)} files of tests were never measured, and are left out: --measure all")


def _drawn(results: Results, paths: Sequence[str], options: argparse.Namespace) -> list[Mutant]:
    if not results.keys:
        mutants = draw(paths, options.seed, options.number)
        if not options.list:
            results.begin(mutants)
        return mutants
    by_key = {mutant.key: mutant for mutant in find(results.keys, paths)}
    gone = len(results.keys) - len(by_key)
    if gone:
        print(f"{gone} of the {len(results.keys)} have gone with the code that they changed", file=sys.stderr)
    return [by_key[key] for key in results.keys if key in by_key]


def _try(
    mutants: Sequence[Mutant],
    results: Results,
    known: CoverageMap,
    test_files: Sequence[str],
    options: argparse.Namespace,
) -> None:
    equivalents = read_equivalents()

    def tell(mutant: Mutant, found: Found) -> None:
        results.add(Verdict(mutant.key, mutant.package, found.by, found.why))
        where = f"{mutant.path}:{mutant.lines[0]} {mutant.operator}"
        print(f"{where}: {found.by or f'SURVIVED, {found.why}'}", flush=True)

    def attempt(mutant: Mutant, *, imports: bool) -> Attempt:
        tests = tests_that_use(mutant, known) if imports else known.covering(mutant.path, mutant.lines)
        chosen = [test for test in tests if test.passed]
        units = (test for test in chosen if test.shard != FILE)
        schedules = (test for test in chosen if test.shard == FILE and not options.no_simulation)
        return Attempt(mutant, (*units, *schedules))

    pending = [
        mutant
        for mutant in mutants
        if mutant.key not in equivalents
        and (
            mutant.key not in results.verdicts or (options.again and results.verdicts[mutant.key].by is None)
        )
    ]
    inside, imported = [], []
    for mutant in pending:
        if mutant.outermost is None or known.runs_when_imported(mutant.path, mutant.lines):
            imported.append(mutant)
        elif (it := attempt(mutant, imports=False)).tests:
            inside.append(it)
        else:
            tell(mutant, Found(None, NOT_COVERED))

    def tell_or_import(mutant: Mutant, found: Found) -> None:
        if found.why == NOT_IN_MEMORY:
            imported.append(mutant)
        else:
            tell(mutant, found)

    try_in_memory(inside, options.budget_s, options.processes, tell_or_import)
    with_imports = [attempt(mutant, imports=True) for mutant in imported]
    try_with_imports(with_imports, options.budget_s, options.processes, tell)


def _report(mutants: Sequence[Mutant], results: Results, survivors: Path) -> None:
    equivalents = read_equivalents()
    judged = [
        results.verdicts.get(mutant.key, Verdict(mutant.key, mutant.package, None, "judged by hand"))
        for mutant in mutants
    ]
    by_key = {mutant.key: mutant for mutant in mutants}
    left = [verdict for verdict in judged if verdict.by is None and verdict.key not in equivalents]
    texts = (
        survivor(by_key[it.key], it, (ROOT / by_key[it.key].path).read_bytes())
        for it in sorted(left, key=lambda it: (by_key[it.key].path, by_key[it.key].start))
    )
    survivors.write_text("\n".join(texts), encoding="utf-8")
    print(*table(judged, equivalents), sep="\n")
    print(f"{len(left)} survivors: {survivors}")


if __name__ == "__main__":
    sys.exit(main())
