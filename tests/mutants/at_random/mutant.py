"""One bug: a piece of a source's text, and what replaces it. The rest of the text stays as it is."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import unified_diff
from functools import cached_property
from hashlib import sha256
from itertools import groupby


@dataclass(frozen=True)
class Mutant:
    """``start`` to ``end``, in bytes of the source, becomes ``text``.

    ``path``: below the root. ``function``: its qualified name, empty at the level of the module. ``before``
    and ``after``: the expression or statement around the change. ``nth`` tells apart those of a function that
    read the same. ``lines``: a test that executes none of them does not meet it. ``outermost``: of the
    functions around it the first, as its qualified name and the line of its code; None if there is none.
    """

    path: str
    function: str
    operator: str
    before: str
    after: str
    start: int
    end: int
    text: str
    lines: range
    outermost: tuple[str, int] | None
    nth: int = 0

    @property
    def package(self) -> str:
        return self.path.partition("/")[0]

    @cached_property
    def key(self) -> str:
        """The same however lines move."""
        return sha256("\0".join((self.path, *self._reading(), str(self.nth))).encode()).hexdigest()[:12]

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]

    def diff(self, source: bytes) -> str:
        before, after = (text.decode().splitlines() for text in (source, self.apply(source)))
        named = (f"a/{self.path}", f"b/{self.path}")
        return "\n".join(unified_diff(before, after, *named, n=2, lineterm=""))

    def _reading(self) -> tuple[str, ...]:
        return self.function, self.operator, " ".join(self.before.split()), " ".join(self.after.split())


def numbered(mutants: Iterable[Mutant]) -> list[Mutant]:
    """Those of one source, each once, in the order of its text."""
    by_place = sorted(set(mutants), key=lambda it: (it.start, it.end, it.operator, it.text))
    same = groupby(sorted(by_place, key=Mutant._reading), key=Mutant._reading)
    told_apart = [replace(one, nth=nth) for _, those in same for nth, one in enumerate(those)]
    return sorted(told_apart, key=by_place_and_text)


def by_place_and_text(mutant: Mutant) -> tuple[str, int, int, str, str]:
    return mutant.path, mutant.start, mutant.end, mutant.operator, mutant.text
