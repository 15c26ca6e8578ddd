"""Regular expressions of consumer subscriptions, matched in time linear in the topic name.

A pattern comes from any client, and Python's own engine can be made to run for hours on a short one. So
patterns are compiled to a finite automaton whose states are walked together, as RE2 does; one that would grow
too large is refused. A pattern must match a whole topic name.
"""

from __future__ import annotations

from dataclasses import dataclass

from pykraft.group_coordinator.regex_parser import (
    Anchor,
    CharClass,
    Choice,
    Node,
    Parser,
    RegexError,
    Repeat,
    Sequence,
)

__all__ = ["Pattern", "RegexError", "compile_pattern"]

MAX_PATTERN_CHARS = 1_000
MAX_PROGRAM = 1_000
_MAX_CACHE = 10_000


@dataclass(frozen=True, slots=True)
class _Step:
    """Consume a character of ``accepts`` (if any), then go on at each of ``targets``."""

    accepts: CharClass | None
    targets: tuple[int, ...]
    anchor: Anchor | None = None


class _Compiler:
    """Builds the program back to front: every node is compiled knowing where to go afterwards."""

    def __init__(self) -> None:
        self.steps: list[_Step] = []

    def emit(self, step: _Step) -> int:
        if len(self.steps) >= MAX_PROGRAM:
            raise RegexError("the pattern is too large")
        self.steps.append(step)
        return len(self.steps) - 1

    def compile(self, node: Node, after: int) -> int:
        match node:
            case CharClass():
                return self.emit(_Step(node, (after,)))
            case Anchor():
                return self.emit(_Step(None, (after,), node))
            case Sequence(parts):
                for part in reversed(parts):
                    after = self.compile(part, after)
                return after
            case Choice(options):
                return self.emit(_Step(None, tuple(self.compile(option, after) for option in options)))
            case Repeat(inner, least, most):
                return self._repeat(inner, least, most, after)

    def _repeat(self, inner: Node, least: int, most: int | None, after: int) -> int:
        if most is None:
            loop = self.emit(_Step(None, (after,)))
            self.steps[loop] = _Step(None, (self.compile(inner, loop), after))
            after = loop
        else:
            end = after
            for _ in range(most - least):
                after = self.emit(_Step(None, (self.compile(inner, after), end)))
        for _ in range(least):
            after = self.compile(inner, after)
        return after


class Pattern:
    """A compiled pattern. Transitions met once are remembered, so that many names match quickly."""

    def __init__(self, steps: list[_Step], start: int) -> None:
        self._steps = steps
        self._start = start
        self._cache: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        states = self._closure([self._start], at_start=True, at_end=not text)
        for index, char in enumerate(text):
            if not states:
                return False
            if index == len(text) - 1:
                states = self._closure(self._targets(states, char), at_start=False, at_end=True)
            else:
                states = self._advance(states, char)
        return 0 in states

    def _advance(self, states: frozenset[int], char: str) -> frozenset[int]:
        known = self._cache.get((states, char))
        if known is None:
            if len(self._cache) >= _MAX_CACHE:
                self._cache.clear()
            known = self._closure(self._targets(states, char), at_start=False, at_end=False)
            self._cache[(states, char)] = known
        return known

    def _targets(self, states: frozenset[int], char: str) -> list[int]:
        return [
            target
            for state in states
            if (accepts := self._steps[state].accepts) is not None and accepts.contains(char)
            for target in self._steps[state].targets
        ]

    def _closure(self, pending: list[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        reached: set[int] = set()
        while pending:
            state = pending.pop()
            if state in reached:
                continue
            reached.add(state)
            step = self._steps[state]
            if step.accepts is None and (step.anchor is None or (at_end if step.anchor.at_end else at_start)):
                pending.extend(step.targets)
        return frozenset(reached)


def compile_pattern(pattern: str) -> Pattern:
    """:class:`RegexError` says what is wrong with a pattern that cannot be used."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise RegexError(f"the pattern is longer than {MAX_PATTERN_CHARS} characters")
    compiler = _Compiler()
    accept = compiler.emit(_Step(None, ()))
    return Pattern(compiler.steps, compiler.compile(Parser(pattern).parse(), accept))
