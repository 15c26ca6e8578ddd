"""Which form of the package runs: its compiled modules, or the sources that they were compiled from.

A build leaves one library beside the package and a manifest of the modules in it. They take the place of
their sources unless ``PYKRAFT_INTERPRETED=1`` is set, or a source is no longer what was compiled: constants
and the layout of objects are shared between compiled modules, so that all of them or none are used, and it is
said. Both forms behave alike.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import zlib
from collections.abc import Mapping
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).parent
MANIFEST: Final = ROOT / "compiled.json"
LIBRARY: Final = "pykraft_compiled__mypyc"
ASKED: Final = "PYKRAFT_INTERPRETED"
INSTALL_SLACK_S: Final = 600
"""Files of an installed package get the time at which they are unpacked, one after the other."""


class _Modules:
    """Finds and loads the compiled modules (``sys.meta_path``)."""

    def __init__(self, names: Mapping[str, str], library: Path) -> None:
        """``names``: of the modules, and of the entry points of each."""
        self._names = names
        self._library = _extension(LIBRARY, library)
        sys.modules[LIBRARY] = self._library  # by this name its modules find it
        # They get their own file names from the directory that the package is in.
        self._library.__file__ = str(ROOT.parent / library.name)
        self._init = _extension("_init_compiled", library).init

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in self._names:
            return None
        source = ROOT.joinpath(*name.split(".")[1:]).with_suffix(".py")
        return ModuleSpec(name, self, origin=str(source))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module: ModuleType = self._init(getattr(self._library, self._names[spec.name]))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed when it was made."""


def _extension(name: str, library: Path) -> Any:
    loader = ExtensionFileLoader(name, str(library))
    module = module_from_spec(ModuleSpec(name, loader, origin=str(library)))
    loader.exec_module(module)
    return module


def _changed(sources: Mapping[str, list[int]], library: Path) -> str | None:
    """The first source that is not what was compiled. ``sources``: size, CRC-32, time (0: unknown)."""
    latest_ns = library.stat().st_mtime_ns + INSTALL_SLACK_S * 10**9
    for name, (size_bytes, crc, time_ns) in sources.items():
        try:
            found = os.stat(ROOT / name)
        except OSError:
            return name
        if found.st_size != size_bytes:
            return name
        is_older = found.st_mtime_ns == time_ns if time_ns else found.st_mtime_ns <= latest_ns
        if not is_older and zlib.crc32((ROOT / name).read_bytes()) != crc:
            return name
    return None


def _use() -> str | None:
    """Have compiled modules found; returns why they are not, if so."""
    if os.environ.get(ASKED, "") not in ("", "0"):
        return f"{ASKED} is set"
    try:
        manifest = json.loads(MANIFEST.read_bytes())
    except (FileNotFoundError, NotADirectoryError):  # the latter in an archive, as Spark is given one
        return "not compiled"
    library = ROOT / manifest["library"]
    if manifest["python"] != sys.implementation.cache_tag or not library.exists():
        return f"compiled for {manifest['python']}"
    changed = _changed(manifest["sources"], library)
    if changed is not None:
        why = f"{changed} has changed since it was compiled"
        print(f"pykraft runs interpreted: {why} (make compiled, or make interpreted)", file=sys.stderr)
        return why
    sys.meta_path.insert(0, _Modules(manifest["modules"], library))
    return None


def fields_of(**kinds: str) -> dict[str, dataclasses.Field[Any]]:
    """For :func:`dataclasses.replace`: the fields of a class that is no dataclass for the compiler."""
    found = {}
    for name, kind in kinds.items():
        one: Any = dataclasses.field()
        one.name, one.type, one._field_type = name, kind, vars(dataclasses)["_FIELD"]
        found[name] = one
    return found


class WeaklyReferenced:
    """The base that a compiled class is given to which weak references are made: those have room for them."""

    __slots__ = ()


def shown(one: object, *names: str) -> str:
    """What ``repr`` of a dataclass with these fields says."""
    return f"{type(one).__qualname__}({', '.join(f'{name}={getattr(one, name)!r}' for name in names)})"


WHY_INTERPRETED: Final = _use()
"""None: the modules are compiled."""


def form() -> str:
    """``compiled`` or ``interpreted``, as ``--version`` and the start of a node say it."""
    return "compiled" if WHY_INTERPRETED is None else "interpreted"
