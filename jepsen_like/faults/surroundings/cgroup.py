"""Control groups of the run's own, one for each node: little processor time, little memory.

Both versions of the kernel's interface: directories of version 1 below those of the runner, one for each
controller, or one of version 2 at the top. Directories do not vanish with the run. They carry the runner's
process id and start time, so that a later run can tell whose run is gone, and removes them.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pykraft.testing.processes.keeper import start_time

_PREFIX: Final = "pykraft-jepsen-"
_PERIOD_US: Final = 100_000
_MOUNTS: Final = Path("/proc/self/mounts")
_OWN_GROUPS: Final = Path("/proc/self/cgroup")


class CgroupError(RuntimeError):
    """There are no control groups for this run; the message says why."""


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Below which directories runs make theirs. With version 2 the two are the same."""

    cpu: Path
    memory: Path
    is_unified: bool

    @property
    def directories(self) -> tuple[Path, ...]:
        return (self.cpu,) if self.is_unified else (self.cpu, self.memory)


def find_hierarchies(mounts: Path = _MOUNTS, own_groups: Path = _OWN_GROUPS) -> Hierarchies:
    """:class:`CgroupError` if there are none for processor time and memory, or none that may be changed."""
    if not mounts.exists():
        raise CgroupError("no control groups")
    unified: Path | None = None
    by_controller: dict[str, Path] = {}
    own = dict(_own_paths(own_groups.read_text(encoding="utf-8").splitlines()))
    for line in mounts.read_text(encoding="utf-8").splitlines():
        _, place, kind, options, *_ = line.split(" ")
        if kind == "cgroup2":
            unified = Path(place)
        elif kind == "cgroup":
            for controller in {"cpu", "memory"} & set(options.split(",")):
                below = Path(place) / own.get(controller, "/").lstrip("/")
                # In a container the path may be that of the machine, and mounted elsewhere.
                by_controller[controller] = below if below.is_dir() else Path(place)
    if len(by_controller) == 2:
        found = Hierarchies(by_controller["cpu"], by_controller["memory"], is_unified=False)
    elif unified is not None and {"cpu", "memory"} <= set(_controllers(unified)):
        found = Hierarchies(unified, unified, is_unified=True)
    else:
        raise CgroupError("no control groups for processor time and memory")
    for directory in found.directories:
        if not os.access(directory, os.W_OK):
            raise CgroupError(f"{directory} may not be written to")
    return found


def _own_paths(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The runner's group by controller."""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        yield from ((controller, path) for controller in controllers.split(","))


def _controllers(directory: Path) -> list[str]:
    file = directory / "cgroup.controllers"
    return file.read_text(encoding="ascii").split() if file.exists() else []


class Cgroups:
    """``name`` tells this run's directories from those of other runs of the same process."""

    def __init__(self, hierarchies: Hierarchies, node_ids: Sequence[int], name: str = "1") -> None:
        self._hierarchies = hierarchies
        self._node_ids = tuple(node_ids)
        self._run = f"{_PREFIX}{os.getpid()}-{start_time(os.getpid())}-{name}"

    def make(self) -> None:
        """:class:`CgroupError` if the kernel refuses one."""
        try:
            for top in self._hierarchies.directories:
                run = top / self._run
                run.mkdir()
                if self._hierarchies.is_unified:
                    for directory in (top, run):
                        (directory / "cgroup.subtree_control").write_text("+cpu +memory", encoding="ascii")
                for node_id in self._node_ids:
                    (run / _name(node_id)).mkdir()
        except OSError as error:
            raise CgroupError(str(error)) from error

    def prefix(self, node_id: int) -> tuple[str, ...]:
        """Return the words before a node's command, so that its process is born in its groups."""
        groups = {self._cpu(node_id), self._memory(node_id)}
        join = " && ".join(f"echo $$ > '{group}/cgroup.procs'" for group in sorted(groups))
        return ("sh", "-c", f'{join} && exec "$@"', "sh")

    def limit_cpu(self, node_id: int, share: float | None) -> None:
        """``share`` of one processor, at least 0.01; None: no limit."""
        quota_us = None if share is None else max(1_000, round(share * _PERIOD_US))
        if self._hierarchies.is_unified:
            text = f"{'max' if quota_us is None else quota_us} {_PERIOD_US}"
            _write(self._cpu(node_id) / "cpu.max", text)
        else:
            _write(self._cpu(node_id) / "cpu.cfs_period_us", str(_PERIOD_US))
            _write(self._cpu(node_id) / "cpu.cfs_quota_us", str(-1 if quota_us is None else quota_us))

    def limit_memory(self, node_id: int, limit_bytes: int | None) -> None:
        """Limit the node's own memory together with the page cache of its files, which is given up first.

        OSError if what the node needs now cannot be brought below the limit."""
        if self._hierarchies.is_unified:
            limit = "max" if limit_bytes is None else str(limit_bytes)
            _write(self._memory(node_id) / "memory.max", limit)
        else:
            limit = str(-1 if limit_bytes is None else limit_bytes)
            _write(self._memory(node_id) / "memory.limit_in_bytes", limit)

    def resident_bytes(self, node_id: int) -> int:
        """The node's own memory, without the page cache."""
        stat = (self._memory(node_id) / "memory.stat").read_text(encoding="ascii")
        fields = dict(line.split() for line in stat.splitlines())
        return int(fields["anon" if self._hierarchies.is_unified else "rss"])

    def close(self) -> None:
        """Remove the directories; no process is in them any more. May be called twice."""
        for top in self._hierarchies.directories:
            _remove(top / self._run)

    def _cpu(self, node_id: int) -> Path:
        return self._hierarchies.cpu / self._run / _name(node_id)

    def _memory(self, node_id: int) -> Path:
        return self._hierarchies.memory / self._run / _name(node_id)


def remove_leftovers(hierarchies: Hierarchies) -> list[Path]:
    """Remove the directories of runs that are gone; which those were."""
    removed = []
    for top in hierarchies.directories:
        for run in top.glob(f"{_PREFIX}*"):
            pid, started = run.name.removeprefix(_PREFIX).split("-")[:2]
            if start_time(int(pid)) != int(started):
                with contextlib.suppress(OSError):  # a process is inside: not ours to end
                    _remove(run)
                    removed.append(run)
    return removed


def _remove(run: Path) -> None:
    for directory in (*run.glob("node-*"), run):
        if directory.is_dir():
            directory.rmdir()


def _write(file: Path, text: str) -> None:
    file.write_text(text, encoding="ascii")


def _name(node_id: int) -> str:
    return f"node-{node_id}"
