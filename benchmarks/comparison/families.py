"""The families of rows, in the order in which they are run and shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from comparison.rows import (
    commits,
    fetchers,
    idle,
    librdkafka,
    memory,
    producers,
    raw,
    rebalances,
    replicated,
    starting,
    topics,
)
from comparison.turn import Turn


@dataclass(frozen=True)
class Family:
    """``doc`` says what is measured, under what load, and how it is warmed up."""

    name: str
    doc: str
    run: Callable[[Turn], None]

    @property
    def about(self) -> str:
        """The text above the family's table."""
        return " ".join(self.doc.split())


FAMILIES: Final = (
    Family("start", starting.__doc__, starting.run),
    Family("memory", memory.__doc__, memory.run),
    Family("raw", raw.__doc__, raw.run),
    Family("librdkafka", librdkafka.__doc__, librdkafka.run),
    Family("producers", producers.__doc__, producers.run),
    Family("fetchers", fetchers.__doc__, fetchers.run),
    Family("replicated", replicated.__doc__, replicated.run),
    Family("idle", idle.__doc__, idle.run),
    Family("topics", topics.__doc__, topics.run),
    Family("rebalances", rebalances.__doc__, rebalances.run),
    Family("commits", commits.__doc__, commits.run),
)
