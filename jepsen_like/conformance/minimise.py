"""Shortens a script while something stays true of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pykraft.jepsen_like.conformance.script import Script
from pykraft.jepsen_like.minimise import minimise as minimise_items


def minimise(script: Script, still: Callable[[Script], bool]) -> Script:
    """The script without every step that is not needed for ``still``."""
    steps = minimise_items(script.steps, lambda fewer: still(replace(script, steps=tuple(fewer))))
    return replace(script, steps=tuple(steps))
