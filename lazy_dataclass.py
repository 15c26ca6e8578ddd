"""``@dataclass(slots=True)`` whose methods are compiled one by one, each when it is first called.

The standard decorator compiles six functions for a frozen class, 1.3 ms on a slow core; a node declares some
two hundred such classes, uses half of them before it serves, and of most of these only the constructor.
Declaring one here costs 0.05 ms. :mod:`dataclasses` itself reads the fields, and ``fields``, ``replace``,
pattern matching and pickling work as with it.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from reprlib import recursive_repr
from threading import RLock
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass"]

_FIELDS = "__dataclass_fields__"
_TABLES = (_FIELDS, "__dataclass_params__", "__match_args__")
_METHODS = ("__init__", "__repr__", "__eq__", "__hash__", "__lt__", "__le__", "__gt__", "__ge__")

_OPTIONS = {"frozen", "eq", "order", "kw_only"}

_Fields = tuple[dataclasses.Field[Any], ...]
_Maker = Callable[[type, _Fields], Any]

_declared: dict[type, tuple[type, dict[str, bool]]] = {}
"""The classes that are not generated yet: the class as it was written, and its options."""

_lock = RLock()


def _declare(cls: type, options: dict[str, bool]) -> type:
    """The slotted class, with methods that generate the real ones."""
    body = {**vars(cls), "__qualname__": cls.__qualname__}
    kinds = {name: str(kind) for name, kind in inspect.get_annotations(cls).items()}
    assert not any("InitVar" in kind or "KW_ONLY" in kind for kind in kinds.values()), "no field, and unknown"
    names = [name for name, kind in kinds.items() if "ClassVar" not in kind]
    for name in (*names, "__dict__", "__weakref__"):
        body.pop(name, None)
    inherited = {slot for base in cls.__mro__[1:] for slot in vars(base).get("__slots__", ())}
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    body |= {_FIELDS: _LateTable(_FIELDS), "__match_args__": _LateTable("__match_args__")}
    if "__eq__" in body and body.get("__hash__") is None:
        body.pop("__hash__", None)  # it is not the author's: Python adds it to a class with an own __eq__
    for method in _methods(options):
        body.setdefault(method, _LATE[method])
    if options.get("frozen"):
        body = _FROZEN | body
    elif options.get("eq", True):
        body.setdefault("__hash__", None)
    made = type(cls)(cls.__name__, cls.__bases__, body)
    _declared[made] = cls, options
    return made


def _methods(options: dict[str, bool]) -> tuple[str, ...]:
    has_eq = options.get("eq", True)
    return (
        *("__init__", "__repr__"),
        *(("__eq__",) if has_eq else ()),
        *(("__hash__",) if has_eq and options.get("frozen") else ()),
        *(("__lt__", "__le__", "__gt__", "__ge__") if options.get("order") else ()),
    )


def _complete(cls: type) -> None:
    """Give a class and its bases their tables of fields."""
    with _lock:
        for made in cls.__mro__[::-1]:
            if made in _declared:
                written, options = _declared.pop(made)
                _read_fields(written, options)
                for name in _TABLES:
                    setattr(made, name, vars(written)[name])


def _generate(cls: type, name: str) -> Any:
    """Replace a late method of a class and of its bases; returns the one that was called: that of the class,
    or of the nearest base to which a method of its own has passed the call on.
    """
    _complete(cls)
    with _lock:
        late = [made for made in cls.__mro__ if vars(made).get(name) is _LATE[name]]
        for made in late:
            setattr(made, name, _MAKERS[name](made, dataclasses.fields(made)))
    return getattr(late[0] if late else cls, name)


def _read_fields(written: type, options: dict[str, bool]) -> None:
    """Have :mod:`dataclasses` make the tables, and as few methods as it can."""
    written.__doc__ = written.__doc__ or written.__name__  # it would describe the constructor: 0.1 ms
    is_derived = any(_FIELDS in vars(base) for base in written.__mro__[1:])
    none = {"init": False, "repr": False, "eq": False, "order": False}
    # Of a class without bases it need not know that it is frozen, and generates nothing.
    dataclasses.dataclass(**options | none | {"frozen": is_derived and options.get("frozen", False)})(written)
    params = vars(written)["__dataclass_params__"]
    for name, value in ({"init": True, "repr": True, "eq": True} | options).items():
        if hasattr(params, name):
            setattr(params, name, value)


def _compile(cls: type, signature: str, body: list[str], **known: Any) -> Any:
    """The method with this signature, whose body knows these names."""
    name = signature.partition("(")[0]
    exec(f"def {signature}:\n" + "\n".join(f" {line}" for line in body), known)
    known[name].__qualname__ = f"{cls.__qualname__}.{name}"
    return known[name]


def _make_init(cls: type, fields: _Fields) -> Any:
    positional: list[str] = []
    named: list[str] = []
    body: list[str] = []
    known: dict[str, Any] = {"_unset": object()}
    is_frozen = vars(cls)["__dataclass_params__"].frozen
    for field in fields:
        name = field.name
        parameter = value = name
        if field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = field.default_factory
            parameter = f"{name}=_unset"
            value = f"_make_{name}() if {name} is _unset else {name}" if field.init else f"_make_{name}()"
        elif field.default is not dataclasses.MISSING:
            known[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
            value = name if field.init else f"_default_{name}"
        elif not field.init:
            continue  # __post_init__ sets it
        if field.init:
            (named if field.kw_only else positional).append(parameter)
        known[f"_set_{name}"] = getattr(cls, name).__set__  # past the refusal of a frozen class
        body.append(f"_set_{name}(self, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *named] if named else [])])
    return _compile(cls, f"__init__({parameters})", body or ["pass"], **known)


def _make_repr(cls: type, fields: _Fields) -> Any:
    shown = ", ".join(f"{field.name}={{self.{field.name}!r}}" for field in fields if field.repr)
    text = f"return f'{{self.__class__.__qualname__}}({shown})'"
    return recursive_repr()(_compile(cls, "__repr__(self)", [text]))


def _make_hash(cls: type, fields: _Fields) -> Any:
    hashed = [it for it in fields if (it.compare if it.hash is None else it.hash)]
    return _compile(cls, "__hash__(self)", [f"return hash({_values('self', hashed)})"])


def _make_eq(cls: type, fields: _Fields) -> Any:
    """Of Python 3.13 and newer: value by value. Older ones compare tuples, where a NaN is equal to itself."""
    compared = [field for field in fields if field.compare]
    equal = " and ".join(f"self.{it.name} == other.{it.name}" for it in compared) or "True"
    body = [
        "if self is other: return True",
        f"if other.__class__ is self.__class__: return {equal}",
        "return NotImplemented",
    ]
    return _compile(cls, "__eq__(self, other)", body)


def _comparison(name: str, operator: str) -> _Maker:
    def make(cls: type, fields: _Fields) -> Any:
        compared = [field for field in fields if field.compare]
        body = [
            f"if other.__class__ is self.__class__: return {_values('self', compared)} {operator}"
            f" {_values('other', compared)}",
            "return NotImplemented",
        ]
        return _compile(cls, f"{name}(self, other)", body)

    return make


def _values(instance: str, fields: Sequence[dataclasses.Field[Any]]) -> str:
    """A tuple of these fields, as source code."""
    return "(" + "".join(f"{instance}.{field.name}, " for field in fields) + ")"


_OPERATORS = {"__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
_MAKERS: dict[str, _Maker] = {
    "__init__": _make_init,
    "__repr__": _make_repr,
    "__eq__": _make_eq if sys.version_info >= (3, 13) else _comparison("__eq__", "=="),
    "__hash__": _make_hash,
    **{name: _comparison(name, operator) for name, operator in _OPERATORS.items()},
}


class _LateTable:
    """A table of a class that is not generated yet."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> object:
        _complete(owner)
        return getattr(owner, self._name)


def _late(name: str) -> Callable[..., Any]:
    def method(self: object, *args: Any, **named: Any) -> Any:
        return _generate(type(self), name)(self, *args, **named)

    return method


_LATE = {name: _late(name) for name in _METHODS}


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)


_FROZEN = {
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, slots: bool, **options: bool) -> Callable[[type], type]:
        """Class decorator; these options of :func:`dataclasses.dataclass`: frozen, eq, order, kw_only."""
        assert slots, "a class with a dictionary is not declared here"
        assert options.keys() <= _OPTIONS, f"unknown here: {options.keys() - _OPTIONS}"
        return lambda cls: _declare(cls, options)
