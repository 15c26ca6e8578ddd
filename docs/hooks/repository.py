"""Pages of the site for files of the repository that are not in ``docs/``.

A page links to such a file by its path beside it, as a hosting page or an editor follows it. In the site the
documents of :data:`DOCUMENTS` are pages, and any other file that a page links to is shown on a page of its
own. Links are rewritten on both sides; one that leads to no file is left as it is, and fails the build.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = "docs/"
DOCUMENTS: Final = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "README.md": "project/readme.md",
    "SECURITY.md": "project/security.md",
}
"""By path in the repository, the page of the site."""
LANGUAGES: Final = {".py": "python", ".service": "ini", ".toml": "toml", ".yaml": "yaml"}
"""In which files of other kinds than text are shown, by suffix."""
_LINK: Final = re.compile(r"(?<=\]\()([^()\s#]+)(?=[#)])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for path, page in DOCUMENTS.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    for path in sorted(set(_shown(files))):
        files.append(File.generated(config, _page_of(path), content=_show(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they lead in the site."""
    here = _path_of(page.file.src_uri)
    if here is None:
        return markdown
    directory = posixpath.dirname(page.file.src_uri)

    def rewrite(link: re.Match[str]) -> str:
        target = _target(here, link[1])
        return link[0] if target is None else posixpath.relpath(_page_of(target), directory)

    return _LINK.sub(rewrite, markdown)


def _shown(files: Files) -> Iterator[str]:
    """Files outside of ``docs/`` that pages link to, but for the documents."""
    for file in files.documentation_pages():
        if (here := _path_of(file.src_uri)) is not None:
            targets = (_target(here, link) for link in _LINK.findall(file.content_string))
            yield from (it for it in targets if it and it not in DOCUMENTS and not it.startswith(DOCS))


def _target(here: str, link: str) -> str | None:
    """The path in the repository that ``link`` leads to from ``here``; None if that is no file of it."""
    if ":" in link:
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), link))
    return path if not path.startswith("..") and (ROOT / path).is_file() else None


def _page_of(path: str) -> str:
    """Where the site has a file of the repository."""
    if path in DOCUMENTS:
        return DOCUMENTS[path]
    return path.removeprefix(DOCS) if path.startswith(DOCS) else f"source/{path}.md"


def _path_of(page: str) -> str | None:
    """The file of the repository that is a page; None if there is none, as for generated pages."""
    path = {uri: path for path, uri in DOCUMENTS.items()}.get(page, f"{DOCS}{page}")
    return path if (ROOT / path).is_file() else None


def _show(path: str) -> str:
    language = LANGUAGES.get(Path(path).suffix, "text")
    text = (ROOT / path).read_text(encoding="utf-8")
    return f"# {path}\n\n`````{language}\n{text}\n`````\n"
