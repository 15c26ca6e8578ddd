"""Classes whose methods are generated late behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any, ClassVar

import pytest

from pykraft import lazy_dataclass

BOTH = pytest.mark.parametrize("dataclass", [dataclasses.dataclass, lazy_dataclass.dataclass])


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


def _raised(action: Any) -> type[BaseException] | None:
    try:
        action()
    except Exception as error:
        return type(error)
    return None


@BOTH
def test_frozen_values_compare_hash_describe_and_refuse_changes(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Value:
        """A value."""

        kinds: ClassVar[int] = 3
        number: int
        names: tuple[str, ...] = ()
        found: list[int] = field(default_factory=list, hash=False)
        hidden: int = field(default=1, repr=False, compare=False)

        @property
        def double(self) -> int:
            return 2 * self.number

    value = Value(1, ("a",))
    assert value == Value(1, names=("a",), hidden=5) != Value(2)
    assert repr(value).endswith("Value(number=1, names=('a',), found=[])")
    assert (value.double, Value.kinds, Value.__doc__) == (2, 3, "A value.")
    assert hash(Value(1)) == hash(Value(1)) != hash(Value(2))
    assert value.found is not Value(1).found
    assert _raised(lambda: setattr(value, "number", 2)) is dataclasses.FrozenInstanceError
    assert _raised(lambda: delattr(value, "number")) is dataclasses.FrozenInstanceError
    assert _raised(Value) is TypeError
    assert not hasattr(value, "__dict__")
    assert dataclasses.replace(value, number=7) == Value(7, ("a",))
    assert [one.name for one in dataclasses.fields(Value)] == ["number", "names", "found", "hidden"]
    assert copy.copy(value) == value == copy.deepcopy(value)


@BOTH
def test_mutable_values_are_not_hashable(dataclass: Any) -> None:
    @dataclass(slots=True)
    class Value:
        number: int = 0

    value = Value()
    value.number += 1
    assert value == Value(1)
    assert _raised(lambda: hash(value)) is TypeError
    assert _raised(lambda: setattr(value, "other", 1)) is AttributeError


@BOTH
def test_values_without_equality_are_compared_by_identity(dataclass: Any) -> None:
    @dataclass(slots=True, eq=False)
    class Value:
        number: int = 0

    value = Value()
    assert value != Value() and len({value, Value()}) == 2


@BOTH
def test_order_keywords_inheritance_and_own_methods(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True, order=True)
    class Base:
        first: int
        second: int = 2

    @dataclass(frozen=True, slots=True)
    class Derived(Base):
        third: int = 3

        def __post_init__(self) -> None:
            object.__setattr__(self, "second", 20)

        def __repr__(self) -> str:
            return "derived"

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        name: str

    assert sorted([Base(2), Base(1, 3), Base(1)]) == [Base(1), Base(1, 3), Base(2)]  # type: ignore[type-var]
    derived = Derived(1)
    assert (derived.first, derived.second, derived.third) == (1, 20, 3)
    assert repr(derived) == "derived"
    assert [one.name for one in dataclasses.fields(Derived)] == ["first", "second", "third"]
    assert Derived(1) == derived != Base(1, 20)
    assert _raised(lambda: Named("a")) is TypeError
    match derived:
        case Derived(first, second, third):
            assert (first, second, third) == (1, 20, 3)
    assert isinstance(derived, Base)
    assert Named(name="a").name == "a" and not Named.__match_args__


def test_fields_are_known_before_the_first_instance() -> None:
    @lazy_dataclass.dataclass(frozen=True, slots=True)
    class Value:
        number: int

    assert dataclasses.is_dataclass(Value)
    assert [one.name for one in dataclasses.fields(Value)] == ["number"]
    assert dataclasses.asdict(Value(1)) == {"number": 1}


def test_methods_are_compiled_one_by_one_when_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, compile_method = [], lazy_dataclass._compile

    def note(cls: type, signature: str, body: list[str], **known: Any) -> Any:
        compiled.append(signature.partition("(")[0])
        return compile_method(cls, signature, body, **known)

    monkeypatch.setattr(lazy_dataclass, "_compile", note)

    @lazy_dataclass.dataclass(frozen=True, slots=True, order=True)
    class Value:
        number: int

    assert compiled == []
    one, two = Value(1), Value(2)
    assert compiled == ["__init__"]
    assert one != two and one < two and hash(one) == hash(Value(1)) and repr(two)
    assert sorted(compiled) == ["__eq__", "__hash__", "__init__", "__lt__", "__repr__"]


@BOTH
def test_mistaken_arguments_name_the_class(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Value:
        number: int
        made: list[int] = field(default_factory=list, init=False)

    assert Value(1).made == [] and Value(1).made is not Value(1).made
    for arguments in ((), (1, 2)):
        with pytest.raises(TypeError, match=r"Value\.__init__\(\)"):
            Value(*arguments)


def test_value_that_was_allocated_without_its_constructor_is_complete() -> None:
    @lazy_dataclass.dataclass(slots=True)
    class Value:
        number: int

    value = Value.__new__(Value)
    value.number = 4
    assert repr(value).endswith("Value(number=4)")
    assert value == Value(4)


def test_first_instance_may_be_one_of_a_subclass() -> None:
    @lazy_dataclass.dataclass(frozen=True, slots=True)
    class Base:
        first: int

    class Plain(Base):
        __slots__ = ()

    assert Plain(1).first == 1
    assert Base(1) == Base(1) != Plain(1)


def test_frozen_values_are_pickled() -> None:
    assert pickle.loads(pickle.dumps(Point(1, 2))) == Point(1, 2)
