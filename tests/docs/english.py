"""Looks for English that reads translated: ``python -m tests.docs.english``, which ``make docs`` runs.

The word list is ``english.toml`` beside this file. Pages, docstrings and texts for users are read; code in
back quotes and fenced blocks is not.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
WORDS: Final = Path(__file__).with_suffix(".toml")
PRODUCT: Final = (
    "broker configuration coordinator group_coordinator jepsen_like kafka_client kafka_protocol log_store"
    " metadata_log node quorum regex runtime spark testing transaction_coordinator"
).split()
_CODE: Final = re.compile(r"``[^`]*``|`[^`]*`")
_FENCED: Final = re.compile(r"^```.*?^```|^    [^\n]*$", re.M | re.S)
_BEGINNING: Final = r"(?:^|^[-*] |\| )"


class Finding(NamedTuple):
    path: Path
    line: int
    text: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.text!r}: {self.instead}"


def find() -> Iterator[Finding]:
    rules = tomllib.loads(WORDS.read_text(encoding="utf-8"))
    anywhere = [(re.compile(pattern), it) for pattern, it in rules["anywhere"].items()]
    beginnings = [(pattern, it) for pattern, it in rules["beginnings"].items()]
    of_pages = [(re.compile(_BEGINNING + pattern, re.M), it) for pattern, it in beginnings]
    of_docstrings = [(re.compile(r"\A" + pattern), it) for pattern, it in beginnings]
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        text = _FENCED.sub(_blank, page.read_text(encoding="utf-8"))
        paragraphs = re.finditer(r"\S.*?(?=\n\n|\Z)", text, re.S)
        for paragraph in paragraphs:
            line = text.count("\n", 0, paragraph.start()) + 1
            yield from _look(page, line, paragraph[0], [*anywhere, *of_pages])
    for package in PRODUCT:
        for path in sorted((ROOT / package).rglob("*.py")):
            for line, text, is_docstring in _texts(path):
                yield from _look(path, line, text, anywhere + (of_docstrings if is_docstring else []))


def _look(path: Path, line: int, text: str, rules: list[tuple[re.Pattern[str], str]]) -> Iterator[Finding]:
    prose = _CODE.sub(_blank, text)
    for pattern, instead in rules:
        for hit in pattern.finditer(prose):
            found = " ".join(prose[hit.start() : hit.end() + 30].split())
            yield Finding(path, line + prose.count("\n", 0, hit.start()), found, instead)


def _texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Line and text of each docstring (also those of attributes), and of other texts of several words."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value, id(node) in alone


def _blank(code: re.Match[str]) -> str:
    """The same lines without a word."""
    return re.sub(r"[^\n]", "_", code[0])


def main() -> int:
    findings = list(find())
    print(*findings, sep="\n")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
