"""``pykraft metadata-shell``: browse a metadata log or snapshot like a file system. Kafka's commands."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import click

from pykraft.kafka_protocol.errors import KafkaError
from pykraft.metadata_log.offline import read_image
from pykraft.metadata_log.shell_tree import Directory, File, Node, build_tree, resolve, walk
from pykraft.node.cli.shared.common import version_option
from pykraft.runtime.os_disk import OsDisk

_COMMANDS: Final = {
    "cat": ("cat PATH…", "print files"),
    "cd": ("cd [PATH]", "change the working directory"),
    "exit": ("exit, quit", "leave"),
    "find": ("find [PATH…]", "print the path of everything below"),
    "help": ("help", "print this"),
    "history": ("history [COUNT]", "print the newest commands, or all"),
    "ls": ("ls [PATH…]", "list directories and files"),
    "man": ("man COMMAND", "print what one command does"),
    "pwd": ("pwd", "print the working directory"),
    "tree": ("tree [PATH…]", "print directories and everything below them, files with their contents"),
}
_ABOUT_PATHS: Final = "Paths may contain *, ? and []."


@click.command()
@click.option("--snapshot", "-s", metavar="FILE", help="A snapshot (.checkpoint) or a segment (.log).")
@click.option("--directory", metavar="DIR", help="A metadata log directory (…/__cluster_metadata-0).")
@click.argument("words", nargs=-1, metavar="[COMMAND]…")
@version_option()
def command(snapshot: str | None, directory: str | None, words: tuple[str, ...]) -> None:
    """Browse a metadata log or snapshot: run COMMAND, or read commands from the terminal."""
    path = snapshot or directory
    if path is None or (snapshot and directory):
        raise click.UsageError("give one of --snapshot, --directory")
    try:
        image = read_image(OsDisk(read_only=True), path.rstrip("/"))
    except (OSError, ValueError, KafkaError) as error:
        raise click.ClickException(str(error)) from None
    shell = Shell(build_tree(image), click.echo)
    if words:
        if not shell.run(words):
            sys.exit(1)
        return
    _read_commands(shell)


def _read_commands(shell: Shell) -> None:
    """Read commands until ``exit`` or the end of the input; with line editing if Python has it."""
    if sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline

            readline.set_completer(shell.complete)
            readline.set_completer_delims(" \t")
            readline.parse_and_bind("tab: complete")
    while not shell.is_done:
        try:
            line = input(f"{shell.directory}> " if sys.stdin.isatty() else "")
        except (EOFError, KeyboardInterrupt):
            return
        try:
            words = shlex.split(line)
        except ValueError as error:
            click.echo(str(error), err=True)
            continue
        if words:
            shell.history.append(line.strip())
            shell.run(words)


class Shell:
    """A working directory in the tree, and the commands on it."""

    def __init__(self, root: Directory, echo: Callable[[str], None]) -> None:
        self._root = root
        self._echo = echo
        self.directory = "/"
        self.history: list[str] = []
        self.is_done = False

    def run(self, words: Sequence[str]) -> bool:
        """Run one command; False if it failed, after printing why."""
        name, arguments = words[0], words[1:]
        match name:
            case "ls":
                return self._for_each(arguments or ["."], self._list)
            case "cat":
                return self._for_each(arguments, self._cat) if arguments else self._fail("cat: name a file")
            case "tree":
                return self._for_each(arguments or ["."], self._tree)
            case "find":
                return self._for_each(arguments or ["."], self._find)
            case "cd":
                return self._change_directory(arguments)
            case "pwd":
                self._echo(self.directory)
            case "help":
                self._help(_COMMANDS)
            case "man":
                return self._man(arguments)
            case "history":
                return self._print_history(arguments)
            case "exit" | "quit":
                self.is_done = True
            case _:
                return self._fail(f"{name}: no such command; help lists all")
        return True

    def _help(self, names: Iterable[str]) -> None:
        for name in names:
            usage, does = _COMMANDS[name]
            self._echo(f"{usage:<16} {does}")
        self._echo(_ABOUT_PATHS)

    def _man(self, arguments: Sequence[str]) -> bool:
        if len(arguments) != 1 or arguments[0] not in _COMMANDS:
            return self._fail(f"man: name one of {', '.join(_COMMANDS)}")
        self._help(arguments)
        return True

    def _print_history(self, arguments: Sequence[str]) -> bool:
        count = len(self.history)
        if arguments:
            if len(arguments) > 1 or not arguments[0].isdecimal():
                return self._fail("history: give one number, or none")
            count = int(arguments[0])
        numbered = list(enumerate(self.history, 1))
        for number, line in numbered[max(0, len(numbered) - count) :]:
            self._echo(f"{number:5}  {line}")
        return True

    def complete(self, text: str, state: int) -> str | None:
        """The ``state``-th path that begins with ``text``, for readline."""
        matches = []
        for path, node in resolve(self._root, self._absolute(f"{text}*")):
            shown = path if text.startswith("/") else path.removeprefix(self.directory).lstrip("/")
            matches.append(f"{shown}/" if isinstance(node, Directory) else shown)
        return matches[state] if state < len(matches) else None

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.directory}/{path}"

    def _fail(self, message: str) -> bool:
        click.echo(message, err=True)
        return False

    def _for_each(self, paths: Sequence[str], action: Callable[[str, Node], bool]) -> bool:
        all_well = True
        for path in paths:
            found = resolve(self._root, self._absolute(path))
            if not found:
                all_well = self._fail(f"{path}: no such file or directory")
            for at, node in found:
                if len(paths) + len(found) > 2 and action == self._list and isinstance(node, Directory):
                    self._echo(f"{at}:")
                all_well = action(at, node) and all_well
        return all_well

    def _list(self, path: str, node: Node) -> bool:
        if isinstance(node, File):
            self._echo(path)
        else:
            for name, child in node.entries().items():
                self._echo(f"{name}/" if isinstance(child, Directory) else name)
        return True

    def _cat(self, path: str, node: Node) -> bool:
        if isinstance(node, Directory):
            return self._fail(f"{path}: is a directory")
        self._echo(node.text)
        return True

    def _tree(self, path: str, node: Node) -> bool:
        for depth, at, found in walk(path, node):
            indent, name = "  " * depth, at.rsplit("/", 1)[-1]
            self._echo(f"{indent}{name}{'/' if isinstance(found, Directory) else ':'}")
            if isinstance(found, File):
                for line in found.text.splitlines():
                    self._echo(f"{indent}  {line}")
        return True

    def _find(self, path: str, node: Node) -> bool:
        for _, at, _ in walk(path, node):
            self._echo(at)
        return True

    def _change_directory(self, arguments: Sequence[str]) -> bool:
        if len(arguments) > 1:
            return self._fail("cd: name one directory")
        path = arguments[0] if arguments else "/"
        found = resolve(self._root, self._absolute(path))
        if len(found) != 1 or isinstance(found[0][1], File):
            return self._fail(f"{path}: not a directory" if found else f"{path}: no such file or directory")
        self.directory = found[0][0]
        return True
