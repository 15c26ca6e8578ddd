"""What the compiler is given for a dataclass behaves like the dataclass."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from compiling.constants import with_finals
from compiling.plain_classes import Classes, rewrite
from hypothesis import given
from hypothesis import strategies as st

SOURCE = '''\
from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Offset:
    """Of a record."""

    topic: str
    partition: int = 0
    tags: list[str] = field(default_factory=list)
    hidden: int = field(default=7, repr=False, compare=False)

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition


@dataclass(slots=True, kw_only=True)
class Counter:
    count: int
    doubled: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.count


@dataclass(frozen=True)
class Nothing:
    """No fields."""
'''


def executed(source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, "source", "exec"), names)
    return names


@pytest.fixture(scope="module")
def both() -> tuple[dict[str, Any], dict[str, Any]]:
    return executed(SOURCE), executed(rewrite(SOURCE, "source.py", Classes(()))[0])


values = st.fixed_dictionaries(
    {"topic": st.text(max_size=3)},
    optional={
        "partition": st.integers(-1, 2),
        "tags": st.lists(st.text(max_size=1), max_size=2),
        "hidden": st.integers(0, 3),
    },
)


@given(one=values, other=values)
def test_made_compared_and_shown_alike(
    both: tuple[dict[str, Any], dict[str, Any]], one: dict[str, Any], other: dict[str, Any]
) -> None:
    given_ones, plain_ones = ([names["Offset"](**each) for each in (one, other)] for names in both)
    assert [repr(each) for each in plain_ones] == [repr(each) for each in given_ones]
    assert (plain_ones[0] == plain_ones[1]) == (given_ones[0] == given_ones[1])
    assert plain_ones[0].place == given_ones[0].place
    assert repr(replace(plain_ones[0], partition=9)) == repr(replace(given_ones[0], partition=9))
    assert [(each.name, each.type) for each in fields(plain_ones[0])] == [
        (each.name, each.type) for each in fields(given_ones[0])
    ]


def test_arguments_are_refused_alike(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    for names in both:
        with pytest.raises(TypeError):
            names["Counter"](1)
        with pytest.raises(TypeError):
            names["Offset"]()
        assert names["Counter"](count=4).doubled == 8


def test_lists_made_for_one_are_its_own(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    for names in both:
        assert names["Offset"]("a").tags is not names["Offset"]("a").tags


def test_patterns_and_hashes(both: tuple[dict[str, Any], dict[str, Any]]) -> None:
    for names in both:
        assert names["Offset"].__match_args__ == ("topic", "partition", "tags", "hidden")
        assert names["Counter"].__match_args__ == ()
        assert names["Nothing"]() == names["Nothing"]()
        first, second = (names["Offset"]("a", 1, (), hidden) for hidden in (1, 2))
        assert hash(first) == hash(second)
        assert names["Counter"].__hash__ is None


def test_every_line_is_one_of_the_source() -> None:
    text, numbers = rewrite(SOURCE, "source.py", Classes(()))
    lines, written = SOURCE.splitlines(), text.splitlines()
    assert len(numbers) == len(written) + 1
    kept = ("return self.topic", "self.doubled = 2", "class Counter", '"""No fields."""')
    for number, line in enumerate(written, 1):
        if line.strip().startswith(kept):
            assert lines[numbers[number] - 1] == line


def test_a_frozen_dataclass_that_is_left_keeps_its_hash() -> None:
    classes = Classes(("Offset",))
    names = executed(rewrite(SOURCE, "source.py", classes)[0])
    assert hash(names["Offset"]("a", 1, ())) == hash(names["Offset"]("a", 1, ()))
    with pytest.raises(FrozenInstanceError):
        executed(SOURCE)["Offset"]("a").partition = 1


@pytest.mark.parametrize(
    ("line", "final"),
    [
        ("LIMIT = 5", "LIMIT: Final = 5"),
        ("_pack = Struct('>i').pack", "_pack: Final = Struct('>i').pack"),
        ("_HELD: int | None = None", "_HELD: Final[int | None] = None"),
        ("K = TypeVar('K')", None),
        ("Chunk = bytes | bytearray", None),
        ("Made = Callable[[int], None]", None),
        ("OTHER: Final = 3", None),
        ("TWICE = 1\nTWICE = 2", None),
        ("counted = 0\ndef add():\n    global counted\n    counted += 1", None),
        ("first, second = 1, one.two", "first: Final = 1; second: Final = one.two"),
        ("first, second = Kind", None),
        ("total = 0\nfor one in range(3):\n    total += one", None),
    ],
)
def test_names_given_a_value_once_are_final(line: str, final: str | None) -> None:
    begin = "from __future__ import annotations"
    written = with_finals(f"{begin}\n{line}\n")
    assert written == f"{begin}; from typing import Final\n{final or line}\n"
