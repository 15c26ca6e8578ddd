"""Log directories that fail while the broker runs (KIP-112), and all that is done with their files.

An error of a log is final. One that concerns only that log (``DAMAGE_ERRORS``) takes it offline
(:mod:`.damaged_logs`); any other takes all logs of its directory out of use until the next start, because the
data of a failed flush may be lost even if a later one succeeds. If the broker cannot do without that
directory, or the error is not one of the disk, the node halts (``on_fatal``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from pykraft.broker.logs.log_dirs import LogDirs
from pykraft.runtime.tasks import FatalHandler, Workers

logger = logging.getLogger(__name__)

T = TypeVar("T")


class DirectoryFailures:
    """``on_failure`` is called with a directory that has just failed."""

    def __init__(
        self, dirs: LogDirs, workers: Workers, on_fatal: FatalHandler, on_failure: Callable[[str], None]
    ) -> None:
        self._dirs = dirs
        self._workers = workers
        self._on_fatal = on_fatal
        self._on_failure = on_failure

    def fail(self, what: str, error: OSError) -> bool:
        """Note an error that is not one log's; whether the broker goes on without the directory, or halts."""
        log_dir = self._dirs.containing(what)
        if log_dir is not None and log_dir in self._dirs.offline:
            return True
        if log_dir is None or not self._dirs.can_go_on_without(log_dir, error):
            logger.critical("%s: %s", what, error)
            self._on_fatal(error)
            return False
        self._dirs.fail(log_dir, str(error))
        logger.error(
            "log directory %s has failed (%s at %s): its replicas are offline until this broker starts again"
            " with a directory that works",
            *(log_dir, error, what),
        )
        self._on_failure(log_dir)
        return True

    async def guarded(self, what: str, job: Callable[[], T]) -> T | None:
        """Run ``job`` on files at the path ``what``; None if their directory fails, or has failed."""
        if self._dirs.containing(what) in self._dirs.offline:
            return None
        try:
            return await self._workers.run(job)
        except OSError as error:
            if not self.fail(what, error):
                raise
            return None

    @contextmanager
    def leaving_out(self, log_dir: str) -> Iterator[None]:
        """Go on after the block if the directory, whose checkpoint files it writes, fails in it."""
        try:
            yield
        except OSError:
            if self._dirs.is_online(log_dir):
                raise
