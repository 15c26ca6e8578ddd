"""The tables of ``docs/tools.md``: Kafka's scripts and flags, and what takes their place."""

from __future__ import annotations

from pathlib import Path

import click

from pykraft.node.cli.kafka_flags import NOT_PROVIDED, TOOLS
from pykraft.node.cli.kafka_tool import KafkaTool
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


def build_tools_page(marker: str) -> str:
    """What is written by hand, the marker, and the tables after it."""
    by_hand = PAGE.read_text(encoding="utf-8").partition(marker)[0]
    lines = [by_hand + marker, "", "## Scripts", "", "| Kafka's script | here |", "|---|---|"]
    scripts = {tool.script.split()[0]: tool.command for tool in reversed(TOOLS)}
    shown = {script: f"`pykraft {_tool_of(script, command)}`" for script, command in scripts.items()}
    shown |= {script: f"— {reason}" for script, reason in NOT_PROVIDED.items()}
    lines += [f"| `{script}` | {here} |" for script, here in sorted(shown.items())]
    lines += ["", "## Flags", ""]
    for tool in TOOLS:
        lines += _section(tool)
    return "\n".join(lines)


def _tool_of(script: str, command: str) -> str:
    return command if script == "kafka-server-start" else command.split()[0]


def _section(tool: KafkaTool) -> list[str]:
    command = find_command(tool.command)
    same = [flag for flag, said in tool.flags.items() if said == ""]
    lines = [f"### {tool.script}", "", f"`pykraft {tool.command}`: {_summary(command)}", ""]
    if same:
        lines += [f"- as in Kafka: {_code(same)}"]
    lines += [f"- renamed: `{flag}` is `{said[1:]}`" for flag, said in tool.flags.items() if said[:1] == "="]
    refused = [flag for flag in tool.flags if tool.option(flag) is None]
    for reason in dict.fromkeys(tool.flags[flag] for flag in refused):
        flags = [flag for flag in refused if tool.flags[flag] == reason]
        lines.append(f"- not here: {_code(flags)}: {reason}")
    taken = {tool.option(flag) for flag in tool.flags} | tool.flags.keys()
    more = [
        name
        for it in command.params
        if isinstance(it, click.Option) and not it.hidden
        for name in it.opts
        if name not in taken
    ]
    if more:
        lines.append(f"- only here: {_code(more)}")
    return [*lines, ""]


def _summary(command: click.Command) -> str:
    return " ".join((command.help or "").strip().partition("\n\n")[0].split())


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
