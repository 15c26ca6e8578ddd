"""Mutants at random: what the operators make of a source, and whether what finds them is found."""

import ast
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import cast

import pytest

from pykraft.quorum.core.log_shape import LogShape
from tests.mutants.at_random.coverage_map import ROOT, CoverageMap, MeasuredTest
from tests.mutants.at_random.drawing import draw, find
from tests.mutants.at_random.finder import find_mutants
from tests.mutants.at_random.in_memory import Functions
from tests.mutants.at_random.known_types import KnownTypes
from tests.mutants.at_random.mutant import Mutant
from tests.mutants.at_random.results import Results, Verdict, read_equivalents, table


def mutants(source: str, operator: str | None = None) -> list[Mutant]:
    known = KnownTypes([ast.parse(source)])
    found = find_mutants("quorum/some.py", source.encode(), known)
    return [mutant for mutant in found if operator in (None, mutant.operator)]


def afters(source: str, operator: str) -> set[str]:
    return {mutant.after for mutant in mutants(source, operator)}


@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        ("comparison-off-by-one", "a < b", {"a <= b"}),
        ("comparison-off-by-one", "low <= (a) < high", {"low < (a) < high", "low <= (a) <= high"}),
        ("comparison-off-by-one", "a + 1", {"a"}),
        ("comparison-inverted", "a is not b", {"a is b"}),
        ("comparison-inverted", "a in b", {"a not in b"}),
        ("and-or-exchanged", "a and b", {"a or b"}),
        ("and-or-exchanged", "(a or\n b)", {"a and\n b"}),
        ("condition-dropped", "a and (b or c)", {"(a)", "((b or c))", "(b)", "(c)"}),
        ("condition-dropped", "x if a else y", {"True", "False"}),
        ("condition-negated", "x if not a else y", {"a"}),
        ("condition-negated", "[x for x in y if x > 1]", {"(not (x > 1))"}),
        ("constant-changed", "0", {"1"}),
        ("constant-changed", "5", {"4", "6"}),
        ("constant-changed", "True", {"False"}),
        ("constant-changed", "0.5", {"1.0"}),
        ("arguments-exchanged", "min(a, b)", {"max(a, b)"}),
        ("argument-dropped", "max(a, b)", {"a", "b"}),
    ],
)
def test_expression_becomes(operator: str, before: str, after: set[str]) -> None:
    assert afters(f"def f(a, b):\n    return {before}\n", operator) == after


FUNCTION = """
class Log:
    def close(self, now_ms: int, then_ms: int, name: str) -> None:
        if self.open:
            self.flush(now_ms, then_ms)
            self.size = 0
            logger.info("closed")
            return
        self.flush(now_ms, name)
        assert self.open

    def flush(self, first: int, second: int, third: bool = False) -> bool:
        if first:
            self.flush(first, second, third=True)
            raise ValueError(first + 1)
        return first > second
"""


def test_statement_is_removed_unless_a_value_must_follow() -> None:
    removed = {mutant.before for mutant in mutants(FUNCTION, "statement-removed")}
    assert removed == {
        "self.flush(now_ms, then_ms)",
        "self.size = 0",
        "return",
        "self.flush(now_ms, name)",
        "self.flush(first, second, third=True)",
    }


def test_statements_are_exchanged_if_both_have_an_effect() -> None:
    (mutant,) = mutants(FUNCTION, "statements-exchanged")
    assert mutant.after.split() == ["self.size", "=", "0", "self.flush(now_ms,", "then_ms)"]
    awaits = "async def f() -> None:\n    a = await g()\n    b = await h()\n    await i(b)\n"
    assert [" ".join(it.after.split()) for it in mutants(awaits, "statements-exchanged")] == [
        "b = await h() a = await g()"
    ]


def test_function_returns_early_with_what_its_annotation_allows() -> None:
    before = {mutant.text.split("\n")[0]: mutant.function for mutant in mutants(FUNCTION, "early-return")}
    assert before == {"return": "Log.close", "return False": "Log.flush"}


def test_arguments_are_exchanged_if_their_types_are_known_and_equal() -> None:
    assert afters(FUNCTION, "arguments-exchanged") == {
        "self.flush(then_ms, now_ms)",
        "self.flush(second, first, third=True)",
    }


def test_argument_is_dropped_if_there_is_a_default() -> None:
    assert afters(FUNCTION, "argument-dropped") == {"self.flush(first, second, )"}


def test_what_is_said_to_people_is_left_alone() -> None:
    said = ('"""Doc 1."""', "assert x > 5", 'logger.info("%d", 5)', "raise E(5 > 4)")
    assert not mutants("\n".join([*said, "x: dict[int, Literal[5]]"]))
    assert not mutants("\n    ".join(["def f() -> bytes:", *said]))


def test_every_mutant_changes_the_source_and_little_else_of_it() -> None:
    path = "quorum/core/vote.py"
    source = (ROOT / path).read_bytes()
    found = find_mutants(path, source, KnownTypes([ast.parse(source)]))
    assert len(found) > 100
    for mutant in found:
        changed = mutant.apply(source)
        assert changed != source
        assert changed[: mutant.start] == source[: mutant.start]
        assert changed.endswith(source[mutant.end :])
        assert 1 <= mutant.lines[0] <= mutant.lines[-1] <= source.count(b"\n")


