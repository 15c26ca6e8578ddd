"""Sets up the log of a server: one line per event, to standard error."""

from __future__ import annotations

import logging
import os
from typing import Final

from pykraft.configuration.keys import ConfigError

LEVEL_VARIABLE: Final = "PYKRAFT_LOG_LEVEL"
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def set_up_logging(level: str | None = None, name: str = "") -> None:
    """Log to standard error at ``level``, else PYKRAFT_LOG_LEVEL, else INFO; with ``name`` in every line.

    :class:`ConfigError` for a level that does not exist.
    """
    chosen = (level or os.environ.get(LEVEL_VARIABLE) or "INFO").upper()
    if chosen not in _LEVELS:
        raise ConfigError(f"{LEVEL_VARIABLE}: {chosen} is not a level; these are {', '.join(_LEVELS)}")
    whose = f"{name}: " if name else ""
    logging.basicConfig(level=chosen, format=f"[%(asctime)s] %(levelname)s {whose}%(message)s (%(name)s)")
