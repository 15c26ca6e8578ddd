"""Modules that are imported on first use, so that a command loads no others."""

from __future__ import annotations

import gc
import importlib
from types import ModuleType


def import_late(name: str) -> ModuleType:
    """Import a module with all its dependencies."""
    # Modules hold long-lived objects: searching them for garbage takes a twentieth of a server's start.
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.enable()
