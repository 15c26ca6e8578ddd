"""Varints at the limits of their ranges."""

import pytest

from pykraft.kafka_protocol.primitives import (
    ProtocolError,
    read_uvarint,
    read_varint,
    read_varlong,
    write_uvarint,
    write_varint,
)

EDGES = sorted({edge + step for bits in range(0, 63, 7) for edge in (1 << bits,) for step in (-1, 0, 1)})


@pytest.mark.parametrize("value", [v for v in EDGES if v < 1 << 32] + [2**32 - 1])
def test_unsigned_varint_round_trips(value: int) -> None:
    out = bytearray(b"?")
    write_uvarint(out, value)
    assert read_uvarint(out, 1) == (value, len(out))
    assert len(out) - 1 == max(1, -(-value.bit_length() // 7))


@pytest.mark.parametrize("value", [*EDGES, *(-v for v in EDGES), 2**63 - 1, -(2**63)])
def test_signed_varint_round_trips(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert read_varlong(out, 0) == (value, len(out))
    if -(2**31) <= value < 2**31:
        assert read_varint(out, 0) == (value, len(out))


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, b"\x00"), (-1, b"\x01"), (1, b"\x02"), (-64, b"\x7f"), (64, b"\x80\x01")]
)
def test_signed_varint_is_zigzag(value: int, encoded: bytes) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out == encoded


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 12])
def test_varint_beyond_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(data, 0)


@pytest.mark.parametrize("data", [b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x00", b"\xff" * 12])
def test_varlong_beyond_64_bits_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_varlong(data, 0)


def test_varint_that_ends_early_is_an_index_error_for_the_caller_to_convert() -> None:
    for read in (read_uvarint, read_varint, read_varlong):
        with pytest.raises(IndexError):
            read(b"\x80\x80", 0)
