"""The pattern language of consumer subscriptions: text to syntax tree.

RE2's common part: literals, classes, groups, alternation, repetition, ``\\d \\w \\s``, ``\\Q…\\E``, anchors.
Backreferences and look-around do not exist in RE2 and are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_REPEAT = 250
MAX_DEPTH = 50


class RegexError(ValueError):
    """A pattern that is malformed, uses what RE2 does not have, or is too large."""


Ranges = tuple[tuple[str, str], ...]

_DIGIT: Ranges = (("0", "9"),)
_WORD: Ranges = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACE: Ranges = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_POSIX: dict[str, Ranges] = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "digit": _DIGIT,
    "lower": (("a", "z"),),
    "upper": (("A", "Z"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": _SPACE,
    "word": _WORD,
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


@dataclass(frozen=True, slots=True)
class CharClass:
    """One character out of ``ranges``, or out of everything else."""

    ranges: Ranges
    negated: bool = False

    def contains(self, char: str) -> bool:
        return any(low <= char <= high for low, high in self.ranges) != self.negated


def _complement(ranges: Ranges) -> Ranges:
    result, start = [], 0
    for low, high in sorted(ranges):
        if ord(low) > start:
            result.append((chr(start), chr(ord(low) - 1)))
        start = max(start, ord(high) + 1)
    if start <= 0x10FFFF:
        result.append((chr(start), chr(0x10FFFF)))
    return tuple(result)


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    node: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    at_end: bool


Node = CharClass | Sequence | Choice | Repeat | Anchor


class Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.depth = 0

    def parse(self) -> Node:
        node = self._choice()
        if self.position < len(self.pattern):
            raise RegexError(f"unexpected ')' at {self.position}")
        return node

    def _peek(self) -> str:
        return self.pattern[self.position : self.position + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise RegexError("the pattern ends too soon")
        self.position += 1
        return char

    def _accept(self, text: str) -> bool:
        if self.pattern.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._accept("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._accept("\\Q"):
                end = self.pattern.find("\\E", self.position)
                quoted = self.pattern[self.position : end if end >= 0 else None]
                parts.extend(CharClass(((char, char),)) for char in quoted)
                self.position += len(quoted) + (2 if end >= 0 else 0)
                continue
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, node: Node) -> Node:
        bounds = self._quantifier()
        if bounds is None:
            return node
        self._accept("?")  # lazy or not, the set of whole matches is the same
        if self._peek() in ("*", "+", "?") and self._peek():
            raise RegexError(f"nothing to repeat at {self.position}")
        return Repeat(node, *bounds)

    def _quantifier(self) -> tuple[int, int | None] | None:
        for char, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(char):
                return bounds
        if self._peek() != "{":
            return None
        end = self.pattern.find("}", self.position)
        least, comma, most = self.pattern[self.position + 1 : max(end, 0)].partition(",")
        if end < 0 or not least.isdecimal() or not least.isascii() or not (most.isdecimal() or not most):
            return None  # RE2 reads a brace that is no counter as itself
        self.position = end + 1
        low = int(least)
        high = int(most) if most else None if comma else low
        if max(low, high or 0) > MAX_REPEAT or (high is not None and high < low):
            raise RegexError("bad repeat count")
        return low, high

    def _atom(self) -> Node:
        char = self._take()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._char_class()
            case ".":
                return CharClass((("\n", "\n"),), negated=True)
            case "^":
                return Anchor(at_end=False)
            case "$":
                return Anchor(at_end=True)
            case "*" | "+" | "?":
                raise RegexError(f"nothing to repeat at {self.position - 1}")
            case "\\":
                return self._escape()
            case _:
                return CharClass(((char, char),))

    def _group(self) -> Node:
        if self._accept("?") and not self._accept(":"):
            if not (self._accept("P<") or self._accept("<")) or self._peek() in ("=", "!"):
                raise RegexError("look-around and flags are not supported")
            while (char := self._take()) != ">":
                if not (char.isalnum() or char == "_"):
                    raise RegexError("bad group name")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise RegexError("groups are nested too deeply")
        node = self._choice()
        self.depth -= 1
        if not self._accept(")"):
            raise RegexError("missing ')'")
        return node

    def _escape(self) -> Node:
        char = self._take()
        if char == "A":
            return Anchor(at_end=False)
        if char in ("z", "Z"):
            return Anchor(at_end=True)
        return CharClass(self._escaped(char))

    def _escaped(self, char: str) -> Ranges:
        classes = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
        if char.lower() in classes:
            ranges = classes[char.lower()]
            return ranges if char.islower() else _complement(ranges)
        if char == "x":
            digits = self.pattern[self.position : self.position + 2]
            if len(digits) < 2 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                raise RegexError("bad \\x escape")
            self.position += 2
            literal = chr(int(digits, 16))
        elif char in _CONTROLS:
            literal = _CONTROLS[char]
        elif char.isalnum():
            raise RegexError(f"\\{char} is not supported")
        else:
            literal = char
        return ((literal, literal),)

    def _char_class(self) -> Node:
        negated = self._accept("^")
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if self._accept("[:"):
                ranges.extend(self._posix_class())
                continue
            low = self._class_char()
            if len(low) != 1 or low[0][0] != low[0][1]:
                ranges.extend(low)
                continue
            next_char = self.pattern[self.position + 1 : self.position + 2]
            if self._peek() == "-" and next_char not in ("]", ""):
                self.position += 1
                high = self._class_char()
                if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
                    raise RegexError("bad range in a character class")
                ranges.append((low[0][0], high[0][0]))
            else:
                ranges.extend(low)
        self.position += 1
        return CharClass(tuple(ranges), negated)

    def _class_char(self) -> Ranges:
        char = self._take()
        return self._escaped(self._take()) if char == "\\" else ((char, char),)

    def _posix_class(self) -> Ranges:
        end = self.pattern.find(":]", self.position)
        name = self.pattern[self.position : max(end, self.position)]
        negated = name.startswith("^")
        ranges = _POSIX.get(name.removeprefix("^"))
        if end < 0 or ranges is None:
            raise RegexError("unknown character class")
        self.position = end + 2
        return _complement(ranges) if negated else ranges
