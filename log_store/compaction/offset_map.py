"""The newest offset of each key in the part of a log that is being compacted, within a bound of memory.

A key of less than 16 bytes stands for itself, a longer one for its digest of 16 bytes, so that two keys
cannot be taken for one. A dictionary takes eight times the memory of Kafka's table of 24 bytes a key, and
less than half the time of such a table in Python. The bound counts what it takes at worst, while it grows.
"""

from __future__ import annotations

from hashlib import blake2b

BYTES_PER_KEY = 192
_DIGEST_BYTES = 16


class OffsetMap:
    """``end_offset`` is where the map ends, exclusive: it knows every key below, back to where it began.

    Holds ``max_bytes * load_factor / BYTES_PER_KEY`` keys, and one at least, so that every round advances.
    """

    __slots__ = ("_capacity", "_offsets", "end_offset")

    def __init__(self, max_bytes: int, load_factor: float = 1.0) -> None:
        self._capacity = max(1, int(max_bytes * min(load_factor, 1.0)) // BYTES_PER_KEY)
        self._offsets: dict[bytes, int] = {}
        self.end_offset = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Note a record, in rising order of offsets; False if there is no room for its key."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        offsets = self._offsets
        if len(offsets) >= self._capacity and key not in offsets:
            return False
        offsets[key] = offset
        return True

    def is_newest(self, key: bytes, offset: int) -> bool:
        """Whether no later record with this key was noted."""
        if len(key) >= _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1) <= offset
