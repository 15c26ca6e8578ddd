"""Record values that vary in length and compress as real data does: log lines in JSON, always the same."""

import functools
import itertools
import json
import random
import time
from collections.abc import Iterator, Sequence

from pykraft.kafka_protocol.compression import Compression, compress
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import HEADER_BYTES

_TEXT_BYTES = 6 << 20
_COMPRESSED_SAMPLE_BYTES = 64 << 10
_RECORD_OVERHEAD_BYTES = 13
"""At most: a record of up to 16 KiB in a batch of up to 1,000,000 records, without a key."""
_SERVICES = "checkout payments search sessions inventory mail".split()
_LEVELS = ["DEBUG"] * 4 + ["INFO"] * 12 + ["WARN"] * 2 + ["ERROR"]


@functools.cache
def values_of(size_bytes: int) -> Sequence[bytes]:
    """Distinct values of ``size_bytes`` on average, from half to one and a half times as long."""
    rng = random.Random(size_bytes)
    text = _text()
    values, at = [], 0
    while at < len(text) - 2 * size_bytes:
        length = rng.randint(size_bytes // 2, size_bytes * 3 // 2)
        values.append(text[at : at + length])
        at += length
    return values


def batch_of(size_bytes: int, value_bytes: int = 1024) -> tuple[bytes, int]:
    """An uncompressed batch of nearly ``size_bytes``, not more; and the number of its records.

    The last value is cut to fit.
    """
    now_ms = int(time.time() * 1000)
    records: list[RecordInput] = []
    left = size_bytes - HEADER_BYTES - _RECORD_OVERHEAD_BYTES
    for value in values_of(value_bytes):
        if left <= 0:
            break
        records.append(RecordInput(None, value[:left], (), now_ms))
        left -= len(value) + _RECORD_OVERHEAD_BYTES
    return encode_batch(records), len(records)


def record_of(size_bytes: int) -> bytes:
    """A batch of one record whose value has so many bytes."""
    batch, count = batch_of(HEADER_BYTES + _RECORD_OVERHEAD_BYTES + size_bytes, 2 * size_bytes)
    assert count == 1
    return batch


def describe_values() -> str:
    sample = _text()[:_COMPRESSED_SAMPLE_BYTES]
    lz4, zstd = (len(sample) / len(compress(codec, sample)) for codec in (Compression.LZ4, Compression.ZSTD))
    return f"Values vary in length by half, and compress {lz4:.1f} times with lz4, {zstd:.1f} times with zstd"


@functools.cache
def _text() -> bytes:
    rng = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(3000)]
    weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(len(words))))
    return b"".join(_lines(rng, words, weights))


def _lines(rng: random.Random, words: list[str], weights: list[float]) -> Iterator[bytes]:
    now_ms, size = 1_800_000_000_000, 0
    while size < _TEXT_BYTES:
        now_ms += rng.randint(0, 40)
        line = {
            "time": now_ms,
            "level": rng.choice(_LEVELS),
            "service": rng.choice(_SERVICES),
            "trace": f"{rng.getrandbits(64):016x}",
            "user": rng.randint(1, 2_000_000),
            "took_ms": round(rng.expovariate(0.05), 3),
            "message": " ".join(rng.choices(words, cum_weights=weights, k=rng.randint(4, 20))),
        }
        encoded = json.dumps(line).encode() + b"\n"
        size += len(encoded)
        yield encoded
