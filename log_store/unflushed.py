"""Which appends have to be flushed before they are acknowledged, and from when on others wait for a flush.

Kafka's rules: a log is flushed in the append that makes ``flush.messages`` of them since the last flush, and
at the latest ``flush.ms`` after a record was appended. Flushes run beside appends here; so an append that has
to be flushed is not acknowledged until one that began after it is complete. Pure.
"""

from __future__ import annotations

from pykraft.log_store.interface import LogConfig


class Unflushed:
    """The unflushed end of one log. Offsets are exclusive ends, except for the start of an append."""

    __slots__ = ("_due", "_messages", "_ms", "_waits", "has_limits")

    def __init__(self, config: LogConfig) -> None:
        #: The appends that must be flushed, oldest first: where each began and ended.
        self._due: list[tuple[int, int]] = []
        self._waits = False
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        self._messages, self._ms = config.flush_messages, config.flush_ms
        self.has_limits = self._messages is not None or self._ms is not None

    @property
    def is_due(self) -> bool:
        return bool(self._due)

    def acknowledged_end(self, log_end_offset: int) -> int:
        """Up to where a log that ends here may be acknowledged."""
        return self._due[0][0] if self._due else log_end_offset

    def appended(self, start: int, log_end_offset: int, flushed_offset: int) -> bool:
        """Note an append to a log that is durable up to ``flushed_offset``; whether its owner must be told:
        a flush is due, or has to follow within ``flush.ms``.
        """
        flushed = max(flushed_offset, self._due[-1][1]) if self._due else flushed_offset
        if self._messages is not None and log_end_offset - flushed >= self._messages:
            self._due.append((start, log_end_offset))
            return True
        return self.begins_to_wait()

    def begins_to_wait(self) -> bool:
        """Whether a record waits for ``flush.ms`` from now on, and none has since the last flush began."""
        if self._waits or self._ms is None:
            return False
        self._waits = True
        return True

    def flush_begins(self) -> None:
        """Let what is appended from now on wait for the next flush."""
        self._waits = False

    def flushed(self, flushed_offset: int) -> None:
        """Everything below is durable."""
        if self._due:
            self._due = [append for append in self._due if append[1] > flushed_offset]

    def truncated(self, log_end_offset: int) -> None:
        self._due = [(start, min(end, log_end_offset)) for start, end in self._due if start < log_end_offset]
