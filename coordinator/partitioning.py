"""Which partition holds a group or a transactional id: Java's string hash, as in every Kafka broker.

Java hashes UTF-16 code units with 32-bit wrap-around, and Kafka takes the absolute value; the smallest
integer, which has none, becomes zero.
"""

from __future__ import annotations

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"


def java_string_hash(text: str) -> int:
    """``String.hashCode()``: a signed 32-bit integer."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def partition_for_key(key: str, num_partitions: int) -> int:
    """The partition of an internal topic that belongs to ``key`` (a group id or a transactional id)."""
    hashed = java_string_hash(key)
    return (0 if hashed == -0x8000_0000 else abs(hashed)) % num_partitions
