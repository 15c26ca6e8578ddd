"""How a server writes its log: one line an event, to standard error."""

from __future__ import annotations

import logging
import os


def set_up_logging(level: str | None = None) -> None:
    """Log to standard error at ``level``, else PYKRAFT_LOG_LEVEL, else INFO."""
    chosen = (level or os.environ.get("PYKRAFT_LOG_LEVEL", "INFO")).upper()
    logging.basicConfig(level=chosen, format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)")
