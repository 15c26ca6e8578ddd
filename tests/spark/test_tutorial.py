"""The tutorial is true: its cells are run in order, and print what the page shows.

After a change that alters the output, rewrite it with ``PYKRAFT_REWRITE_DOCS=1`` and read the diff.
"""

import io
import os
import re
import shlex
from code import InteractiveConsole
from collections.abc import Mapping
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from click.testing import CliRunner

from pykraft.node.cli.root import cli
from pykraft.spark.jobs import session as session_of_jobs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.interop, pytest.mark.spark]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial-spark.md"
CELL = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
BOOTSTRAP_SERVER = "127.0.0.1:9092"
DIRECTORY = "/tmp/tutorial"
NOT_RUN = ("make setup", "pykraft dev", ". .venv/bin/activate", "export ", "rm -r ")
"""Commands that the fixtures stand for."""


class Cell(NamedTuple):
    language: str
    code: str
    output: str | None
    """None: the page shows none, and the cell must print nothing."""


@pytest.fixture
def places(servers: str, tmp_path: Path) -> Mapping[str, str]:
    """What the page says, and what is meant here."""
    return {BOOTSTRAP_SERVER: servers, DIRECTORY: str(tmp_path)}


@pytest.fixture
def _jobs_in_shared_session(spark_session: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """A job would stop the session at its end."""
    monkeypatch.setattr(session_of_jobs, "job_session", lambda *_: nullcontext(spark_session))


def put(text: str, places: Mapping[str, str]) -> str:
    for said, meant in places.items():
        text = text.replace(said, meant)
    return text


class Prompt(InteractiveConsole):
    """That of Python, but that errors are raised."""

    def showtraceback(self) -> None:
        raise

    def showsyntaxerror(self, *_: Any, **__: Any) -> None:
        raise


def run_python(code: str, prompt: Prompt) -> str:
    """What is printed when the lines of a cell are typed."""
    with redirect_stdout(io.StringIO()) as printed:
        for line in [*code.splitlines(), ""]:
            is_incomplete = prompt.push(line)
    assert not is_incomplete, code
    return printed.getvalue()


def run_shell(code: str, servers: str) -> str:
    """What commands print, each a line; a failure is an error unless the line tells of it."""
    printed = ""
    for line in code.splitlines():
        if line.startswith(NOT_RUN):
            continue
        command, _, if_failed = line.partition(" || ")
        program, *arguments = shlex.split(command)
        assert program == "pykraft", line
        result = CliRunner(env={"PYKRAFT_BOOTSTRAP_SERVER": servers}).invoke(cli, arguments)
        printed += result.stdout
        if if_failed:
            assert if_failed == 'echo "status $?"'
            printed += f"status {result.exit_code}\n"
        else:
            assert result.exit_code == 0, f"{line}: {result.output}"
    return printed


@pytest.mark.usefixtures("spark_session", "_jobs_in_shared_session")
def test_cells_print_what_the_page_shows(places: Mapping[str, str]) -> None:
    page, prompt = PAGE.read_text(encoding="utf-8"), Prompt()
    back = {meant: said for said, meant in places.items()}

    def run_cell(match: re.Match[str]) -> str:
        cell = Cell(*match.groups())
        code = put(cell.code, places)
        is_python = cell.language == "python"
        printed = run_python(code, prompt) if is_python else run_shell(code, places[BOOTSTRAP_SERVER])
        printed = put(printed, back).strip("\n")
        if not os.environ.get("PYKRAFT_REWRITE_DOCS"):
            assert printed == (cell.output or "").strip("\n"), f"of this cell:\n{cell.code}"
        shown = f"\n```text\n{printed}\n```\n" if printed else ""
        return f"```{cell.language}\n{cell.code}```\n{shown}"

    rewritten = CELL.sub(run_cell, page)
    prompt.locals.clear()  # the page's producer ends before its node
    if os.environ.get("PYKRAFT_REWRITE_DOCS"):
        PAGE.write_text(rewritten, encoding="utf-8")
