"""``pykraft kafka-scripts``: launchers under the names of Kafka's scripts, so that scripts which were written for
those run unchanged.

A launcher is a few lines of shell that start one command with the interpreter that wrote it. It is known by its
second line; a file without that line belongs to somebody else and is never touched.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import click

from pykraft.node.cli.kafka_scripts.flags import TOOLS
from pykraft.node.cli.shared.common import FC, json_option, print_json, wants_json

_MARK: Final = "# A launcher of pykraft: `pykraft kafka-scripts` writes, lists and removes it."
_SUFFIXES: Final = ("", ".sh")
_COMMAND: Final = "# command: "


def launchers() -> dict[str, str]:
    """The names of the launchers, each with the command that it starts."""
    commands = {}
    for tool in TOOLS:
        script, *words = tool.script.split()
        # The words after the script's name follow on its command line.
        command = tool.command.split()
        commands[script] = " ".join(command[: len(command) - len(words)])
    return {f"{script}{suffix}": command for script, command in commands.items() for suffix in _SUFFIXES}


@click.group()
def command() -> None:
    """Write launchers under the names of Kafka's scripts: kafka-topics, kafka-topics.sh and so on."""


def _directory(*, exists: bool) -> Callable[[FC], FC]:
    return click.argument("directory", type=click.Path(exists=exists, file_okay=False, path_type=Path))


@command.command()
@_directory(exists=False)
@json_option
def install(directory: Path) -> None:
    """Write launchers to DIRECTORY, for this Python.

    Launchers that are there are replaced. If there is any other file of such a name, nothing is written.
    """
    _check_installed()
    wanted = launchers()
    foreign = [name for name in wanted if _exists(directory / name) and _command_of(directory / name) is None]
    if foreign:
        raise click.ClickException(
            f"nothing was written: {directory} has other files named {', '.join(foreign)}"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, words in wanted.items():
            _write(directory / name, words)
    except OSError as error:
        raise click.ClickException(f"cannot write to {directory}: {error.strerror}") from None
    if wants_json():
        print_json(_as_objects(directory))
    else:
        click.echo(f"Wrote {len(wanted)} launchers to {directory}.")


@command.command("list")
@_directory(exists=True)
@json_option
def list_command(directory: Path) -> None:
    """Show the launchers in DIRECTORY, and the command that each starts."""
    if wants_json():
        print_json(_as_objects(directory))
        return
    for path, words in _found(directory):
        click.echo(f"{path.name}: pykraft {words}")


@command.command()
@_directory(exists=True)
@json_option
def remove(directory: Path) -> None:
    """Remove the launchers from DIRECTORY; other files stay."""
    removed = [path for path, _ in _found(directory)]
    try:
        for path in removed:
            path.unlink()
    except OSError as error:
        raise click.ClickException(f"cannot remove {error.filename}: {error.strerror}") from None
    if wants_json():
        print_json([path.name for path in removed])
    else:
        click.echo(f"Removed {len(removed)} launchers from {directory}.")


def _check_installed() -> None:
    """A launcher works in any directory, and in an environment that knows nothing of this process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    probe = [sys.executable, "-P", "-c", "import pykraft.node"]
    done = subprocess.run(probe, cwd="/", env=environment, capture_output=True, check=False)
    if done.returncode != 0:
        raise click.ClickException(
            f"{sys.executable} finds pykraft in this directory, or by PYTHONPATH, only: install pykraft there first"
        )


def _write(path: Path, words: str) -> None:
    """Under another name first: somebody may be running the launcher that it replaces."""
    start = shlex.join([sys.executable, "-P", "-m", "pykraft.node", *words.split()])
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(f'#!/bin/sh\n{_MARK}\n{_COMMAND}{words}\nexec {start} "$@"\n', encoding="utf-8")
    draft.chmod(0o755)
    draft.replace(path)


def _exists(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def _found(directory: Path) -> Iterator[tuple[Path, str]]:
    for name in launchers():
        words = _command_of(directory / name)
        if words is not None:
            yield directory / name, words


def _command_of(path: Path) -> str | None:
    """The command that a launcher starts; None for anything else."""
    try:
        lines = path.read_text("utf-8").splitlines() if path.is_file() and not path.is_symlink() else []
    except (OSError, UnicodeDecodeError):
        return None
    if len(lines) < 4 or lines[1] != _MARK:
        return None
    return lines[2].removeprefix(_COMMAND)


def _as_objects(directory: Path) -> list[dict[str, str]]:
    return [{"script": path.name, "command": words} for path, words in _found(directory)]
