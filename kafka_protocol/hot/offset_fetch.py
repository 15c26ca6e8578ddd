"""The response to a large OffsetFetch, written piece by piece: versions 1 to 10.

No object is made for a partition; those without metadata are written as columns. Layouts are taken from the
message tables, and tests compare the bytes with theirs. Decides nothing about offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, pack

from pykraft.kafka_protocol.hot.wire import (
    INT32_BYTES,
    pack_int16,
    pack_int32,
    since,
    write_compact_text,
    write_count,
    write_text,
)
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import offsets as tables

ROW = Struct(">qiq")
"""A row begins with offset and leader epoch, as a partition of a response does behind its index; a commit
timestamp follows, which is not sent.
"""

_FLEXIBLE_FROM = tables.OffsetFetchResponse.FLEXIBLE_FROM
_THROTTLE_FROM = since(tables.OffsetFetchResponse, "throttle_time_ms")
_GROUPS_FROM = since(tables.OffsetFetchResponse, "groups")
_EPOCHS_FROM = since(tables.OffsetFetchResponsePartition, "committed_leader_epoch")
_ERROR_FROM = since(tables.OffsetFetchResponse, "error_code")
_TOPIC_IDS_FROM = since(tables.OffsetFetchResponseTopics, "topic_id")
_OFFSET_BYTES, _FIELDS_BYTES = 8, 12


class OffsetFetchWriter:
    """Writes one response. The number of groups comes first; those of topics and partitions when they end."""

    def __init__(self, version: int, groups: int) -> None:
        self._version = version
        self._flexible = version >= _FLEXIBLE_FROM
        self._parts: list[bytes | bytearray] = []
        self._group_at = self._topic_at = 0
        self._topics = self._partitions = 0
        head = bytearray()
        if version >= _THROTTLE_FROM:
            head += pack_int32(0)
        if version >= _GROUPS_FROM:
            write_count(head, groups, self._flexible)
        self._parts.append(head)

    def begin_group(self) -> None:
        self._group_at = len(self._parts)
        self._parts.append(b"")
        self._topics = 0

    def end_group(self, group_id: str, error_code: int) -> None:
        head, end = bytearray(), bytearray()
        if self._version >= _GROUPS_FROM:
            write_compact_text(head, group_id)
        write_count(head, self._topics, self._flexible)
        self._parts[self._group_at] = head
        if self._version >= _ERROR_FROM:
            end += pack_int16(error_code)
        if self._version >= _GROUPS_FROM:
            end.append(0)
        self._parts.append(end)

    def begin_topic(self) -> None:
        self._topic_at = len(self._parts)
        self._parts.append(b"")
        self._partitions = 0

    def end_topic(self, name: str, topic_id: Uuid) -> None:
        """Without a partition the topic is written, too; :meth:`drop_topic` leaves it out."""
        head = bytearray()
        if self._version >= _TOPIC_IDS_FROM:
            head += topic_id
        elif self._flexible:
            write_compact_text(head, name)
        else:
            write_text(head, name)
        write_count(head, self._partitions, self._flexible)
        self._parts[self._topic_at] = head
        if self._flexible:
            self._parts.append(b"\0")
        self._topics += 1

    def drop_topic(self) -> None:
        """Leave out the topic that was begun."""
        del self._parts[self._topic_at :]

    @property
    def partitions(self) -> int:
        """The partitions of the topic that was begun."""
        return self._partitions

    def add_partition(
        self, index: int, offset: int, leader_epoch: int, metadata: str | None, error_code: int
    ) -> None:
        self.add_partitions((index,), ROW.pack(offset, leader_epoch, 0), metadata, error_code)

    def add_partitions(
        self, indexes: Sequence[int], rows: bytes, metadata: str | None, error_code: int
    ) -> None:
        """Partitions with their rows, and the same metadata and error."""
        fields_bytes = _FIELDS_BYTES if self._version >= _EPOCHS_FROM else _OFFSET_BYTES
        tail = bytearray()
        (write_compact_text if self._flexible else write_text)(tail, metadata)
        tail += pack_int16(error_code)
        if self._flexible:
            tail.append(0)
        count = len(indexes)
        self._partitions += count
        if count == 1:
            last = self._parts[-1]
            if not isinstance(last, bytearray):  # what a topic begins with
                last = bytearray()
                self._parts.append(last)
            last += pack_int32(indexes[0]) + rows[:fields_bytes] + tail
            return
        length = INT32_BYTES + fields_bytes + len(tail)
        block = bytearray((bytes(INT32_BYTES + fields_bytes) + tail) * count)
        packed = pack(f">{count}i", *indexes)
        for place in range(INT32_BYTES):
            block[place::length] = packed[place::INT32_BYTES]
        for place in range(fields_bytes):
            block[INT32_BYTES + place :: length] = rows[place :: ROW.size]
        self._parts.append(block)

    def finish(self) -> bytes:
        """The body of the response."""
        if self._version >= _FLEXIBLE_FROM:
            self._parts.append(b"\0")
        return b"".join(self._parts)
