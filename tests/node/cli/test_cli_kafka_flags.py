"""What is said about Kafka's scripts is true of the commands; every command has the options that all have."""

from collections.abc import Iterator

import click
import pytest

from pykraft.node.cli.kafka_scripts.flags import NOT_PROVIDED, TOOLS, KafkaTool
from pykraft.node.cli.root import cli
from tests.tools_page import find_command, option_names

WITHOUT_JSON = {
    "server start": "runs until it is stopped",
    "metadata-shell": "is a shell",
    "transactions abort": "prints nothing",
    "transactions forceTerminateTransaction": "prints nothing",
}
APART = ("dev", "jepsen", "spark", "producer", "consumer", "verifiable-")
"""No tools for administrators, or with formats of their own."""


def leaves(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its words."""
    for name in group.list_commands(click.Context(group)):
        if not words and name.startswith(APART) and name != "consumer-groups":
            continue
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


COMMANDS = dict(leaves(cli))


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.script)
def test_every_flag_is_there_or_refused_with_a_reason(tool: KafkaTool) -> None:
    names = option_names(find_command(tool.command))
    for flag, said in tool.flags.items():
        option = tool.option(flag)
        assert option in names if option is not None else " " in said, (flag, said)


def test_every_script_is_named_once() -> None:
    scripts = [tool.script for tool in TOOLS]
    assert len(set(scripts)) == len(scripts)
    assert not {script.split()[0] for script in scripts} & NOT_PROVIDED.keys()


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_that_prints_a_result_can_print_json(words: str) -> None:
    assert ("--json" in option_names(COMMANDS[words])) == (words not in WITHOUT_JSON)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_that_asks_a_cluster_takes_a_properties_file(words: str) -> None:
    names = [*option_names(find_command(words.split()[0])), *option_names(COMMANDS[words])]
    assert ("--bootstrap-server" in names) == ("--command-config" in names)
