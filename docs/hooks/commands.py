"""Pages of the site for the command line: one for each command, with its subcommands, made of its help."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Final

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from pykraft.node.cli.root import cli

OVERVIEW: Final = "reference/commands.md"
_HEAD: Final = """\
# Commands

`pykraft COMMAND --help` prints what these pages say; `--json` is offered wherever there is something to
parse. [Tools](../tools.md) compares the commands with Kafka's scripts.

| command | does |
|---|---|
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    root = click.Context(cli, info_name="pykraft")
    rows = []
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        text = "\n".join(_describe(command, click.Context(command, root, info_name=name), 1))
        files.append(File.generated(config, f"reference/commands/{name}.md", content=text))
        rows.append(
            f"| [`pykraft {name}`](commands/{name}.md) | {_cell(command.get_short_help_str(200))} |\n"
        )
    files.append(File.generated(config, OVERVIEW, content=_HEAD + "".join(rows)))
    return files


def _describe(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    """Lines of Markdown: the command, then everything below it."""
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"{'#' * level} {context.command_path}", "", *_help(command), "")
    yield from ("```text", f"{context.command_path} {usage}", "```", "")
    records = [it.get_help_record(context) for it in command.get_params(context)]
    options = [record for record in records if record is not None]
    if options:
        yield from ("| option | meaning |", "|---|---|")
        yield from (f"| `{_cell(names)}` | {_cell(meaning)} |" for names, meaning in options)
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from _describe(below, click.Context(below, context, info_name=name), level + 1)


def _help(command: click.Command) -> list[str]:
    # As click shows it: paragraphs after a backspace keep their lines, a form feed ends what is shown.
    text = inspect.cleandoc(command.help or "").partition("\f")[0]
    return ["" if line == "\b" else line for line in text.splitlines()]


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
