"""When, where and with what a run was made."""

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

from comparison.systems import JVM_OPTIONS, java_version
from comparison.values import describe_values

from pykraft.compiled import form
from pykraft.testing.processes.kafka_jars import KAFKA_VERSION

_ROOT = Path(__file__).resolve().parent.parent.parent


def describe_run(command: str) -> dict[str, Any]:
    """For the JSON, and for the sentence above the tables."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "command": command,
        "pykraft": _commit(),
        "kafka": KAFKA_VERSION,
        "jvm_options": JVM_OPTIONS,
        "machine": (
            f"{os.cpu_count()} cores ({_processor()}), {memory_gb:.0f} GB, {platform.system()}"
            f" {platform.release()}, Python {platform.python_version()}, {java_version()}"
        ),
        "client": f"Clients: a program in C that sends prebuilt frames, and {_librdkafka()}",
        "values": describe_values(),
    }


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return f"{done.stdout.strip() or 'of an unknown commit'}, {form()}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _librdkafka() -> str:
    try:
        import confluent_kafka
    except ImportError:
        return "no librdkafka (confluent-kafka is not installed)"
    return f"librdkafka {confluent_kafka.libversion()[0]}"
