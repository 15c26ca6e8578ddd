"""Show strangers' text without anything that a terminal or a browser would act on.

Keys, values, errors and outputs come from histories and nodes, and may hold anything.
"""

from collections.abc import Iterable
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_ACTED_ON: Final = dict.fromkeys(
    (
        *(code for code in range(32) if chr(code) not in "\t\n"),
        *range(127, 160),
        *range(0x202A, 0x202F),  # what turns the direction of writing, here and below
        *range(0x2066, 0x206A),
        *range(0xD800, 0xE000),  # halves of pairs
    ),
    "\N{REPLACEMENT CHARACTER}",
)


def plain(text: str) -> str:
    """Without control characters, except tabs and ends of lines."""
    return text.translate(_ACTED_ON)


class PlainConsole(Console):
    """Prints plain text, except for its own styles."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)

    def say(self, line: str, style: str | None = None) -> None:
        """One line, neither broken nor taken for markup."""
        self.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
