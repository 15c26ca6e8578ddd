"""The messages from a write's tasks to the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from pykraft.kafka_client.producer.prepared_transaction import PreparedTransaction


@dataclass(frozen=True, slots=True)
class Task:
    """A part of a micro-batch. ``query``: PREFIX/ID. ``epoch``: the number of the micro-batch; 0 for a batch.

    Neither PREFIX nor ID has a slash, so no two tasks share an ``id``.
    """

    query: str
    number: int
    epoch: int

    @property
    def id(self) -> str:
        """The transactional id, and the group of the markers."""
        return f"{self.query}/{self.number}"


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """``rows``: that this attempt has written. ``task``: None unless exactly once.

    ``topic``: of the marker; None without rows. ``is_repeated``: an earlier attempt had written the rows.
    ``prepared``: what there is to commit.
    """

    rows: int
    task: Task | None = None
    topic: str | None = None
    is_repeated: bool = False
    prepared: PreparedTransaction | None = None


Messages = Sequence[WriterCommitMessage | None]
"""Messages of the tasks; None for one that has failed."""
