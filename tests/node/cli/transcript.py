"""Commands of ``pykraft`` and what they say, as ``tests/node/transcripts/*.txt`` have it.

``== name`` begins a test. ``$ words`` is a command, as in a shell: a backslash at its end goes on in the next
line; ``NAME=value`` before it sets the environment, and alone for all that follows. ``file name`` writes one.
Both take the lines that begin with ``< ``. What follows a command is what it prints, ``! `` before a line of
the standard error, and ``[1]`` if that is its status. ``…`` is any text, alone any lines. ``<name>`` is one
word, the same wherever it stands again, in commands, too. Runs of spaces are compared as one, empty lines not
at all; ``#`` is a comment. The keys of JSON must be in camel case.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from pykraft.node.cli.root import cli

_NAME: Final = re.compile(r"<([a-z]+)>")
_DATA: Final = ("configs", "current", "proposed")
"""Keys of what is not ours to name: configurations, Kafka's files of replicas."""
_WORD: Final = r"""[^\s"',\]}]+"""


@dataclass(slots=True)
class Step:
    """A command or a file, and what is said of it."""

    line: int
    words: str
    given: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    status: int = 0


def read_transcripts(path: Path) -> dict[str, list[Step]]:
    """By the names of the tests."""
    tests: dict[str, list[Step]] = {}
    steps: list[Step] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.startswith("== "):
            assert line[3:] not in tests, f"{path}:{number}: {line[3:]} is there twice"
            steps = tests[line[3:]] = []
        elif re.match(r"\$ |file |[A-Z_]+=", line):
            steps.append(Step(number, line))
        elif not steps or line.startswith("#"):
            assert not line or line.startswith("#"), f"{path}:{number}: of no test"
        elif (step := steps[-1]).words.endswith("\\"):
            step.words = step.words[:-1] + line.strip()
        elif line.startswith("< "):
            step.given.append(line[2:])
        elif line.startswith("! "):
            step.errors.append(line[2:])
        elif status := re.fullmatch(r"\[(\d+)\]", line):
            step.status = int(status[1])
        elif line:
            step.output.append(line)
    return tests


def play(path: Path, steps: list[Step], directory: Path, known: Mapping[str, str]) -> None:
    """Run the commands in order; ``known``: what names stand for from the beginning."""
    values, everywhere = dict(known), dict[str, str | None]()
    for step in steps:
        words, given = _filled(step.words, values), _filled("".join(f"{it}\n" for it in step.given), values)
        if words.startswith("file "):
            (directory / words[5:]).write_text(given, "utf-8")
            continue
        arguments, environment = shlex.split(words.removeprefix("$ ")), everywhere.copy()
        while arguments and re.match(r"[A-Z_]+=", arguments[0]):
            name, _, value = arguments.pop(0).partition("=")
            environment[name] = value or None
        if not arguments:
            everywhere = environment
            continue
        done = CliRunner().invoke(cli, arguments, given, environment, prog_name="pykraft")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        errors = "".join(f"! {line}\n" for line in done.stderr.splitlines())
        said = f"{path}:{step.line}: {words}\n{done.stdout}{errors}[{done.exit_code}]"
        for expected, found in ((step.output, done.stdout), (step.errors, done.stderr)):
            match = re.fullmatch(_pattern(expected, values), _as_compared(found))
            assert match, said
            values |= match.groupdict()
        assert done.exit_code == step.status, said
        if "--json" in arguments:
            keys = {key for line in done.stdout.splitlines() for key in _keys(json.loads(line))}
            assert all(re.fullmatch("[a-z][A-Za-z0-9]*", key) for key in keys), said


def _keys(value: object) -> set[str]:
    if isinstance(value, list):
        return set[str]().union(*map(_keys, value))
    if isinstance(value, dict):
        return set(value).union(*(_keys(it) for key, it in value.items() if key not in _DATA))
    return set()


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _NAME.sub(lambda name: values.get(name[1], name[0]), text)


def _as_compared(text: str) -> str:
    return "".join(f"{re.sub(' +', ' ', line.rstrip())}\n" for line in text.splitlines() if line.strip())


def _pattern(lines: list[str], values: Mapping[str, str]) -> str:
    named: set[str] = set()

    def part(text: str) -> str:
        name = _NAME.fullmatch(text)
        if name is None or name[1] in values:
            return "[^\n]*" if text == "…" else re.escape(_filled(text, values))
        if name[1] in named:
            return f"(?P={name[1]})"
        named.add(name[1])
        return f"(?P<{name[1]}>{_WORD})"

    found = ""
    for line in map(_as_compared, lines):
        parts = map(part, re.split("(…|<[a-z]+>)", line))
        found += "(?:[^\n]*\n)*?" if line == "…\n" else "".join(parts)
    return found
