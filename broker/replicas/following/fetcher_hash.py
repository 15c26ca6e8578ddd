"""Which of the fetchers of a leader fetches a partition: Kafka's choice, so that both spread load alike."""

from __future__ import annotations

_INT_MIN = -(2**31)


def fetcher_id(topic: str, index: int, fetchers: int) -> int:
    """``abs(31 * hash(topic) + index) % fetchers``, in the 32-bit arithmetic and with the hash of Java."""
    value = _to_int32(31 * _java_hash(topic) + index)
    return (0 if value == _INT_MIN else abs(value)) % fetchers


def _java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = _to_int32(31 * value + ord(character))
    return value


def _to_int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31
