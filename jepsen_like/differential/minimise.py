"""Shortens a script while something stays true of it: first by halves, then step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pykraft.jepsen_like.differential.script import Script


def minimise(script: Script, still: Callable[[Script], bool]) -> Script:
    """The script without every step that is not needed for ``still``."""
    size = max(len(script.steps) // 2, 1)
    while True:
        start = 0
        while start < len(script.steps):
            shorter = replace(script, steps=script.steps[:start] + script.steps[start + size :])
            if shorter.steps and still(shorter):
                script = shorter
            else:
                start += size
        if size == 1:
            return script
        size //= 2
