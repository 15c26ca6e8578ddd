"""Compression formats, and data that decompresses to more than it should."""

import gzip
import struct
import tracemalloc

import cramjam
import pytest

from pykraft.kafka_protocol.compression import Compression, compress, decompress
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch

CODECS = [codec for codec in Compression if codec]
TEXT = b"".join(b"%d little bytes;" % i for i in range(20_000))
BOMB_BYTES = 64 << 20
LIMIT = 1 << 20


def name(codec: Compression) -> str:
    return codec.name


@pytest.mark.parametrize("codec", Compression, ids=name)
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["empty", "one", "text"])
def test_compression_round_trips(codec: Compression, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, 1 << 20) == data
    assert decompress(codec, memoryview(packed), len(data)) == data


@pytest.mark.parametrize("codec", Compression, ids=name)
def test_limit_is_exact(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(ProtocolError) as refusal:
        decompress(codec, packed, len(TEXT) - 1)
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS, ids=name)
def test_decompression_bomb_is_refused_within_bounded_memory(codec: Compression) -> None:
    bomb = compress(codec, bytes(BOMB_BYTES))
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError) as refusal:
            decompress(codec, bomb, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 4 * LIMIT + len(bomb)


@pytest.mark.parametrize("codec", CODECS, ids=name)
def test_decompression_bomb_in_a_batch_is_refused(codec: Compression) -> None:
    batch = encode_batch([RecordInput(None, bytes(8 << 20))], compression=codec)
    with pytest.raises(ProtocolError) as refusal:
        decode_batch(batch, max_bytes=LIMIT)
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS, ids=name)
def test_truncated_or_foreign_data_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    for bad in (packed[: len(packed) // 2], packed[:-1], b"\x01\x02\x03\x04nonsense"):
        with pytest.raises(ProtocolError) as refusal:
            decompress(codec, bad, 1 << 20)
        assert refusal.value.code is ErrorCode.CORRUPT_MESSAGE


def test_lz4_blocks_are_independent_as_java_requires() -> None:
    frame = compress(Compression.LZ4, TEXT)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    version, independent = frame[4] >> 6, frame[4] >> 5 & 1
    assert (version, independent) == (1, 1)


def test_gzip_members_in_a_row_are_read() -> None:
    packed = gzip.compress(b"first ") + gzip.compress(b"second")
    assert decompress(Compression.GZIP, packed, 100) == b"first second"


def test_snappy_is_written_in_the_java_librarys_framing() -> None:
    packed = compress(Compression.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"


def test_bare_snappy_block_is_read() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), 1 << 20) == TEXT


@pytest.mark.parametrize("claim", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x7f"])
def test_snappy_block_that_claims_gigabytes_is_refused(claim: bytes) -> None:
    block = claim + b"\x00a"
    framed = compress(Compression.SNAPPY, b"")[:16] + struct.pack(">i", len(block)) + block
    tracemalloc.start()
    try:
        for bad in (block, framed):
            with pytest.raises(ProtocolError):
                decompress(Compression.SNAPPY, bad, 1 << 30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < LIMIT


@pytest.mark.parametrize("length", [-1, 0, 2**31 - 1])
def test_snappy_block_of_impossible_size_is_refused(length: int) -> None:
    framed = compress(Compression.SNAPPY, b"abc")[:16] + struct.pack(">i", length) + b"abc"
    with pytest.raises(ProtocolError):
        decompress(Compression.SNAPPY, framed, 1 << 20)
