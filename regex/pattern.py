"""Regular expressions that clients send, matched in time linear in the name.

Any client can send a pattern, and a short one can keep Python's own engine busy for hours. So patterns are
compiled to a finite automaton whose states are followed in parallel, as in RE2; a pattern whose automaton
would be too large is refused. A pattern must match a whole name: of a topic, or a transactional id.

Even so one name can take a second, and one pattern a tenth of one to compile: matching can be paused at each
character, and a long pattern is compiled outside the event loop first.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import lru_cache

from pykraft.lazy_dataclass import dataclass
from pykraft.regex.classes import WORD, CharClass
from pykraft.regex.parser import (
    Assertion,
    Choice,
    Node,
    Parser,
    RegexError,
    Repeat,
    Sequence,
)

__all__ = ["Pattern", "RegexError", "compile_pattern", "known_pattern"]

MAX_PATTERN_CHARS = 10_000
MAX_PROGRAM = 5_000
"""The limit of steps. RE2/J has no such limit, but a pattern of a few characters can need a million."""

_PAUSE_AFTER = 500
_MAX_CACHED_STEPS = 200_000
_MAX_KNOWN_PATTERNS = 50
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


class _State:
    """The next possible ``steps``, before assertions are checked, after a character of a kind.

    ``following`` has the next state for characters that were met already.
    """

    __slots__ = ("before", "following", "is_match", "steps")

    def __init__(self, steps: frozenset[int], before: str) -> None:
        self.steps = steps
        self.before = before
        self.following: dict[str, _State] = {}
        self.is_match: bool | None = None


class Pattern:
    """A compiled pattern. Transitions are cached, so that many names are matched quickly."""

    def __init__(self, steps: list[_Step], start: int) -> None:
        self._steps = steps
        self._start = start
        self._forget()

    def _forget(self) -> None:
        self._states: dict[tuple[frozenset[int], str], _State] = {}
        self._cached_steps = 0
        self._first = self._state(frozenset((self._start,)), "")

    def copy(self) -> Pattern:
        """The same pattern without the cache of this one."""
        return Pattern(self._steps, self._start)

    def matches(self, text: str) -> bool:
        matching = self.matching(text)
        while True:
            try:
                next(matching)
            except StopIteration as end:
                return bool(end.value)

    def matching(self, text: str) -> Generator[int, None, bool]:
        """Like :meth:`matches`, with a pause after each piece of work; yields how much it was, in steps."""
        state, work = self._first, 2 + len(text) // 8
        for char in text:
            following = state.following.get(char)
            if following is None:
                if not state.steps:
                    break
                following = state.following[char] = self._advance(state, char)
                work += 2 * len(self._steps)
                if work > _PAUSE_AFTER:
                    yield work
                    work = 0
            state = following
        yield work
        if state.is_match is None:
            state.is_match = 0 in self._closure(state.steps, state.before, "")
        return state.is_match

    def _state(self, steps: frozenset[int], before: str) -> _State:
        known = self._states.get((steps, before))
        if known is None:
            known = self._states[steps, before] = _State(steps, before)
            self._cached_steps += len(steps) + 1
        return known

    def _advance(self, state: _State, char: str) -> _State:
        if self._cached_steps > _MAX_CACHED_STEPS:
            self._forget()
        reached = self._closure(state.steps, state.before, _kind(char))
        following = frozenset(
            target
            for step in reached
            if (accepts := self._steps[step].accepts) is not None and accepts.contains(char)
            for target in self._steps[step].targets
        )
        self._cached_steps += 1
        return self._state(following, _kind(char))

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


def known_pattern(pattern: str) -> Pattern:
    """As :func:`compile_pattern`, but at once if it was compiled lately. May be called in any thread."""
    found = _compiled(pattern)
    if isinstance(found, str):
        raise RegexError(found)
    return found


LONG_PATTERN_CHARS = 300
"""Compiling a longer one takes milliseconds."""


def prepare_regex(pattern: str) -> None:
    """Compile a pattern outside the event loop, so that :func:`known_pattern` soon finds it or its error."""
    if len(pattern) <= MAX_PATTERN_CHARS:
        _compiled(pattern)


@lru_cache(maxsize=_MAX_KNOWN_PATTERNS)
def _compiled(pattern: str) -> Pattern | str:
    """The pattern, or why it cannot be used."""
    try:
        return compile_pattern(pattern)
    except RegexError as error:
        return str(error)
