"""The fields of dataclasses, as far as a constructor can be written for them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

PLAIN_BASES: Final = ("Generic", "Protocol", "ABC")


@dataclass(frozen=True, slots=True)
class Field:
    """``kind``, ``default`` and ``factory`` are source code."""

    name: str
    kind: str
    default: str | None = None
    factory: str | None = None
    init: bool = True
    compare: bool = True
    repr: bool = True
    kw_only: bool = False


def decorator_of(cls: ast.ClassDef) -> ast.Call | None:
    """The dataclass decorator; None for other classes."""
    for one in cls.decorator_list:
        if isinstance(one, ast.Name) and one.id == "dataclass":
            return ast.copy_location(ast.Call(one, [], []), one)
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "dataclass":
            return one
    return None


def options_of(decorator: ast.Call) -> dict[str, bool]:
    return {
        word.arg: bool(ast.literal_eval(word.value)) for word in decorator.keywords if word.arg is not None
    }


def base_name(base: ast.expr) -> str:
    return ast.unparse(base).partition("[")[0]


def fields_of(cls: ast.ClassDef, options: Mapping[str, bool]) -> list[Field] | None:
    """None: the class is left as it is."""
    if options.get("order") or any(base_name(base) not in PLAIN_BASES for base in cls.bases):
        return None
    found: list[Field] = []
    for item in cls.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        kind = ast.unparse(item.annotation)
        if "ClassVar" in kind:
            continue
        if "InitVar" in kind or "KW_ONLY" in kind:
            return None
        one = _with_default(Field(item.target.id, kind, kw_only=options.get("kw_only", False)), item.value)
        if one is None:
            return None
        found.append(one)
    return found


def with_inherited(
    cls: ast.ClassDef, classes: Mapping[str, ast.ClassDef], options: Mapping[str, bool]
) -> list[Field] | None:
    """The fields of a class whose bases are in the same source, those of the bases first."""
    own = fields_of(ast.ClassDef(cls.name, [], [], cls.body, []), options)
    for base in cls.bases:
        name = base_name(base)
        if name in PLAIN_BASES:
            continue
        above = with_inherited(classes[name], classes, options)
        if above is None or own is None:
            return None
        own = [*above, *own]
    return own


def _with_default(one: Field, value: ast.expr | None) -> Field | None:
    if value is None:
        return one
    if not isinstance(value, ast.Call):
        return replace(one, default=ast.unparse(value))
    if not isinstance(value.func, ast.Name) or value.func.id != "field":
        is_unknown = isinstance(value.func, ast.Name) and value.func.id[0].islower()
        return None if is_unknown else replace(one, default=ast.unparse(value))
    for word in value.keywords:
        text = ast.unparse(word.value)
        match word.arg:
            case "default":
                one = replace(one, default=text)
            case "default_factory":
                one = replace(one, factory=text)
            case "init":
                one = replace(one, init=text == "True")
            case "compare":
                one = replace(one, compare=text == "True")
            case "repr":
                one = replace(one, repr=text == "True")
            case "kw_only":
                one = replace(one, kw_only=text == "True")
            case "metadata":
                pass
            case _:
                return None
    return one
