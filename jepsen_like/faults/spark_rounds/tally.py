"""A run's work and findings."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pykraft.spark.jobs.query import innermost_error

_LOSS: Final = re.compile(
    r"\w*DataLossError|OffsetOutOfRangeError|LogTruncatedError|Topic(Deleted|Recreated)Error"
)
_NUMBERS: Final = re.compile(r"\d+")
_SHOWN_CHARACTERS: Final = 160


@dataclass(slots=True)
class Tally:
    """``copied``: records of the source, each of which is in both sinks unless there are anomalies.
    ``micro_batches``: by query. ``failures``: of queries, by what they said; drivers were started again."""

    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    sent: int = 0
    acknowledged: int = 0
    copied: int = 0
    partitions: int = 0
    driver_starts: int = 0
    micro_batches: dict[str, int] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    anomalies: list[str] = field(default_factory=list)

    def rows(self) -> Iterator[tuple[str, str]]:
        """The rows of a table."""
        yield "rounds", str(self.rounds)
        for kind, count in sorted(self.faults.items()):
            yield kind, str(count)
        yield "records acknowledged / sent", f"{self.acknowledged:,} / {self.sent:,}"
        yield "records of the source, in both sinks", f"{self.copied:,}"
        yield "partitions of the source", str(self.partitions)
        yield "drivers started", str(self.driver_starts)
        for query, count in self.micro_batches.items():
            yield f"micro-batches {query}", f"{count:,}"
        yield "queries that failed, and were started again", str(sum(self.failures.values()))
        yield "anomalies", str(len(self.anomalies))


def read_failures(errors: Path) -> tuple[Counter[str], list[str]]:
    """Failures by what they said; those that report a loss of records, which nobody has made."""
    reasons: Counter[str] = Counter()
    losses = []
    if errors.exists():
        for line in errors.read_text(encoding="utf-8").splitlines():
            text = json.loads(line)["error"]
            reasons[_reason(text)] += 1
            if _LOSS.search(text):
                losses.append(f"a query reports a loss: {_reason(text)}")
    return reasons, losses


def _reason(text: str) -> str:
    """The innermost error, without its numbers."""
    return _NUMBERS.sub("N", innermost_error(text))[:_SHOWN_CHARACTERS]
