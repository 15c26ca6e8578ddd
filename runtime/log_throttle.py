"""Limits log lines that clients or one broken log can cause: logs one per interval, with the number of those
left out.
"""

from __future__ import annotations

import logging

INTERVAL_S = 10.0


class LogThrottle:
    """``now_s`` is any monotonic clock, for example the event loop's."""

    def __init__(self, logger: logging.Logger, interval_s: float = INTERVAL_S) -> None:
        self._logger = logger
        self._interval_s = interval_s
        self._last_s: float | None = None
        self._kept_back = 0

    def warning(self, now_s: float, message: str, *args: object) -> None:
        self._log(now_s, logging.WARNING, message, args, None)

    def error(self, now_s: float, message: str, *args: object, cause: BaseException) -> None:
        """With the traceback of ``cause``."""
        self._log(now_s, logging.ERROR, message, args, cause)

    def _log(
        self, now_s: float, level: int, message: str, args: tuple[object, ...], cause: BaseException | None
    ) -> None:
        if self._last_s is not None and now_s - self._last_s < self._interval_s:
            self._kept_back += 1
            return
        self._last_s, kept_back, self._kept_back = now_s, self._kept_back, 0
        if kept_back:
            message, args = message + " (%d more like it were not logged)", (*args, kept_back)
        self._logger.log(level, message, *args, exc_info=cause)
