"""The pattern language: text to syntax tree.

It is RE2's, in the dialect of RE2/J that Kafka uses: flags, named groups, ``\\d \\w \\s``, ``[[:alpha:]]``,
``\\pL`` and ``\\p{Greek}``, ``\\Q…\\E``, ``\\x{10FFFF}``, ``^ $ \\A \\z \\b \\B``. Backreferences and
look-around do not exist in it and are refused, and so is ``\\Z``. Greedy and lazy repetition make no
difference, since a pattern matches the whole name.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum, auto

from pykraft.lazy_dataclass import dataclass
from pykraft.regex.classes import (
    LAST_CHAR,
    PERL,
    POSIX,
    CharClass,
    Ranges,
    complement,
    folded,
    merged,
    unicode_class,
)

MAX_REPEAT = 1_000
"""The same limit as in RE2."""

MAX_DEPTH = 100

_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_HEX = "0123456789abcdefABCDEF"


class RegexError(ValueError):
    """A pattern that is malformed, uses features that RE2 does not have, or is too large."""


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


class Assertion(Enum):
    """A condition on the position between two characters."""

    TEXT_START = auto()
    TEXT_END = auto()
    LINE_START = auto()
    LINE_END = auto()
    WORD_BOUNDARY = auto()
    NO_WORD_BOUNDARY = auto()


Node = CharClass | Sequence | Choice | Repeat | Assertion


@dataclass(frozen=True, slots=True)
class _Flags:
    """The flags ``(?i)``, ``(?m)`` and ``(?s)``; ``(?U)`` has no effect here."""

    fold: bool = False
    multi_line: bool = False
    dot_all: bool = False


_FLAG_NAMES = {"i": "fold", "m": "multi_line", "s": "dot_all", "U": None}


class Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.depth = 0
        self.flags = _Flags()
        self.group_names: set[str] = set()

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
            raise RegexError("unexpected end of the pattern")
        self.position += 1
        return char

    def _accept(self, text: str) -> bool:
        if self.pattern.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    # ---- structure

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._accept("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        is_repeated = False
        while self._peek() not in ("", "|", ")"):
            bounds = self._quantifier()
            if bounds is not None:
                if is_repeated or not parts:
                    raise RegexError(f"nothing to repeat at {self.position}")
                self._accept("?")
                parts[-1] = Repeat(parts[-1], *bounds)
                is_repeated = True
                continue
            is_repeated = self._peek() == "{"  # RE2/J takes a brace that is not a count for one here
            if self._accept("\\Q"):
                parts.extend(self._quoted())
            elif (node := self._atom()) is not None:
                parts.append(node)
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _quoted(self) -> list[Node]:
        end = self.pattern.find("\\E", self.position)
        text = self.pattern[self.position : end if end >= 0 else None]
        self.position += len(text) + (2 if end >= 0 else 0)
        return [self._literal(char) for char in text]

    def _quantifier(self) -> tuple[int, int | None] | None:
        for char, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(char):
                return bounds
        if self._peek() != "{":
            return None
        end = self.pattern.find("}", self.position)
        least, comma, most = self.pattern[self.position + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(least) or not (_is_number(most) or not most):
            return None  # RE2 reads a brace that is not a count as a literal
        self.position = end + 1
        if max(len(least), len(most)) > len(str(MAX_REPEAT)):
            raise RegexError("bad repeat count")
        low = int(least)
        high = int(most) if most else None if comma else low
        if max(low, high or 0) > MAX_REPEAT or (high is not None and high < low):
            raise RegexError("bad repeat count")
        return low, high

    def _atom(self) -> Node | None:
        """The next node; None if only flags were set."""
        char = self._take()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._char_class()
            case ".":
                dot_all = self.flags.dot_all
                return CharClass(() if dot_all else (("\n", "\n"),), negated=True)
            case "^":
                return Assertion.LINE_START if self.flags.multi_line else Assertion.TEXT_START
            case "$":
                return Assertion.LINE_END if self.flags.multi_line else Assertion.TEXT_END
            case "\\":
                return self._escape()
            case _:
                return self._literal(char)

    def _literal(self, char: str) -> CharClass:
        return CharClass(((char, char),), fold=self.flags.fold)

    def _group(self) -> Node | None:
        outside = self.flags
        if self._accept("?"):
            if self._accept("P<") or self._accept("<"):
                self._group_name()
            elif not self._opens_with_flags():
                return None
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise RegexError("groups are nested too deeply")
        node = self._choice()
        self.depth -= 1
        if not self._accept(")"):
            raise RegexError("missing ')'")
        self.flags = outside
        return node

    def _group_name(self) -> None:
        end = self.pattern.find(">", self.position)
        name = self.pattern[self.position : max(end, self.position)]
        if not name or not all(char.isascii() and (char.isalnum() or char == "_") for char in name):
            raise RegexError("bad group name")
        if name in self.group_names:
            raise RegexError(f"two groups are named {name}")
        self.group_names.add(name)
        self.position = end + 1

    def _opens_with_flags(self) -> bool:
        """Read the flags of ``(?i-s:…)`` or ``(?i-s)``; returns whether a group follows."""
        flags, value, is_complete = self.flags, True, True
        while (char := self._take()) not in ":)":
            if char == "-" and value:
                value = is_complete = False
            elif char in _FLAG_NAMES:
                is_complete = True
                name = _FLAG_NAMES[char]
                flags = flags if name is None else replace(flags, **{name: value})
            else:
                raise RegexError(f"(?{char} is not supported")
        if not is_complete:
            raise RegexError("no flag after '-'")
        if char == ")":
            self.flags = flags
            return False
        self.flags = flags
        return True

    # ---- characters

    def _escape(self) -> Node:
        assertions = {
            "A": Assertion.TEXT_START,
            "z": Assertion.TEXT_END,
            "b": Assertion.WORD_BOUNDARY,
            "B": Assertion.NO_WORD_BOUNDARY,
        }
        if self._peek() in assertions:
            return assertions[self._take()]
        ranges = self._escaped_class()
        return self._literal(self._escaped_char()) if ranges is None else CharClass(ranges)

    def _escaped_class(self) -> Ranges | None:
        """The class after a backslash; None if it is not a class."""
        char = self._peek()
        if char and char.lower() in PERL:
            self.position += 1
            ranges = PERL[char.lower()]
            ranges = folded(ranges) if self.flags.fold else ranges
            return ranges if char.islower() else complement(ranges)
        if char not in ("p", "P"):
            return None
        self.position += 1
        name = self._peek()
        end = self.position + 1
        if name == "{":
            end = self.pattern.find("}", self.position) + 1
            name = self.pattern[self.position + 1 : max(end - 1, 0)]
        ranges_named = unicode_class(name.removeprefix("^"))
        if not end or ranges_named is None:
            raise RegexError("unknown Unicode character class")
        self.position = end
        negated = (char == "P") != name.startswith("^")
        if self.flags.fold and name.removeprefix("^") != "Any":
            ranges_named = folded(ranges_named)
        return complement(ranges_named) if negated else ranges_named

    def _escaped_char(self) -> str:
        char = self._take()
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self._hex_char()
        if char == "0" or (char in "1234567" and self._peek() and self._peek() in "01234567"):
            digits = char
            while len(digits) < 3 and self._peek() and self._peek() in "01234567":
                digits += self._take()
            return chr(int(digits, 8))
        if char.isascii() and char.isalnum():
            raise RegexError(f"\\{char} is not supported")
        return char

    def _hex_char(self) -> str:
        if self._accept("{"):
            end = self.pattern.find("}", self.position)
            digits = self.pattern[self.position : max(end, self.position)]
            following = end + 1
        else:
            following = self.position + 2
            digits = self.pattern[self.position : following]
            if len(digits) < 2:
                raise RegexError("bad \\x escape")
        if not digits or any(digit not in _HEX for digit in digits) or int(digits, 16) > ord(LAST_CHAR):
            raise RegexError("bad \\x escape")
        self.position = following
        return chr(int(digits, 16))

    # ---- classes

    def _char_class(self) -> Node:
        negated = self._accept("^")
        ranges: list[tuple[str, str]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            found = self._named_class()
            ranges.extend(self._range() if found is None else found)
        self.position += 1
        return CharClass(merged(ranges), negated, self.flags.fold)

    def _named_class(self) -> Ranges | None:
        end = self.pattern.find(":]", self.position + 2)
        if self.pattern.startswith("[:", self.position) and end >= 0:
            name = self.pattern[self.position + 2 : end]
            ranges = POSIX.get(name.removeprefix("^"))
            if ranges is None:
                raise RegexError("unknown character class")
            self.position = end + 2
            ranges = folded(ranges) if self.flags.fold else ranges
            return complement(ranges) if name.startswith("^") else ranges
        if self._peek() != "\\":
            return None
        self.position += 1
        found = self._escaped_class()
        if found is None:
            self.position -= 1
        return found

    def _range(self) -> Ranges:
        low = high = self._class_char()
        following = self.pattern[self.position + 1 : self.position + 2]
        if self._peek() == "-" and following not in ("]", ""):
            self.position += 1
            high = self._class_char()
            if high < low:
                raise RegexError("bad range in a character class")
        return ((low, high),)

    def _class_char(self) -> str:
        char = self._take()
        return self._escaped_char() if char == "\\" else char


def _is_number(text: str) -> bool:
    """Whether it is a number without leading zeros; RE2 takes no others."""
    return text.isascii() and text.isdecimal() and (text == "0" or not text.startswith("0"))
