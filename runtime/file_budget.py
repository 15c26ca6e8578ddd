"""How many files and connections this process may have open, and which are closed when there are too many.

A process that has used up its descriptors can neither roll a segment nor write a checkpoint: the node would
fail because clients hold idle connections. So connections are refused before that, a quarter of all
descriptors is kept for the logs however many clients connect, and a reserve is kept for files that are not
counted here. Logs close files that they can open again. This file only counts; the limit is raised in
:mod:`pykraft.runtime.file_limit`.
"""

from __future__ import annotations

import threading
from typing import Protocol
from weakref import WeakKeyDictionary

DESCRIPTORS_PER_CONNECTION = 2
"""A connection that has sent a response writes through a duplicate of its socket."""

_RESERVE_SHARE = 8
_LEAST_RESERVE, _MOST_RESERVE = 32, 512
_FILES_SHARE = 4
_ASKED_PER_OPEN = 64
"""How many holders are asked to release files at each opening, twice: a bound on the time it takes."""


class FileHolder(Protocol):
    """A holder of open files that it can open again."""

    def release_files(self, *, is_urgent: bool) -> bool:
        """Close the files; False if they are kept because they were used since the last call and not
        ``is_urgent``.

        May be called from any thread.
        """
        ...


class FileBudget:
    """The descriptors of one process. Thread-safe.

    ``rpc_connections``: how many connections other nodes may make to it (:mod:`.rpc_limits`).
    """

    def __init__(self, limit: int, rpc_connections: int = 0) -> None:
        self.limit = limit
        self.reserve = rpc_connections + max(_LEAST_RESERVE, min(limit // _RESERVE_SHARE, _MOST_RESERVE))
        """For everything that is not counted: listeners, connections between nodes, temporary files."""
        self.files = 0
        self.connections = 0
        self._holders: WeakKeyDictionary[FileHolder, None] = WeakKeyDictionary()
        # Dropping a file closes it at once in this thread, and the close is counted here.
        self._lock = threading.RLock()

    # -- connections -------------------------------------------------------------------------------------

    def connection_made(self) -> None:
        with self._lock:
            self.connections += 1

    def may_stay(self) -> bool:
        """Whether there is room for the open connections, including the newest."""
        files = max(self.files, self.limit // _FILES_SHARE)
        return files + DESCRIPTORS_PER_CONNECTION * self.connections + self.reserve <= self.limit

    def connection_lost(self) -> None:
        with self._lock:
            self.connections -= 1

    # -- files -------------------------------------------------------------------------------------------

    @property
    def files_limit(self) -> int:
        """How many files may be open now; more are opened only if no holder releases any."""
        return self.limit - self.reserve - DESCRIPTORS_PER_CONNECTION * self.connections

    def file_opened(self) -> None:
        with self._lock:
            self.files += 1

    def file_closed(self) -> None:
        with self._lock:
            self.files -= 1

    def register(self, holder: FileHolder) -> None:
        """``holder`` has opened a file and can be asked to release it, until it has done so."""
        with self._lock:
            self._holders[holder] = None

    def make_room(self) -> None:
        """Before a file is opened: ask other holders to release files, if there are too many."""
        if self.files < self.files_limit:
            return
        with self._lock:
            self._ask(self.files_limit, is_urgent=False)
            self._ask(self.files_limit, is_urgent=True)

    def free_some(self) -> bool:
        """The system refused a descriptor: ask other holders to release files. Whether any of them did."""
        with self._lock:
            before = self.files
            self._ask(before - _ASKED_PER_OPEN, is_urgent=True)
            return self.files < before

    def _ask(self, limit: int, *, is_urgent: bool) -> None:
        """Ask the earliest holders first; one that still uses its files is asked again after all others."""
        for _ in range(min(_ASKED_PER_OPEN, len(self._holders))):
            holder = next(iter(self._holders), None)
            if self.files < limit or holder is None:
                return
            del self._holders[holder]
            if not holder.release_files(is_urgent=is_urgent):
                self._holders[holder] = None
