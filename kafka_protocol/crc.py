"""CRC-32C, by the extension of the ``crc32c`` package.

The package itself also imports its command line and looks up its own version, with the parsers of mail and of
archives that :mod:`importlib.metadata` needs: a twentieth of a node's start, for one function.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

__all__ = ["crc32c"]


def _load_extension() -> object:
    package = find_spec("crc32c")
    spec = PathFinder.find_spec("_crc32c", package.submodule_search_locations if package else None)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError("the package crc32c has no extension", name="_crc32c")
    extension = module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension


if TYPE_CHECKING:
    from crc32c import crc32c
else:
    try:
        crc32c = _load_extension().crc32c
    except (ImportError, AttributeError):  # a release of the package that is built in another way
        from crc32c import crc32c
