"""Changes a function of the product in a process that has imported it.

The new code replaces that of the function object, so that whoever holds the function runs the new one. That
is not possible for what has run already: the level of modules and classes, and what imports have called.
"""

import gc
import importlib.machinery
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from tests.mutants.at_random.coverage_map import ROOT
from tests.mutants.at_random.mutant import Mutant


class Functions:
    """Those of these sources (below the root) that exist now, found once for all children."""

    def __init__(self, paths: Iterable[str]) -> None:
        files = {str(ROOT / path): path for path in paths}
        self._loaded = {
            path for path in files.values() if any(_is_of(module, str(ROOT / path)) for module in _modules())
        }
        self._found: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        gc.unfreeze()  # what is frozen is not listed
        for function in gc.get_objects():
            if isinstance(function, FunctionType):
                code = function.__code__
                if (path := files.get(code.co_filename)) is not None:
                    self._found[path, code.co_qualname, code.co_firstlineno].append(function)

    def plant(self, mutant: Mutant, source: bytes) -> bool:
        """Whether it could be, for all that is still to run in this process."""
        changed = mutant.apply(source)
        if mutant.path not in self._loaded:
            _import_as(mutant.path, changed)
            return True
        if mutant.outermost is None:
            return False
        functions = self._found[mutant.path, *mutant.outermost]
        module = compile(changed, str(ROOT / mutant.path), "exec", dont_inherit=True)
        codes = [
            code for code in _codes(module) if (code.co_qualname, code.co_firstlineno) == mutant.outermost
        ]
        if not functions or len(codes) != 1:
            return False
        if any(function.__code__.co_freevars != codes[0].co_freevars for function in functions):
            return False
        for function in functions:
            function.__code__ = codes[0]
        return True


def _import_as(path: str, changed: bytes) -> None:
    """When it is imported, if it ever is."""
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(loader: Any, name: str) -> CodeType | None:
        if loader.path == str(ROOT / path):
            return compile(changed, loader.path, "exec", dont_inherit=True)
        return original(loader, name)

    importlib.machinery.SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


def _modules() -> list[object]:
    return list(sys.modules.values())


def _is_of(module: object, file: str) -> bool:
    return getattr(module, "__file__", None) == file
