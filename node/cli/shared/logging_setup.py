"""Sets up the log of a server: one line per event, to standard error, as text or as JSON."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from typing import Final

from pykraft.configuration.keys import ConfigError

LEVEL_VARIABLE: Final = "PYKRAFT_LOG_LEVEL"
FORMAT_VARIABLE: Final = "PYKRAFT_LOG_FORMAT"
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_FORMATS: Final = ("text", "json")


class JsonFormatter(logging.Formatter):
    """One object a line: ``time`` (UTC, milliseconds), ``level``, ``logger``, ``message``, and where there is
    one, the ``node`` and the ``exception`` with its traceback.
    """

    def __init__(self, node: str = "") -> None:
        super().__init__()
        self._node = {"node": node} if node else {}

    def format(self, record: logging.LogRecord) -> str:
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            **self._node,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False)


def set_up_logging(level: str | None = None, name: str = "") -> None:
    """Log to standard error at ``level``, else PYKRAFT_LOG_LEVEL, else INFO; with ``name`` in every line.
    PYKRAFT_LOG_FORMAT is text or json.

    :class:`ConfigError` for a level or format that does not exist.
    """
    chosen = _choose(
        LEVEL_VARIABLE, "level", (level or os.environ.get(LEVEL_VARIABLE) or "INFO").upper(), _LEVELS
    )
    style = _choose(FORMAT_VARIABLE, "format", (os.environ.get(FORMAT_VARIABLE) or "text").lower(), _FORMATS)
    whose = f"{name}: " if name else ""
    logging.basicConfig(level=chosen, format=f"[%(asctime)s] %(levelname)s {whose}%(message)s (%(name)s)")
    if style == "json":
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter(name))


def _choose(variable: str, what: str, chosen: str, known: tuple[str, ...]) -> str:
    if chosen not in known:
        raise ConfigError(f"{variable}: {chosen} is not a {what}; these are {', '.join(known)}")
    return chosen
