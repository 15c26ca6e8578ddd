"""Topics as encoded in Metadata answers: encoded once, and kept until something that they show changes.

A topic's bytes depend on its image, which is immutable and replaced when a partition changes, and on what its
replicas' brokers look like from one listener (:class:`ListenerView`). Both are compared by identity, so that
a change of one partition costs the encoding of one topic, whatever the number of topics. Encoded by hand, as
in Produce and Fetch: the general codec would take several times as long. This module never decides what a
client may see.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Final

from pykraft.broker.authorized_operations import NOT_ASKED, TOPIC_OPERATIONS
from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import MetadataResponse
from pykraft.kafka_protocol.primitives import write_uvarint
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.image import (
    UNKNOWN_DIRECTORIES,
    MetadataImage,
    PartitionRegistration,
    TopicImage,
    online_directories,
)

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, "__transaction_state"})
_FLEXIBLE_FROM: Final = MetadataResponse.FLEXIBLE_FROM
_OPERATIONS: Final = {False: struct.pack(">i", NOT_ASKED), True: struct.pack(">i", TOPIC_OPERATIONS)}
_KEPT_BYTES: Final = 64 << 20
_SLICE_PARTITIONS: Final = 500


@dataclass(frozen=True, slots=True)
class ListenerView:
    """Unfenced brokers, those of them with the listener, and the log directories that work."""

    usable: frozenset[int]
    reachable: frozenset[int]
    online_dirs: frozenset[Uuid] = UNKNOWN_DIRECTORIES

    @classmethod
    def of(cls, image: MetadataImage, listener: str) -> ListenerView:
        usable = [broker for broker in image.brokers.values() if not broker.fenced]
        return cls(
            frozenset(broker.id for broker in usable),
            frozenset(broker.id for broker in usable if broker.endpoint(listener) is not None),
            online_directories(image.brokers.values()),
        )

    def offline_replicas(self, partition: PartitionRegistration) -> tuple[int, ...]:
        """Replicas whose broker is fenced or gone, whose log is lost, or whose directory has failed."""
        failed = partition.offline_in(self.online_dirs)
        return tuple(
            id for id in partition.replicas if id in partition.lost or id in failed or id not in self.usable
        )

    def leader_error(self, partition: PartitionRegistration) -> ErrorCode:
        """Why clients of this listener cannot be sent to the partition's leader; NONE if they can."""
        if partition.leader in self.reachable:
            return ErrorCode.NONE
        if partition.leader in self.usable:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE


@dataclass(frozen=True, slots=True)
class _Entry:
    topic: TopicImage
    view: ListenerView
    data: bytes


class TopicAnswers:
    """Encoded topics by id, listener, version and whether they list the operations that are allowed on them.

    At most ``kept_bytes`` are kept; beyond that the oldest are dropped.
    """

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._entries: dict[tuple[Uuid, str, int, bool], _Entry] = {}
        self._size_bytes = 0

    def find(
        self,
        topic: TopicImage,
        view: ListenerView,
        listener: str,
        version: int,
        operations: bool = False,
    ) -> bytes | None:
        """The encoded topic, if it is kept and still true."""
        entry = self._entries.get((topic.id, listener, version, operations))
        if entry is None or entry.topic is not topic or entry.view is not view:
            return None
        return entry.data

    def encode(
        self,
        topic: TopicImage,
        view: ListenerView,
        listener: str,
        version: int,
        operations: bool = False,
    ) -> Generator[None, None, bytes]:
        """The topic as an element of a MetadataResponse's array of topics; yields after each slice."""
        known = self.find(topic, view, listener, version, operations)
        if known is not None:
            return known
        data = yield from encode_topic(topic, view, version, operations)
        key = (topic.id, listener, version, operations)
        self._forget(key)
        self._entries[key] = _Entry(topic, view, data)
        self._size_bytes += len(data)
        while self._size_bytes > self._kept_bytes:
            self._forget(next(iter(self._entries)))
        return data

    def _forget(self, key: tuple[Uuid, str, int, bool]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size_bytes -= len(entry.data)


def encode_topic(
    topic: TopicImage, view: ListenerView, version: int, with_operations: bool = False
) -> Generator[None, None, bytes]:
    """MetadataResponseTopic at ``version`` (0 to 13), without error; yields after each slice."""
    out = bytearray(b"\0\0")
    name = topic.name.encode()
    if version >= _FLEXIBLE_FROM:
        write_uvarint(out, len(name) + 1)
    else:
        out += struct.pack(">h", len(name))
    out += name
    if version >= 10:
        out += topic.id
    if version >= 1:
        out.append(topic.name in INTERNAL_TOPICS)
    out += _encode_count(len(topic.partitions), version)
    yield from _encode_partitions(topic, view, version, out)
    if version >= 8:
        out += _OPERATIONS[with_operations]
    if version >= _FLEXIBLE_FROM:
        out.append(0)
    return bytes(out)


def _encode_partitions(
    topic: TopicImage, view: ListenerView, version: int, out: bytearray
) -> Generator[None, None, None]:
    # Many partitions share few distinct lists.
    lists: dict[tuple[int, ...], bytes] = {}
    offline: dict[tuple[object, ...], bytes] = {}
    for index, partition in enumerate(topic.partitions):
        if index % _SLICE_PARTITIONS == 0:
            yield
        replicas, isr = partition.replicas, partition.isr
        error = view.leader_error(partition)
        leader = -1 if error else partition.leader
        if version >= 7:
            out += _HEAD_7.pack(error, index, leader, partition.leader_epoch)
        else:
            out += _HEAD_0.pack(error, index, leader)
        if replicas not in lists:
            lists[replicas] = _encode_ids(replicas, version)
        if isr not in lists:
            lists[isr] = _encode_ids(isr, version)
        out += lists[replicas]
        out += lists[isr]
        if version >= 5:
            state = (replicas, partition.lost, partition.directories)
            if state not in offline:
                offline[state] = _encode_ids(view.offline_replicas(partition), version)
            out += offline[state]
        if version >= _FLEXIBLE_FROM:
            out.append(0)


_HEAD_0: Final = struct.Struct(">hii")
_HEAD_7: Final = struct.Struct(">hiii")


def _encode_ids(ids: tuple[int, ...], version: int) -> bytes:
    return _encode_count(len(ids), version) + struct.pack(f">{len(ids)}i", *ids)


def _encode_count(count: int, version: int) -> bytes:
    """The length of an array that is not null."""
    if version < _FLEXIBLE_FROM:
        return struct.pack(">i", count)
    out = bytearray()
    write_uvarint(out, count + 1)
    return bytes(out)
