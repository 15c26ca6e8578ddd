"""The generated part of ``docs/tools.md``: where commands and flags differ from Kafka's scripts."""

from collections.abc import Iterable
from pathlib import Path

import click

from pykraft.node.cli.kafka_scripts.flags import NOT_PROVIDED, TOOLS, KafkaTool
from pykraft.node.cli.root import cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tools.md"


def find_command(words: str) -> click.Command:
    """The command of ours with this name, such as ``cluster cluster-id``."""
    command: click.Command = cli
    for word in words.split():
        assert isinstance(command, click.Group), words
        found = command.get_command(click.Context(command), word)
        assert found is not None, words
        command = found
    return command


def option_names(command: click.Command) -> list[str]:
    """Every name of every option, also of those that only say why they are refused."""
    return [name for it in command.params for name in (*it.opts, *it.secondary_opts)]


_EVERYWHERE = ("--json", "--version")
"""Options that most commands have, whether Kafka's tool has them or not."""


def build_tools_page(marker: str) -> str:
    """What is written by hand, the marker, and what differs from Kafka's scripts after it."""
    by_hand = PAGE.read_text(encoding="utf-8").partition(marker)[0]
    lines = [by_hand + marker, "", "## Scripts", ""]
    scripts = {tool.script.split()[0]: tool.command for tool in reversed(TOOLS)}
    commands = {script: _tool_of(script, command) for script, command in sorted(scripts.items())}
    same = [f"`{command}`" for script, command in commands.items() if script == f"kafka-{command}"]
    lines += [f"`kafka-NAME` is `pykraft NAME` for {', '.join(same)}.", ""]
    lines += ["| Kafka's script | here |", "|---|---|"]
    others = {script: command for script, command in commands.items() if script != f"kafka-{command}"}
    lines += [f"| `{script}` | `pykraft {command}` |" for script, command in others.items()]
    for reason in dict.fromkeys(NOT_PROVIDED.values()):
        names = sorted(script for script, said in NOT_PROVIDED.items() if said == reason)
        lines.append(f"| {_code(names)} | — {reason} |")
    lines += ["", "## Flags", "", "Every flag of Kafka's tools is there under its name, except:", ""]
    lines += _list(_differences(tool) for tool in TOOLS)
    lines += ["", f"Besides {_code(list(_EVERYWHERE))}, these are only here:", ""]
    return "\n".join([*lines, *_list(_only_here(tool) for tool in TOOLS), ""])


def _tool_of(script: str, command: str) -> str:
    return command if script == "kafka-server-start" else command.split()[0]


def _list(items: Iterable[str]) -> list[str]:
    return [f"- {item}" for item in items if item]


def _differences(tool: KafkaTool) -> str:
    said = [f"`{flag}` is `{said[1:]}`" for flag, said in tool.flags.items() if said[:1] == "="]
    refused = [flag for flag in tool.flags if tool.option(flag) is None]
    for reason in dict.fromkeys(tool.flags[flag] for flag in refused):
        flags = [flag for flag in refused if tool.flags[flag] == reason]
        said.append(f"not {_code(flags)}: {reason}")
    return f"`{tool.command}`: {'; '.join(said)}" if said else ""


def _only_here(tool: KafkaTool) -> str:
    taken = {tool.option(flag) for flag in tool.flags} | tool.flags.keys() | {*_EVERYWHERE}
    more = [
        name
        for it in find_command(tool.command).params
        if isinstance(it, click.Option) and not it.hidden
        for name in it.opts
        if name not in taken
    ]
    return f"`{tool.command}`: {_code(more)}" if more else ""


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
