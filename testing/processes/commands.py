"""Commands of the operating system, run to their end, each with what it said if it failed."""

import shutil
import subprocess
from typing import Final

_TIMEOUT_S: Final = 60


class CommandError(RuntimeError):
    """A command failed; the message holds it and what it said."""


def run_command(*command: str, script: str = "") -> str:
    """Run a command with ``script`` on its standard input; return its output.

    :class:`CommandError` if it fails, cannot be started or does not end."""
    said = " ".join(command)
    try:
        result = subprocess.run(
            command, input=script, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"`{said}`: {error}") from error
    if result.returncode != 0:
        raise CommandError(f"`{said}`: {(result.stdout + result.stderr).strip()}")
    return result.stdout


def missing_commands(*names: str) -> str | None:
    """Those that are not installed, in words; None if all are."""
    missing = [name for name in names if shutil.which(name) is None]
    return f"no {', '.join(missing)}" if missing else None
