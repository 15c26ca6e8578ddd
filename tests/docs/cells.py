"""The fenced blocks of a page, run in order in one shell, and what they print compared with what it shows."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

_CELL: Final = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
_END: Final = "end of the cell:"
REWRITES: Final = bool(os.environ.get("PYKRAFT_REWRITE_DOCS"))


class Shell:
    """One shell for all cells, in ``directory``; Python's cells run as scripts, with the same environment.

    ``replaced``: what the page says, and what is meant here. What varies is made equal by ``varies``: regular
    expressions. ``not_run``: beginnings of lines that the test stands for. With PYKRAFT_REWRITE_DOCS the page
    is given what was printed.
    """

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str],
        replaced: Mapping[str, str],
        varies: Sequence[str],
        not_run: Sequence[str] = (),
    ) -> None:
        self.printed: list[str] = []
        """Of each cell."""
        self._replaced = replaced
        self._varies = re.compile("|".join(varies))
        self._not_run = tuple(not_run)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # As on a terminal: what is printed first comes first, on either stream.
        everywhere = {**os.environ, **environment, "PATH": path, "PYTHONUNBUFFERED": "1", "LC_ALL": "C.UTF-8"}
        self._process = subprocess.Popen(
            ["bash"],
            cwd=directory,
            env=everywhere,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in: IO[str] = self._process.stdin
        self._out: IO[str] = self._process.stdout

    def run_page(self, page: Path, after_cell: Callable[[int], None] = lambda _: None) -> None:
        """Run all cells; ``after_cell`` is told the number of each."""
        text = page.read_text(encoding="utf-8")

        def run_cell(cell: re.Match[str]) -> str:
            language, code, shown = cell.groups()
            printed = self.run(language, code)
            self.printed.append(printed)
            after_cell(len(self.printed) - 1)
            if self._made_equal(printed) == self._made_equal(shown or ""):
                return cell[0]
            assert REWRITES, f"of this cell:\n{code}\nis shown:\n{shown}\nwas printed:\n{printed}"
            block = f"\n```text\n{printed}```\n" if printed else ""
            return f"```{language}\n{code}```\n{block}"

        rewritten = _CELL.sub(run_cell, text)
        if REWRITES:
            page.write_text(rewritten, encoding="utf-8")

    def run(self, language: str, code: str) -> str:
        """What a cell prints, in the page's words."""
        lines = [line for line in code.splitlines() if not line.startswith(self._not_run)]
        here = self._put("\n".join(lines), self._replaced.items())
        command = here if language == "sh" else f"python3 - <<'END OF CELL'\n{here}\nEND OF CELL"
        self._in.write(f"{command}\necho '{_END}' $?\n")
        self._in.flush()
        printed = ""
        while not (line := self._out.readline()).startswith(_END):
            assert line, f"the shell has ended in this cell:\n{here}\n{printed}"
            printed += line
        assert line.split()[-1] == "0", f"this cell fails:\n{here}\n{printed}"
        # Pages have no spaces at the ends of lines.
        printed = "".join(f"{line.rstrip()}\n" for line in printed.splitlines())
        return self._put(printed, [(meant, said) for said, meant in self._replaced.items()])

    def end(self) -> None:
        """The shell and what it runs in the background end, whatever they do."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with suppress(BrokenPipeError):
            self._in.close()
        self._out.close()

    @staticmethod
    def _put(text: str, replaced: Iterable[tuple[str, str]]) -> str:
        for old, new in replaced:
            text = text.replace(old, new)
        return text

    def _made_equal(self, text: str) -> str:
        return "\n".join(self._varies.sub("…", line).rstrip() for line in text.strip().splitlines())
