"""The end of a process that writes nothing more."""

from __future__ import annotations

from pykraft.broker.logs.log_manager import LogManager


def abandon(logs: LogManager) -> None:
    """Release the files of all logs as they are, as ``kill -9`` does."""
    for opened in logs.logs.values():
        opened.log.abandon()
