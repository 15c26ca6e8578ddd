"""Modules that are imported on first use, so that a command loads no others."""

from __future__ import annotations

import gc
import importlib
from types import ModuleType


def import_late(name: str) -> ModuleType:
    """Import a module with all its dependencies. They are exempt from garbage collection."""
    # Modules hold long-lived objects: searching them for garbage takes a tenth of a server's start. The little
    # that an import leaves behind is never searched for either: it is less than what a search costs.
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
