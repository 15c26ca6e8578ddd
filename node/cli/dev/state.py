"""A running development cluster: its summary, and the traces a detached one leaves.

``pykraft dev status``, ``stop`` and ``logs`` use them. A detached cluster has a directory of its own under
``~/.local/state/pykraft/dev`` (``XDG_STATE_HOME``), which it holds by a lock as long as it runs: so whether
it runs is never guessed from a process id, which another process may have by now.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import click

from pykraft.runtime.directory_lock import LOCK_FILE, DirectoryInUseError, DirectoryLock

STATE_FILE: Final = "state.json"
LOG_FILE: Final = "log"
TEMPORARY_FILE: Final = "temporary"
"""The path of the temporary directory, as bytes: written before there is a directory."""
TEMPORARY_PREFIX: Final = "pykraft-dev-"
"""Begins the name of the directory of a cluster that is not given one."""
MAX_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class DevNode:
    """One node; ``http`` is None if it serves no metrics."""

    id: int
    address: str
    process_id: int
    http: str | None


@dataclass(frozen=True, slots=True)
class DevState:
    """``process_id``: of the process to stop. ``is_temporary``: the data are removed when it stops."""

    bootstrap_servers: str
    bootstrap_controllers: str
    nodes: tuple[DevNode, ...]
    data_dir: str
    is_temporary: bool
    process_id: int
    started_ms: int

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """:class:`ValueError` if ``text`` is something else."""
        try:
            fields = json.loads(text)
            nodes = tuple(DevNode(**node) for node in fields.pop("nodes"))
            return cls(nodes=nodes, **fields)
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not the state of a cluster: {error}") from None


class Home:
    """The directory of the detached cluster with this name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = homes() / name
        self.log = self.path / LOG_FILE

    def make(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def hold(self) -> DirectoryLock:
        """For as long as the cluster runs. :class:`DirectoryInUseError` if another holds it."""
        return DirectoryLock(str(self.path))

    @property
    def is_held(self) -> bool:
        """Whether the cluster runs, or is just starting or stopping."""
        if not (self.path / LOCK_FILE).exists():
            return False
        try:
            self.hold().release()
        except DirectoryInUseError:
            return True
        return False

    def write(self, state: DevState) -> None:
        made = self.path / f"{STATE_FILE}.tmp"
        made.write_text(state.to_json(), encoding="utf-8")
        made.replace(self.path / STATE_FILE)

    def read(self) -> DevState | None:
        """None while it starts, or if it has never run."""
        try:
            return DevState.from_json((self.path / STATE_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise click.ClickException(f"{self.path / STATE_FILE}: {error}") from None

    def make_temporary(self) -> Path:
        """The new path is known here first: whenever the process is killed, :meth:`forget` finds it."""
        directory = new_temporary_path()
        (self.path / TEMPORARY_FILE).write_bytes(os.fsencode(directory))
        directory.mkdir(mode=0o700)
        return directory

    def forget(self) -> bool:
        """Only the log is kept: the temporary directory goes, too. False, and nothing is changed, as long as
        nodes use that: those of a cluster that was killed are still stopping.
        """
        with suppress(FileNotFoundError):
            directory = Path(os.fsdecode((self.path / TEMPORARY_FILE).read_bytes()))
            if directory.name.startswith(TEMPORARY_PREFIX):
                if not _is_free(directory):
                    return False
                shutil.rmtree(directory, ignore_errors=True)
        for name in (STATE_FILE, TEMPORARY_FILE):
            (self.path / name).unlink(missing_ok=True)
        return True


def _is_free(directory: Path) -> bool:
    """Whether no node holds its own directory in this one."""
    try:
        for lock in directory.glob(f"*/{LOCK_FILE}"):
            DirectoryLock(str(lock.parent)).release()
    except DirectoryInUseError:
        return False
    return True


def new_temporary_path() -> Path:
    return Path(tempfile.gettempdir(), TEMPORARY_PREFIX + os.urandom(8).hex())


def homes() -> Path:
    """Where detached clusters have their directories."""
    state_home = os.environ.get("XDG_STATE_HOME")
    return (Path(state_home) if state_home else Path.home() / ".local" / "state") / "pykraft" / "dev"


def known_homes() -> Iterator[Home]:
    """The homes of all clusters that have been detached."""
    if homes().is_dir():
        for path in sorted(homes().iterdir()):
            yield Home(path.name)


def check_name(context: click.Context, parameter: click.Parameter, name: str) -> str:
    """A callback for options: the name becomes a directory."""
    if not (0 < len(name) <= MAX_NAME and name[0].isalnum() and set(name) <= _NAME_CHARS):
        raise click.BadParameter(f"letters, digits, '.', '_' and '-', at most {MAX_NAME}")
    return name


_NAME_CHARS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
