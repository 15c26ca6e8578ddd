"""A page of the site with notes on each API: what the modules of ``broker/apis`` say about themselves."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from pykraft.broker.apis.table import make_apis
from pykraft.broker.serving.api import Api, ForwardedApi, HandledApi, HotApi, SlicedApi
from pykraft.kafka_protocol.api_keys import ApiKey

ROOT: Final = Path(__file__).resolve().parents[2]
HEAD: Final = """\
# Notes on each API

From the modules of `broker/apis`. [The protocol](../protocol.md) lists versions and bounds.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    files.append(File.generated(config, "reference/apis.md", content=build()))
    return files


def build() -> str:
    apis = sorted(make_apis(), key=lambda api: api.key)
    lines = [HEAD]
    for module in dict.fromkeys(_module_of(api) for api in apis):
        lines += _describe(module, [api for api in apis if _module_of(api) == module])
    controllers = _doc("pykraft.broker.apis.cluster.describe_controllers").partition("\n\n")[2]
    return "\n".join([*lines, "## DescribeCluster on a controller's listener", "", controllers, ""])


def _module_of(api: Api[Any, Any, Any]) -> str:
    match api:
        case (
            HandledApi(handle=handler)
            | SlicedApi(handle=handler)
            | ForwardedApi(forward=handler)
            | HotApi(make_handler=handler)
        ):
            return handler.__module__
    raise AssertionError(api)


def _describe(module: str, apis: list[Api[Any, Any, Any]]) -> list[str]:
    title, _, text = _doc(module).partition("\n\n")
    title = title.rstrip(".")
    if len(apis) > 1:
        named = ", ".join(_name(it.key) for it in apis)
        return [f"## {title}", "", *textwrap.wrap(f"{named}.", 110), "", *([text, ""] if text else [])]
    name = _name(apis[0].key)
    assert title.startswith(name), f"{module} does not begin with the name of its API"
    return [f"## {name}{title.removeprefix(name)}", "", text, ""]


def _doc(module: str) -> str:
    """The docstring of a module as Markdown."""
    path = ROOT / f"{module.removeprefix('pykraft.').replace('.', '/')}.py"
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", docstring)
    return text.replace("``", "`")


def _name(key: ApiKey) -> str:
    return "".join(word.capitalize() for word in key.name.split("_"))
