"""Sets of characters as RE2/J names them: Perl's, POSIX's, and Unicode's categories and scripts.

The sets are exact for ASCII, which topic names consist of, and for the two other characters that fold to
ASCII letters (long s and the Kelvin sign), and lack all others: in a transactional id, ``\\pL`` matches no
umlaut.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache, lru_cache

from pykraft.lazy_dataclass import dataclass

Ranges = tuple[tuple[str, str], ...]

LAST_CHAR = "\U0010ffff"
DIGIT: Ranges = (("0", "9"),)
WORD: Ranges = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
SPACE: Ranges = (("\t", "\n"), ("\f", "\r"), (" ", " "))
PERL: dict[str, Ranges] = {"d": DIGIT, "w": WORD, "s": SPACE}
POSIX: dict[str, Ranges] = {
    "alnum": (("0", "9"), ("A", "Z"), ("a", "z")),
    "alpha": (("A", "Z"), ("a", "z")),
    "ascii": (("\0", "\x7f"),),
    "blank": (("\t", "\t"), (" ", " ")),
    "cntrl": (("\0", "\x1f"), ("\x7f", "\x7f")),
    "digit": DIGIT,
    "graph": (("!", "~"),),
    "lower": (("a", "z"),),
    "print": ((" ", "~"),),
    "punct": (("!", "/"), (":", "@"), ("[", "`"), ("{", "~")),
    "space": (("\t", "\r"), (" ", " ")),
    "upper": (("A", "Z"),),
    "word": WORD,
    "xdigit": (("0", "9"), ("A", "F"), ("a", "f")),
}
_FOLDS = {"k": "\u212a", "s": "\u017f"}
_KNOWN_CHARS = [chr(code) for code in range(128)] + sorted(_FOLDS.values())
_CATEGORIES = frozenset(
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No "
    "P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs".split()
)
_SCRIPTS = frozenset(
    "Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid "
    "Canadian_Aboriginal Carian Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret "
    "Devanagari Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han "
    "Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi "
    "Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Latin Lepcha "
    "Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar New_Tai_Lue Nko "
    "Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa "
    "Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese Syloti_Nagri Syriac Tagalog "
    "Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan Tifinagh Ugaritic Unknown Vai "
    "Yi".split()
)


@dataclass(frozen=True, slots=True)
class CharClass:
    """One character in ``ranges``, or if ``negated`` one outside; with ``fold`` in upper or lower case.

    Ranges are disjoint and in order (:func:`merged`).
    """

    ranges: Ranges
    negated: bool = False
    fold: bool = False

    def contains(self, char: str) -> bool:
        candidates = same_but_for_case(char) if self.fold else (char,)
        return any(map(self._has, candidates)) != self.negated

    def _has(self, char: str) -> bool:
        index = bisect_right(self.ranges, (char, LAST_CHAR)) - 1
        return index >= 0 and char <= self.ranges[index][1]


@cache
def same_but_for_case(char: str) -> tuple[str, ...]:
    lower = next((letter for letter, other in _FOLDS.items() if char == other), char.lower())
    upper = lower.upper()
    forms = {char, lower, _FOLDS.get(lower, char)}
    return tuple(sorted(forms | {upper} if len(upper) == 1 else forms))


def complement(ranges: Ranges) -> Ranges:
    result, start = [], 0
    for low, high in sorted(ranges):
        if ord(low) > start:
            result.append((chr(start), chr(ord(low) - 1)))
        start = max(start, ord(high) + 1)
    if start <= ord(LAST_CHAR):
        result.append((chr(start), LAST_CHAR))
    return tuple(result)


def merged(ranges: Iterable[tuple[str, str]]) -> Ranges:
    """The same characters as disjoint ranges in order, so that no class is slow to look up."""
    result: list[tuple[str, str]] = []
    for low, high in sorted(ranges):
        if result and ord(low) <= ord(result[-1][1]) + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return tuple(result)


@lru_cache(maxsize=500)
def folded(ranges: Ranges) -> Ranges:
    """``ranges`` and all characters that differ from one of theirs only in case."""
    more = (
        char
        for char in _KNOWN_CHARS
        if any(low <= one <= high for one in same_but_for_case(char) for low, high in ranges)
    )
    return merged((*ranges, *((char, char) for char in more)))


@cache
def unicode_class(name: str) -> Ranges | None:
    """The characters of a category or script; None if the name is unknown."""
    if name == "Any":
        return (("\0", LAST_CHAR),)
    if name in _CATEGORIES:
        found = (char for char in _KNOWN_CHARS if unicodedata.category(char).startswith(name))
    elif name in _SCRIPTS:
        # All letters here are Latin, and all other characters are common to all scripts.
        wanted = {"Latin": True, "Common": False}.get(name)
        found = (char for char in _KNOWN_CHARS if char.isalpha() is wanted)
    else:
        return None
    return merged((char, char) for char in found)
