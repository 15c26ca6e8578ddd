"""``pykraft server start`` without the parser of command lines, whose import takes a twentieth of a start.

Only a command line that needs no explanation is run here: a file, and options with values. Any other, such as
one with a mistake or ``--help``, is left to :mod:`pykraft.node.cli.server`, which has the same options.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pykraft.configuration.keys import ConfigError
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.node.cli.shared.logging_setup import set_up_logging
from pykraft.node.config import load_server_config
from pykraft.node.errors import StartError
from pykraft.node.os_errors import describe, is_users
from pykraft.node.run import run_nodes


class PlainStart(NamedTuple):
    """A start as its command line asks for it."""

    properties_file: str
    overrides: Mapping[str, str]
    supervisor_fd: int | None


def read_plainly(arguments: Sequence[str]) -> PlainStart | None:
    """Read the words after ``server start``; None if they are more than a file and well-formed options."""
    files: list[str] = []
    overrides: dict[str, str] = {}
    supervisor_fd: int | None = None
    rest = iter(arguments)
    for argument in rest:
        if argument == "--override":
            key, separator, value = next(rest, "").partition("=")
            if not separator or not key:
                return None
            overrides[key.strip()] = value
        elif argument == "--supervisor-fd":
            number = next(rest, "")
            if not (number.isascii() and number.isdecimal()):
                return None
            supervisor_fd = int(number)
        elif argument.startswith("-"):
            return None
        else:
            files.append(argument)
    return PlainStart(files[0], overrides, supervisor_fd) if len(files) == 1 else None


def run_plainly(arguments: Sequence[str]) -> int | None:
    """The exit code of the node, or None if the command line is left to the parser; says what is wrong."""
    asked = read_plainly(arguments)
    if asked is None:
        return None
    try:
        return start_node(*asked)
    except (ConfigError, KafkaError, StartError) as error:
        print(f"Error: {error}", file=sys.stderr)
    except OSError as error:
        if not is_users(error):
            raise
        print(f"Error: {describe(error)}", file=sys.stderr)
    except KeyboardInterrupt:
        print("Aborted!", file=sys.stderr)
    return 1


def start_node(properties_file: str, overrides: Mapping[str, str], supervisor_fd: int | None) -> int:
    """Run a node until it is stopped; returns the exit code of the process."""
    set_up_logging(name="" if supervisor_fd is None else Path(properties_file).stem)
    try:
        text = Path(properties_file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {describe(error, properties_file)}") from None
    config = load_server_config(text, overrides)
    if supervisor_fd is None:
        return run_nodes([config])
    with socket.socket(fileno=supervisor_fd) as supervisor:

        def notify(_: object) -> None:
            with contextlib.suppress(OSError):  # the supervisor has ended: that stops the node anyway
                supervisor.send(b"\n")

        return run_nodes([config], notify, supervisor=supervisor)
