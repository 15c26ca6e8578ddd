"""Regular expressions of consumer subscriptions, matched in time linear in the topic name.

Any client can send a pattern, and a short one can keep Python's own engine busy for hours. So patterns are
compiled to a finite automaton whose states are followed in parallel, as in RE2; a pattern whose automaton
would be too large is refused. A pattern must match a whole topic name.
"""

from __future__ import annotations

from pykraft.group_coordinator.regex_classes import WORD, CharClass
from pykraft.group_coordinator.regex_parser import (
    Assertion,
    Choice,
    Node,
    Parser,
    RegexError,
    Repeat,
    Sequence,
)
from pykraft.lazy_dataclass import dataclass

__all__ = ["Pattern", "RegexError", "compile_pattern"]

MAX_PATTERN_CHARS = 10_000
MAX_PROGRAM = 5_000
"""The limit of steps. RE2/J has no such limit, but a pattern of a few characters can need a million."""

_MAX_CACHED_STATES = 200_000
_WORD_CHARS = CharClass(WORD)


@dataclass(frozen=True, slots=True)
class _Step:
    """Consume a character of ``accepts`` (if not None), then continue at each of ``targets``."""

    accepts: CharClass | None
    targets: tuple[int, ...]
    assertion: Assertion | None = None


class _Compiler:
    """Builds the program back to front: the step after a node is known when the node is compiled."""

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
            case Assertion():
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
    """A compiled pattern. Transitions are cached, so that many names are matched quickly.

    A set of states holds the steps that may come next, before it is known which assertions hold: that depends
    on the characters on both sides.
    """

    def __init__(self, steps: list[_Step], start: int) -> None:
        self._steps = steps
        self._start = frozenset((start,))
        self._cache: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._cached_states = 0

    def matches(self, text: str) -> bool:
        states, before = self._start, ""
        for char in text:
            if not states:
                return False
            states = self._advance(states, _kind(before), char)
            before = char
        return 0 in self._closure(states, _kind(before), "")

    def _advance(self, states: frozenset[int], before: str, char: str) -> frozenset[int]:
        known = self._cache.get((states, before, char))
        if known is None:
            reached = self._closure(states, before, _kind(char))
            known = frozenset(
                target
                for state in reached
                if (accepts := self._steps[state].accepts) is not None and accepts.contains(char)
                for target in self._steps[state].targets
            )
            self._cached_states += len(known) + 1
            if self._cached_states > _MAX_CACHED_STATES:
                self._cache.clear()
                self._cached_states = len(known) + 1
            self._cache[states, before, char] = known
        return known

    def _closure(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """All steps that are reached between characters of the kinds ``before`` and ``after``."""
        reached: set[int] = set()
        pending = list(states)
        while pending:
            state = pending.pop()
            if state in reached:
                continue
            reached.add(state)
            step = self._steps[state]
            if step.accepts is None and (step.assertion is None or _holds(step.assertion, before, after)):
                pending.extend(step.targets)
        return reached


def _kind(char: str) -> str:
    """The kind of a character, as far as assertions distinguish it; empty for no character."""
    return char if char in ("", "\n") else "w" if _WORD_CHARS.contains(char) else "-"


def _holds(assertion: Assertion, before: str, after: str) -> bool:
    match assertion:
        case Assertion.TEXT_START:
            return not before
        case Assertion.TEXT_END:
            return not after
        case Assertion.LINE_START:
            return before in ("", "\n")
        case Assertion.LINE_END:
            return after in ("", "\n")
        case Assertion.WORD_BOUNDARY:
            return (before == "w") != (after == "w")
        case Assertion.NO_WORD_BOUNDARY:
            return (before == "w") == (after == "w")


def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern; :class:`RegexError` with the reason if it cannot be used."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise RegexError(f"the pattern is longer than {MAX_PATTERN_CHARS} characters")
    compiler = _Compiler()
    accept = compiler.emit(_Step(None, ()))
    return Pattern(compiler.steps, compiler.compile(Parser(pattern).parse(), accept))
