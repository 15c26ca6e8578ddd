"""Counts and findings, and the node's own log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_PASSING = 10


@dataclass
class Tally:
    """Counts and findings."""

    requests: int = 0
    answered: int = 0
    closed: int = 0
    """How often that closed the connection."""
    waited: int = 0
    """How often a client gave up that may be made wait."""
    measured: int = 0
    """How often memory was measured."""
    longest_ms: float = 0.0
    """The longest turn that a repeated request had each time."""
    longest_collection_ms: float = 0.0
    """The longest full collection of garbage, which is in no turn."""
    most_memory: float = 0.0
    """As a share of what is allowed."""
    passing: list[tuple[float, str]] = field(default_factory=list)
    """(ms, request): the longest turns beyond the limit that did not come again."""
    findings: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("requests", "answered", "closed", "waited", "measured"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.longest_ms = max(self.longest_ms, other.longest_ms)
        self.longest_collection_ms = max(self.longest_collection_ms, other.longest_collection_ms)
        self.most_memory = max(self.most_memory, other.most_memory)
        for ms, request in other.passing:
            self.passed(ms, request)
        self.findings += other.findings

    def passed(self, ms: float, request: str) -> None:
        self.passing = sorted([*self.passing, (ms, request)], reverse=True)[:_PASSING]


class NodeLog(logging.Handler):
    """The errors and tracebacks that the node logs, and why it has closed connections."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []
        self.closings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += f": {record.exc_info[1]!r}"
            self.errors.append(text)
        elif record.name == _CONNECTIONS.name:
            self.closings.append(record.getMessage())

    @contextmanager
    def listening(self) -> Iterator[None]:
        root, level = logging.getLogger(), _CONNECTIONS.level
        root.addHandler(self)
        _CONNECTIONS.setLevel(logging.INFO)
        try:
            yield
        finally:
            _CONNECTIONS.setLevel(level)
            root.removeHandler(self)


_CONNECTIONS = logging.getLogger("pykraft.kafka_protocol.connection")
