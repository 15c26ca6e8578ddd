"""The log directories of one broker, and which of them work (KIP-112).

A directory that fails is not used again before the next start: what its disk still holds is as it was at the
failure, and only a start checks it. Knows paths, directory ids and reasons; touches no file.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Final

from pykraft.kafka_protocol.ids import Uuid

_OF_THE_PROCESS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""These errors say nothing about a disk."""
_OUT_OF_SPACE: Final = frozenset((errno.ENOSPC, errno.EDQUOT))


def is_out_of_space(error: OSError) -> bool:
    """Whether a disk has no room for what was to be written; it has lost nothing else."""
    return error.errno in _OUT_OF_SPACE


class LogDirs:
    """``paths``: all configured directories. ``offline``: the reason for each that does not work.

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

    @property
    def online(self) -> list[str]:
        """The directories that work, in the order of the configuration."""
        return [path for path in self.paths if path not in self.offline]

    def online_ids(self) -> tuple[Uuid, ...]:
        return tuple(self.ids[path] for path in self.online)

    def offline_ids(self) -> tuple[Uuid, ...]:
        """Those that are known."""
        return tuple(self.ids[path] for path in self.offline if path in self.ids)

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
