"""The lists of what ``make check`` and ``make test`` leave out name tests that exist."""

import re
from pathlib import Path

import pytest

from tests.long_tests import LONG, Left, is_long
from tests.timings import begin_first, slow_tests

TESTS = Path(__file__).parent


def named(file: str, beginning: str) -> list[str]:
    """Tests of a file whose names begin so."""
    text = (TESTS / file).read_text(encoding="utf-8")
    return re.findall(rf"^(?:(?:async )?def )?({beginning}\w*)(?:\(| = )", text, re.M)


@pytest.mark.parametrize("left", LONG, ids=lambda left: left.begins)
def test_what_is_left_out_exists_and_so_does_what_stays(left: Left) -> None:
    file, _, test = left.begins.partition("::")
    assert named(file, test.partition("[")[0] or "[tT]est")
    for stays in left.stays:
        tests = named(stays, "[tT]est")
        kept = [test for test in tests if not is_long(f"{stays}::{test}")]
        assert kept or any(part.but for part in LONG if part.begins.startswith(stays)), stays


def test_only_what_is_meant_is_long() -> None:
    assert is_long("docs/test_how_to.py::test_anything")
    assert is_long("simulation/test_fuzz.py::test_drawn_requests_neither_hold_nor_fill_nor_end_a_node[two]")
    assert not is_long(
        "simulation/test_fuzz.py::test_drawn_requests_neither_hold_nor_fill_nor_end_a_node[one]"
    )
    assert not is_long("docs/test_site.py::test_anything")


def test_files_that_begin_first_exist() -> None:
    assert all((TESTS.parent / file).exists() for file in begin_first())


def test_slow_tests_exist() -> None:
    for test in slow_tests():
        file, _, name = test.partition("::")
        assert named(file.removeprefix("tests/"), name), test
