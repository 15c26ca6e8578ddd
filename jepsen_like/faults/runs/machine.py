"""With what and on what a run is made, for its history."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import confluent_kafka

import pykraft

_PACKAGE = Path(pykraft.__file__).resolve().parent


def describe() -> dict[str, Any]:
    """``versions`` by name, and ``machine``: ``cpus`` that this process may use, ``memory_gb`` and ``os``."""
    return {
        "versions": {
            "pykraft": pykraft.__version__,
            "commit": _commit(),
            "python": platform.python_version(),
            "confluent-kafka": confluent_kafka.__version__,
            "librdkafka": str(confluent_kafka.libversion()[0]),
        },
        "machine": {
            "cpus": _cpus(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
            "os": f"{platform.system()} {platform.release()}",
        },
    }


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


def _commit() -> str | None:
    """None if the package is not in a clone, or git is not here."""
    try:
        command = ["git", "describe", "--always", "--dirty"]
        done = subprocess.run(command, cwd=_PACKAGE, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None
