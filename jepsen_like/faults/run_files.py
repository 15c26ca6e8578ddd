"""The files in the directory of a run, by name."""

from pathlib import Path
from typing import Final

HISTORY: Final = "history.jsonl"
PLAN: Final = "plan.json"
SUMMARY: Final = "summary.json"
PAGE: Final = "report.html"
CLUSTER: Final = "cluster"
"""A directory: the outputs and the configuration of the nodes."""


def files_of(directory: Path) -> list[Path]:
    """Those to look at that there are: the history, the plan, and what the nodes printed."""
    wanted = [directory / HISTORY, directory / PLAN, directory / SUMMARY]
    outputs = sorted((directory / CLUSTER).glob("*.log"))
    return [file for file in (*wanted, *outputs) if file.is_file()]
