"""Classes whose methods are generated late behave as those of the standard library."""

import copy
import dataclasses
import operator
import pickle
import random
from dataclasses import InitVar, field
from functools import partial
from typing import Any, ClassVar

import pytest

from pykraft import lazy_dataclass

BOTH = pytest.mark.parametrize("dataclass", [dataclasses.dataclass, lazy_dataclass.dataclass])


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


class Outer:
    @lazy_dataclass.dataclass(frozen=True, slots=True)
    class Inner:
        x: int


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


def test_values_of_a_nested_class_are_pickled() -> None:
    assert Outer.Inner.__qualname__ == "Outer.Inner"
    assert pickle.loads(pickle.dumps(Outer.Inner(1))) == Outer.Inner(1)


@BOTH
def test_first_call_may_come_from_a_method_of_a_subclass(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Base:
        first: int

    class Next(Base):
        __slots__ = ()

        def __init__(self, first: int) -> None:
            Base.__init__(self, first + 1)

        def __repr__(self) -> str:
            return f"<{Base.__repr__(self)}>"

    @dataclass(frozen=True, slots=True)
    class Fixed(Base):
        def __init__(self) -> None:
            Base.__init__(self, 7)

    assert [Next(1).first, Next(1).first] == [2, 2]
    assert repr(Next(1)).startswith("<") and repr(Next(1)).endswith("Next(first=2)>")
    assert (Fixed().first, Fixed()) == (7, Fixed())


@BOTH
def test_frozen_values_with_an_equality_of_their_own_are_hashable(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Value:
        number: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Value)

    assert Value(1) == Value(2) and hash(Value(1)) == hash(Value(1))


@BOTH
def test_frozen_values_may_say_what_is_copied(dataclass: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Value:
        number: int

        def __getstate__(self) -> int:
            return self.number + 1

        def __setstate__(self, state: int) -> None:
            object.__setattr__(self, "number", state)

    assert copy.copy(Value(1)).number == 2


def test_what_is_not_generated_is_refused() -> None:
    class WithVariable:
        number: InitVar[int]

    class Plain:
        number: int

    for options, written in ({}, WithVariable), ({"unsafe_hash": True}, Plain), ({"init": False}, Plain):
        with pytest.raises(AssertionError, match="unknown"):
            lazy_dataclass.dataclass(slots=True, **options)(written)


def _draw_fields(rng: random.Random, prefix: str) -> dict[str, dict[str, Any]]:
    drawn: dict[str, dict[str, Any]] = {}
    for number in range(rng.randint(0, 4)):
        defaults: list[dict[str, Any]] = [{}, {}, {"default": rng.randint(0, 2)}, {"default_factory": tuple}]
        options = rng.choice(defaults)
        choices: dict[str, list[bool | None]] = {"init": [False], "repr": [False], "compare": [False]}
        choices |= {"hash": [True, False, None], "kw_only": [True, False]}
        for name, values in choices.items():
            if rng.random() < 0.2:
                options[name] = rng.choice(values)
        drawn[f"{prefix}{number}" if rng.random() < 0.8 else "a0"] = options
    return drawn


def _methods_over(base: Any) -> dict[str, Any]:
    """Methods of an author, which use those of the base."""
    return {
        "__eq__": lambda self, other: base.__eq__(self, other) is not True,
        "__hash__": lambda self: 7,
        "__repr__": lambda self: f"<{base.__repr__(self)}>",
        "__init__": lambda self, *values, **named: base.__init__(self, *values[1:], **named),
    }


def _make_class(dataclass: Any, rng: random.Random) -> Any:
    """A class, or a class and one derived from it; TypeError if dataclasses refuses it."""
    options = {name: rng.random() < 0.4 for name in ("frozen", "order", "kw_only")}
    options["eq"] = options["order"] or rng.random() < 0.8
    own = rng.choice([*[None] * 4, "__eq__", "__hash__", "__repr__", "__init__"])
    made: Any = object
    for prefix in "ab"[: rng.randint(1, 2)]:
        base, fields = made, _draw_fields(rng, prefix)
        body: dict[str, Any] = {name: field(**options) for name, options in fields.items() if options}
        body |= {"__annotations__": dict.fromkeys(fields, "int"), "__module__": __name__}
        if prefix == "b" and own is not None:
            body[own] = _methods_over(base)[own]
        made = dataclass(slots=True, **options)(type(f"Drawn_{prefix}", (base,), body))
        dataclasses.fields(made)  # it is refused here, if not before
    return made


def _change_copy(change: Any, one: Any, *arguments: Any) -> Any:
    changed = copy.copy(one)
    change(changed, *arguments)
    return changed


def _same_hash(one: Any, other: Any) -> bool:
    return hash(one) == hash(other)


def _observe(cls: Any, rng: random.Random) -> list[str]:
    """What values of the class do, as text."""
    seen: list[str] = []
    values: list[Any] = []

    def note(action: Any) -> None:
        try:
            seen.append(repr(action()))
        except Exception as error:
            seen.append(type(error).__name__)

    def make(given: list[int], named: dict[str, int]) -> Any:
        values.append(cls(*given, **named))
        return values[-1]

    names = [one.name for one in dataclasses.fields(cls)]
    for _ in range(6):
        count = rng.choice([len(names), len(names), rng.randint(0, 5)])
        positional = [rng.randint(0, 2) for _ in range(count)]
        named = {name: rng.randint(0, 2) for name in names[count:] if rng.random() < 0.8}
        note(partial(make, positional, named))
    note(lambda: cls.__match_args__)
    for one in values:
        note(partial(copy.deepcopy, one))
        note(partial(dataclasses.replace, one))
        note(partial(dataclasses.asdict, one))
        for name in names:
            note(partial(_change_copy, setattr, one, name, 1))
            note(partial(_change_copy, delattr, one, name))
        for other in values:
            note(partial(operator.eq, one, other))
            note(partial(operator.lt, one, other))
            note(partial(operator.ge, one, other))
            note(partial(_same_hash, one, other))
    return seen


def test_classes_of_any_shape_behave_as_those_of_the_standard_library() -> None:
    compared = 0
    for seed in range(300):
        try:
            standard = _make_class(dataclasses.dataclass, random.Random(seed))
        except TypeError:
            continue
        late = _make_class(lazy_dataclass.dataclass, random.Random(seed))
        assert _observe(late, random.Random(seed)) == _observe(standard, random.Random(seed)), f"seed {seed}"
        compared += 1
    assert compared > 100
