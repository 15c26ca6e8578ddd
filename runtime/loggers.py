"""The loggers of this process by name, with their levels in Kafka's words.

A logger without a level of its own has that of the nearest logger above. A restart resets all levels.
"""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
LEVELS: Final = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
"""Kafka's word → Python's number. TRACE has no name in Python, but a number below DEBUG."""


class ProcessLoggers:
    """Reads and sets levels; the only place that does so while a node runs."""

    def levels(self) -> dict[str, str]:
        """Every logger and its effective level."""
        known = {ROOT: logging.getLogger()}
        made = logging.Logger.manager.loggerDict.items()
        known |= {name: logger for name, logger in made if isinstance(logger, logging.Logger)}
        return {name: _word(logger.getEffectiveLevel()) for name, logger in sorted(known.items())}

    def set_level(self, name: str, level: str | None) -> None:
        """``level`` is a word of :data:`LEVELS`; None (not for the root): that of the logger above."""
        assert level is not None or name != ROOT
        number = logging.NOTSET if level is None else LEVELS[level]
        logging.getLogger(None if name == ROOT else name).setLevel(number)


def _word(number: int) -> str:
    return next((word for word, least in LEVELS.items() if number <= least), "FATAL")