def test_key_survives_when_lines_move_and_tells_equal_ones_apart() -> None:
    moved = FUNCTION.replace("class Log", "X = 1 < 2\n\n\nclass Log")
    keys = [mutant.key for mutant in mutants(FUNCTION)]
    assert len(set(keys)) == len(keys)
    assert set(keys) < {mutant.key for mutant in mutants(moved)}
    twice = "def f():\n    g(a < b)\n    g(a < b)\n"
    assert len({mutant.key for mutant in mutants(twice, "comparison-off-by-one")}) == 2


def test_seed_draws_the_same_mutants_and_another_seed_draws_others() -> None:
    first, again, other = (draw(["quorum/core"], seed, 20) for seed in ("1", "1", "2"))
    assert first == again
    assert {it.key for it in first} != {it.key for it in other}
    assert len({(it.path, it.lines[0]) for it in first}) == 20
    found = find([it.key for it in first], ["quorum/core"])
    assert {it.key for it in found} == {it.key for it in first}


def test_every_equivalent_names_a_mutant_of_today_and_has_a_reason() -> None:
    equivalents = read_equivalents()
    assert all(row["reason"] for row in equivalents.values())
    paths = sorted({row["change"].split()[0] for row in equivalents.values()})
    here = {mutant.key for mutant in find(list(equivalents), paths)} if paths else set()
    assert equivalents.keys() == here


def measured(name: str, cpu_s: float = 1.0) -> MeasuredTest:
    return MeasuredTest(name, "tests/test_some.py", cpu_s, passed=True, spawns=False)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_some.py").write_text("def test_it(): pass\n")
    (tmp_path / "some.py").write_text("one\ntwo\nthree\n")
    return tmp_path


def covering(tree: Path, line: int) -> list[str]:
    known = CoverageMap(tree / "map", tree)
    known.load(["tests/test_some.py"])
    return [test.name for test in known.covering("some.py", [line])]


def measure(tree: Path) -> None:
    known = CoverageMap(tree / "map", tree)
    tests = [measured("slow", 2.0), measured("fast", 0.1), measured("other")]
    known.write(
        "tests/test_some.py", tests, {"some.py": {"slow": [1, 2], "fast": [2], "other": [3]}, "no.py": {}}
    )


def test_tests_that_execute_a_line_are_known_and_the_fastest_is_first(tree: Path) -> None:
    (tree / "no.py").touch()
    measure(tree)
    assert [covering(tree, line) for line in (1, 2, 3)] == [["slow"], ["fast", "slow"], ["other"]]


def test_tests_are_known_after_lines_have_moved(tree: Path) -> None:
    (tree / "no.py").touch()
    measure(tree)
    (tree / "some.py").write_text("zero\none\n2\nthree\n")
    assert [covering(tree, line) for line in (2, 3, 4)] == [["slow"], ["fast", "slow"], ["other"]]


def test_file_of_tests_that_changes_is_measured_again_and_known_as_it_was_until_then(tree: Path) -> None:
    (tree / "no.py").touch()
    measure(tree)
    known = CoverageMap(tree / "map", tree)
    assert known.is_measured("tests/test_some.py")
    (tree / "tests" / "test_some.py").write_text("def test_more(): pass\n")
    assert not known.is_measured("tests/test_some.py")
    assert covering(tree, 3) == ["other"]
    assert known.load(["tests/test_some.py", "tests/test_new.py"]) == ["tests/test_new.py"]


def planted(mutant: Mutant) -> bool:
    return Functions([mutant.path]).plant(mutant, (ROOT / mutant.path).read_bytes())


def test_planted_in_memory_it_changes_the_function_that_everybody_holds() -> None:
    path = "quorum/core/log_shape.py"
    found = find_mutants(path, (ROOT / path).read_bytes(), KnownTypes([]))
    mutant = next(it for it in found if it.function == "LogShape.append")
    append = cast(FunctionType, LogShape.append)
    original = append.__code__
    try:
        assert planted(mutant)
        assert append.__code__ is not original
        assert append.__code__.co_filename == original.co_filename
    finally:
        append.__code__ = original


def test_what_runs_when_it_is_imported_cannot_be_planted_in_memory() -> None:
    path = "quorum/core/log_shape.py"
    found = find_mutants(path, (ROOT / path).read_bytes(), KnownTypes([]))
    assert not planted(next(it for it in found if it.outermost is None))


def test_score_counts_no_equivalents(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.begin([])
    for number, by in enumerate(["tests/a.py::b", "python -m sim", None, None]):
        results.add(Verdict(str(number), "quorum", by, "why"))
    rows = list(table(Results(tmp_path / "results").verdicts.values(), {"3"}))
    assert rows[-1] == "| all | 4 | 1 | 1 | 1 | 1 | 67 % |"


@pytest.mark.slow
def test_mutants_are_drawn_measured_tried_and_reported(tmp_path: Path) -> None:
    command = ["-m", "tests.mutants.at_random", "--map", str(tmp_path), "--seed", "a test", "--number", "3"]
    results = ROOT / "build" / "mutants-random"
    before = set(results.glob("a test*"))
    try:
        done = subprocess.run(
            [sys.executable, *command, "regex"], cwd=ROOT, capture_output=True, text=True, check=False
        )
    finally:
        for path in set(results.glob("a test*")) - before:
            path.unlink()
    assert done.returncode == 0, done.stderr
    assert "| regex | 3 |" in done.stdout
    assert "test_pattern.py::" in done.stdout
