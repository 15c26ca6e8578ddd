"""Which partition a record goes to that names none: by its key as in Java's producer, else one after another.

A key goes to the partition that Java's producer gives it. Records without a key stay with one partition until
``batch.size`` bytes were produced to it, then go to another one at random among those that have a leader
(KIP-794): batches are full, and all partitions get the same number of bytes. Randomness is an argument;
without it the partitions take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pykraft.kafka_client.metadata import Topic
from pykraft.kafka_protocol.primitives import Buffer

Pick = Callable[[int], int]
"""A number below its argument, at random."""

MURMUR2_SEED: Final = 0x9747B28C
MURMUR2_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Austin Appleby's 32-bit hash, with the seed of Kafka's clients; not negative."""
    length = len(data)
    whole = length & ~3
    h = MURMUR2_SEED ^ length
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * MURMUR2_FACTOR & _MASK
        h = (h * MURMUR2_FACTOR ^ (k ^ k >> 24) * MURMUR2_FACTOR) & _MASK
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * MURMUR2_FACTOR & _MASK
    h = (h ^ h >> 13) * MURMUR2_FACTOR & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class Partitioner:
    """``batch_size_bytes``: how long records without a key stay with a partition."""

    def __init__(self, batch_size_bytes: int, pick: Pick | None = None) -> None:
        self._batch_size_bytes = batch_size_bytes
        self._pick = pick
        self._current: dict[str, tuple[int, int]] = {}
        """By topic: the partition, and the bytes that it may still get."""

    def choose(self, topic: Topic, key: Buffer | None, size_bytes: int) -> int:
        """The partition of a record of that size, which is produced then."""
        if key is not None:
            return partition_of_key(bytes(key), len(topic.partitions))
        index, left_bytes = self._current.get(topic.name, (-1, 0))
        if left_bytes <= 0 or index not in topic.partitions:
            index, left_bytes = self._another(topic, index), self._batch_size_bytes
        self._current[topic.name] = index, left_bytes - size_bytes
        return index

    def _another(self, topic: Topic, last: int) -> int:
        led = [index for index, one in topic.partitions.items() if one.leader_id is not None]
        candidates = [index for index in sorted(led or topic.partitions) if index != last] or [last]
        if self._pick is None:
            return next((index for index in candidates if index > last), candidates[0])
        return candidates[self._pick(len(candidates))]
