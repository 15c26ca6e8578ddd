"""What annotations alone say about the product's names: types of fields and parameters, what has a default.

A name that is annotated in two ways is not known. That is less than a type checker knows, and takes a second.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class KnownTypes:
    """Of these parsed sources."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self._fields: dict[str, list[ast.expr]] = defaultdict(list)
        self._required: dict[str, set[str]] = defaultdict(set)
        self._optional: dict[str, set[str]] = defaultdict(set)
        for tree in trees:
            for node in tree.body:
                self._read(node)

    def of(self, value: ast.expr, function: _Function | None) -> str | None:
        """The annotation of a name or attribute, as it is written."""
        if isinstance(value, ast.Attribute):
            kinds = {ast.unparse(annotation) for annotation in self._fields.get(value.attr, ())}
            return kinds.pop() if len(kinds) == 1 else None
        if isinstance(value, ast.Name) and function is not None:
            for parameter in _parameters(function):
                if parameter.arg == value.id and parameter.annotation is not None:
                    return ast.unparse(parameter.annotation)
        return None

    def has_default(self, name: str, argument: str) -> bool:
        """Whether every function or class of that name that takes the argument can do without it."""
        return argument in self._optional[name] and argument not in self._required[name]

    def _read(self, node: ast.stmt) -> None:
        if isinstance(node, _Function):
            self._read_parameters(node.name, node)
        elif isinstance(node, ast.ClassDef):
            self._read_fields(node)
            for inner in node.body:
                self._read(inner)

    def _read_fields(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                field = statement.target.id
                self._fields[field].append(statement.annotation)
                known = self._required if statement.value is None else self._optional
                known[node.name].add(field)
            elif isinstance(statement, _Function):
                if statement.name == "__init__":
                    self._read_parameters(node.name, statement)
                elif statement.returns is not None and _is_property(statement):
                    self._fields[statement.name].append(statement.returns)

    def _read_parameters(self, name: str, function: _Function) -> None:
        arguments = function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        optional = positional[len(positional) - len(arguments.defaults) :]
        optional += [
            one for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default
        ]
        for parameter in _parameters(function):
            known = self._optional if parameter in optional else self._required
            known[name].add(parameter.arg)


def _parameters(function: _Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _is_property(function: _Function) -> bool:
    return any(
        isinstance(it, ast.Name) and it.id in ("property", "cached_property")
        for it in function.decorator_list
    )
