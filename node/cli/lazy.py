"""Modules that are imported when they are used: a command pays for nothing else."""

from __future__ import annotations

import gc
import importlib
from types import ModuleType


def import_late(name: str) -> ModuleType:
    """Import a module with all that it needs."""
    # Modules are made of what stays: looking through it for garbage is a twentieth of a server's start.
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.enable()
