"""An exactly-once write's traces on brokers: offsets of groups without members, with metadata.

Both are of partition 0 of the topic that is written to (where rows name topics: of that of the first row),
and the offset is *micro-batch + 1*:

* group PREFIX/QUERY/PARTITION: the *marker* of a task, written with its rows, and how many these are;
* group PREFIX/QUERY: how many tasks the micro-batch has, written before the first of them is committed.

A micro-batch that is run again is compared with them: with other rows in its tasks, markers would skip rows
that are not written, or miss some that are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pykraft.kafka_client.admin.group_offsets import alter_group_offsets
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.group.committed_offsets import group_offsets
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.spark.writing.task_messages import Task, Written

if TYPE_CHECKING:
    import pyarrow as pa

_ADVICE: Final = "run it with the same settings and the same input (docs/spark.md, Exactly once)"


class OtherRowsError(Exception):
    """A micro-batch that is run again is not what it was."""


@dataclass(slots=True)
class Tally:
    """The figures by which a task's rows are compared. ``size_bytes``: keys and values."""

    rows: int = 0
    size_bytes: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        self.rows += batch.num_rows
        for name in ("key", "value"):
            if (index := batch.schema.get_field_index(name)) >= 0:
                self.size_bytes += pc.sum(pc.binary_length(batch.column(index))).as_py() or 0

    def __str__(self) -> str:
        return f"{self.rows} rows of {self.size_bytes} bytes"


class Marker(NamedTuple):
    """``next_epoch``: that of the first micro-batch that is not written; 0 if there is none."""

    next_epoch: int
    content: str


_NO_MARKER: Final = Marker(0, "")


async def find_marker(
    cluster: Cluster, group_id: str, topic: str | None, deadline_ms: int, *, require_stable: bool
) -> Marker:
    """``topic``: where it is; None: in one of those that the group has.

    ``require_stable``: wait for open transactions; only if the topic is named does every broker do so for the
    first marker of all.
    """
    where = None if topic is None else [TopicPartition(topic, 0)]
    found = await group_offsets(cluster, group_id, deadline_ms, where, require_stable=require_stable)
    return max((Marker(it.offset, it.metadata) for it in found.values()), default=_NO_MARKER)


def marker_of(topic: str, epoch: int, content: object) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(topic, 0): OffsetAndMetadata(epoch + 1, metadata=str(content))}


def check_rows(marker: Marker, task: Task, batches: Iterable[pa.RecordBatch]) -> None:
    """:class:`OtherRowsError` if the rows are not those of the marker, which is at or above the micro-batch.

    They are read to their end; not by a late attempt, of a micro-batch before the marker's.
    """
    if marker.next_epoch != task.epoch + 1:
        return
    tally = Tally()
    for batch in batches:
        tally.add(batch)
    if str(tally) != marker.content:
        raise OtherRowsError(
            f"task {task.number} of micro-batch {task.epoch} of {task.query} has other rows than when the"
            f" micro-batch was written: {tally}, not {marker.content}; {_ADVICE}"
        )


async def record_tasks(cluster: Cluster, written: Iterable[Written], count: int) -> None:
    """Say how many tasks the micro-batch has, or, if that was said before, :class:`OtherRowsError` if it has
    another number now. Without any row there is nothing to say."""
    marked = next(((it.task, it.topic) for it in written if it.topic is not None), None)
    if marked is None:
        return
    task, topic = marked
    assert task is not None
    content = f"{count} tasks"
    marker = await find_marker(cluster, task.query, None, cluster.deadline(), require_stable=False)
    if marker.next_epoch <= task.epoch:
        offsets = marker_of(topic, task.epoch, content)
        for error in (await alter_group_offsets(cluster, task.query, offsets, cluster.deadline())).values():
            if error is not None:
                raise error
    elif marker.next_epoch == task.epoch + 1 and marker.content != content:
        raise OtherRowsError(
            f"micro-batch {task.epoch} of {task.query} has {content}, and had {marker.content} when it was"
            f" written; {_ADVICE}"
        )
