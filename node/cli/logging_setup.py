"""How a server writes its log: one line an event, to standard error."""

from __future__ import annotations

import logging
import os


def set_up_logging(level: str | None = None, name: str = "") -> None:
    """Log to standard error at ``level``, else PYKRAFT_LOG_LEVEL, else INFO; with ``name`` in every line."""
    chosen = (level or os.environ.get("PYKRAFT_LOG_LEVEL", "INFO")).upper()
    whose = f"{name}: " if name else ""
    logging.basicConfig(level=chosen, format=f"[%(asctime)s] %(levelname)s {whose}%(message)s (%(name)s)")
