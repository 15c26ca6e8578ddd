"""Raises this process's limit of open files as far as the system allows.

The usual soft limit of 1024 is for programs that still call ``select``; a broker has two descriptors per
connection and one per segment in use.
"""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)

_MACOS_LIMIT = 10_240
"""macOS reports no hard limit, but refuses more than this (OPEN_MAX)."""


def raise_file_limit() -> int:
    """Raise the soft limit to the hard one, and log it; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, _MACOS_LIMIT):
        if wanted == soft or (wanted < soft and wanted != resource.RLIM_INFINITY):
            continue
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            continue
        logger.info("open files: soft limit raised from %d to %d", soft, wanted)
        return _finite(wanted)
    logger.info("open files: limit is %d", soft)
    return _finite(soft)


def _finite(limit: int) -> int:
    return 1 << 20 if limit == resource.RLIM_INFINITY else limit
