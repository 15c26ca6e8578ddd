"""The log directories of one broker, which of them work (KIP-112), and which get no new logs (KIP-1066).

A directory that fails is not used again before the next start: what its disk still holds is as it was at the
failure, and only a start checks it. Knows paths, directory ids and reasons; touches no file.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.broker_configs import CORDONED_LOG_DIRS

_OF_THE_PROCESS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""These errors say nothing about a disk."""
_NO_DESCRIPTOR: Final = frozenset((errno.EMFILE, errno.ENFILE))
_OUT_OF_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


def is_out_of_space(error: OSError) -> bool:
    """Whether a disk has no room for what was to be written; it has lost nothing else."""
    return error.errno in _OUT_OF_SPACE


def is_of_the_process(error: Exception) -> bool:
    """Whether the process, or its machine, lacked something: work that can be repeated may succeed later."""
    return isinstance(error, OSError) and error.errno in _OF_THE_PROCESS


def lacks_a_descriptor(error: OSError) -> bool:
    """Whether a file could not be opened, so that nothing was done with it."""
    return error.errno in _NO_DESCRIPTOR


ALL_DIRS: Final = "*"
"""Stands for all log directories, as the only entry."""


def check_cordoned(entries: Sequence[str], log_dirs: Collection[str]) -> str | None:
    """Why directories cannot be cordoned; None if they can."""
    if ALL_DIRS in entries and len(entries) > 1:
        return f"{CORDONED_LOG_DIRS}: {ALL_DIRS} stands for all directories and must be the only entry"
    for entry in entries:
        if entry != ALL_DIRS and entry not in log_dirs:
            return f"{CORDONED_LOG_DIRS}: {entry[:200]} is not a directory of log.dirs"
    return None


class LogDirs:
    """``paths``: all configured directories. ``offline``: the reason for each that does not work.
    ``cordoned``: those that get no new logs; ``on_cordoned`` is called when they have changed.

    ``ids`` may lack those that could not be read. A broker cannot do without the directory of the metadata
    log, ``metadata_path``, nor without all of its directories.
    """

    def __init__(
        self,
        paths: Sequence[str],
        ids: Mapping[str, Uuid] | None = None,
        offline: Mapping[str, str] | None = None,
        metadata_path: str | None = None,
    ) -> None:
        self.paths = tuple(paths)
        self.ids = {path: id for path, id in (ids or {}).items() if path in self.paths}
        self.offline = {path: reason for path, reason in (offline or {}).items() if path in self.paths}
        self._metadata_path = metadata_path
        self.cordoned: frozenset[str] = frozenset()
        self.on_cordoned: Callable[[], None] = lambda: None

    @property
    def online(self) -> list[str]:
        """The directories that work, in the order of the configuration."""
        return [path for path in self.paths if path not in self.offline]

    def online_ids(self) -> tuple[Uuid, ...]:
        return tuple(self.ids[path] for path in self.online)

    def offline_ids(self) -> tuple[Uuid, ...]:
        """Those that are known."""
        return tuple(self.ids[path] for path in self.offline if path in self.ids)

    def cordoned_ids(self) -> tuple[Uuid, ...]:
        """Those that are known, in the order of the configuration."""
        return tuple(self.ids[path] for path in self.paths if path in self.cordoned and path in self.ids)

    def cordon(self, entries: Collection[str]) -> None:
        """Keep new logs out of just these directories; what :func:`check_cordoned` refuses has no effect."""
        wanted = self.paths if ALL_DIRS in entries else entries
        cordoned = frozenset(self.paths).intersection(wanted)
        if cordoned != self.cordoned:
            self.cordoned = cordoned
            self.on_cordoned()

    @property
    def for_new_logs(self) -> list[str]:
        """The directories that work and are not cordoned. If all are cordoned, those that work: the
        controller places no replica here then, but it may not have known yet, or an operator wants this one.
        """
        online = self.online
        return [path for path in online if path not in self.cordoned] or online

    def is_online(self, path: str) -> bool:
        return path in self.paths and path not in self.offline

    def containing(self, path: str) -> str | None:
        """The directory that a path is in, or is."""
        found = [it for it in self.paths if f"{path}/".startswith(f"{it.rstrip('/')}/")]
        return max(found, key=len, default=None)

    def path_of(self, directory: Uuid) -> str | None:
        return next((path for path, id in self.ids.items() if id == directory), None)

    def may_be_offline(self, directory: Uuid) -> bool:
        """Whether it may be a directory of this broker that does not work: the ids of some are not known."""
        path = self.path_of(directory)
        return path in self.offline if path else any(it not in self.ids for it in self.offline)

    def can_go_on_without(self, path: str, error: OSError) -> bool:
        """Whether an error is one of this directory, and the broker works without it."""
        if error.errno in _OF_THE_PROCESS or path == self._metadata_path:
            return False
        return any(other != path for other in self.online)

    def fail(self, path: str, reason: str) -> None:
        """The directory does not work any more."""
        self.offline[path] = reason
