"""Which partition of an internal topic belongs to a name."""

import pytest

from pykraft.coordinator.partitioning import java_string_hash, partition_for_key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("gr\u00fcppe", 0),
        ("\U0001f600", 0),
    ],
)
def test_string_hash_is_javas(text: str, expected: int) -> None:
    units = text.encode("utf-16-be")
    slow = 0
    for i in range(0, len(units), 2):
        slow = slow * 31 + int.from_bytes(units[i : i + 2], "big")
    slow = (slow + 2**31) % 2**32 - 2**31
    assert java_string_hash(text) == slow
    if text.isascii():
        assert slow == expected


def test_group_partition_takes_the_absolute_value_and_zero_for_the_smallest_number() -> None:
    assert partition_for_key("polygenelubricants", 50) == 0
    assert partition_for_key("hello", 50) == 22
    negative = next(name for name in (f"group-{i}" for i in range(1_000)) if java_string_hash(name) < 0)
    assert partition_for_key(negative, 50) == -java_string_hash(negative) % 50
