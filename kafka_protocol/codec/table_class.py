"""The class of one message table: slots, a constructor with keyword arguments, equality and a description.

What ``dataclasses.dataclass`` would make, but a constructor is compiled for the first instance of its class:
a node serves most of the some two hundred tables rarely or never, and spent a tenth of its start on them.
"""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from pykraft.kafka_protocol.codec.field_types import FieldSpec, default_factory
from pykraft.kafka_protocol.codec.plan_source import PlanSource, default_expression

_T = TypeVar("_T")

_UNSET = object()


def table_class(cls: type[_T]) -> type[_T]:
    """``cls`` with the field specs of its body as ``FIELDS`` and as slots."""
    body = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    specs = []
    for name in inspect.get_annotations(cls):
        spec = body.pop(name)
        assert isinstance(spec, FieldSpec), f"{cls.__name__}.{name} is not declared with a wire type"
        specs.append(spec._replace(name=name))
    body |= {
        "FIELDS": tuple(specs),
        "__slots__": tuple(spec.name for spec in specs),
        "__init__": _init_first,
        "__eq__": _is_equal,
        "__hash__": None,
        "__repr__": _describe,
    }
    made: type[_T] = type(cls.__name__, cls.__bases__, body)
    return made


def _init_first(self: Any, **fields: object) -> None:
    """The constructor of a class that has no instance yet."""
    cls = type(self)
    cls.__init__ = _compile_init(cls)
    cls.__init__(self, **fields)


def _compile_init(cls: Any) -> Any:
    names: dict[str, str] = {}
    source = PlanSource("")
    unset = source.bind("unset", _UNSET)
    for spec in cls.FIELDS:
        default = default_expression(source, spec)
        if default_factory(spec) is None:
            names[spec.name] = default
            source.line(f"self.{spec.name} = {spec.name}")
        else:
            names[spec.name] = unset
            source.line(f"self.{spec.name} = {default} if {spec.name} is {unset} else {spec.name}")
    parameters = "".join(f", {name}={default}" for name, default in names.items())
    source.header = f"def __init__(self{', *' if names else ''}{parameters}):"
    source.line("return")
    return source.compile("__init__", f"{cls.__name__}.__init__")


def _is_equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return all(getattr(self, spec.name) == getattr(other, spec.name) for spec in self.FIELDS)


def _describe(self: Any) -> str:
    fields = ", ".join(f"{spec.name}={getattr(self, spec.name)!r}" for spec in self.FIELDS)
    return f"{self.__class__.__qualname__}({fields})"
