"""The site is built from ``docs/`` without a warning, needs nothing from elsewhere, and has no dead link."""

import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
PICTURES: Final = sorted((DOCS / "pictures").glob("*.d2"))
BLOCKS: Final = ("h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "tr", "pre", "blockquote", "img")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a new user builds it; a warning is an error."""
    target = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target))
    # What the theme says of its successor is said to its users, not to readers of the site. Pages are made of
    # functions and their modules, which compiled functions do not name.
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYKRAFT_INTERPRETED": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return target


def links(page: Path) -> Iterator[str]:
    """What a page links to and what it loads."""
    text = page.read_text(encoding="utf-8")
    yield from re.findall(
        r"""<(?:a|img|link|script|source|iframe)\b[^>]*?\s(?:href|src)=["']?([^"'\s>]+)""", text
    )


def loaded(page: Path) -> Iterator[str]:
    """What a browser loads with a page, without being asked."""
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"""<(?:img|script|source|iframe)\b[^>]*?\ssrc=["']?([^"'\s>]+)""", text)
    for tag in re.findall(r"<link\b[^>]*>", text):
        if re.search(r"""rel=["']?(?:stylesheet|preconnect|preload|icon|dns-prefetch)""", tag):
            yield from re.findall(r"""href=["']?([^"'\s>]+)""", tag)


def ids(page: Path) -> set[str]:
    return set(re.findall(r"""\sid=["']?([^"'\s>]+)""", page.read_text(encoding="utf-8")))


@pytest.mark.slow
def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    known: dict[Path, set[str]] = {page: ids(page) for page in site.rglob("*.html")}
    for page in known:
        if page.name == "404.html":
            continue  # served for any path, so its links are absolute
        assert [link for link in loaded(page) if re.match(r"(\w+:)?//", link)] == [], page
        for link in links(page):
            path, _, anchor = unquote(link).partition("#")
            if re.match(r"(\w+:)?//|mailto:|data:", link):
                continue
            target = (page.parent / path).resolve() if path else page
            assert target.is_file() or (target / "index.html").is_file(), f"{page}: {link}"
            assert not anchor or anchor in known.get(target, {anchor}), f"{page}: {link}"


@pytest.mark.slow
def test_site_shows_pages_as_hosting_pages_do(site: Path) -> None:
    """Their Markdown is CommonMark with tables; that of the site has other rules, for lists above all."""
    hosting = MarkdownIt("commonmark").enable("table")
    for source in DOCS.rglob("*.md"):
        html = (site / source.relative_to(DOCS).with_suffix(".html")).read_text(encoding="utf-8")
        (article,) = re.findall(r"<article\b.*?</article>", html, re.S)
        here, there = blocks(article), blocks(hosting.render(source.read_text(encoding="utf-8")))
        assert here == there, source


def blocks(html: str) -> Counter[str]:
    return Counter(tag for tag in re.findall(r"<(\w+)[ >/]", html) if tag in BLOCKS)


def test_pictures_are_drawn_from_their_sources_for_light_and_dark_pages() -> None:
    stamp = runpy.run_path(str(DOCS / "pictures" / "draw.py"))["stamp"]
    assert PICTURES and {path.stem for path in PICTURES} == {
        path.stem for path in (DOCS / "pictures").glob("*.svg")
    }
    for source in PICTURES:
        picture = source.with_suffix(".svg").read_text(encoding="utf-8")
        assert stamp(source) in picture, f"draw {source.name} again: see docs/pictures/draw.py"
        assert "(prefers-color-scheme:dark)" in picture
        assert not re.search(r'(?:href|src)="(?!data:|#)|url\((?!data:|"?data:|#)', picture), source
