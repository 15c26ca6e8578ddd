"""How much the walk over the records adds to the validation of a batch, by sizes of batch and records.

One process, no sockets: the best of many rounds, in microseconds. *Header* is what every batch costs (61
bytes of header, the CRC); *all* is header and walk, for records of one length, and for records of random
lengths up to twice the size. With ``--python`` as where the compiled walk is not installed.

    python benchmarks/validation.py [--rounds N] [--python]
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from unittest.mock import patch

from pykraft.broker.replicas import validate
from pykraft.broker.replicas.validate import ClientBatch
from pykraft.kafka_protocol.compiled_walk import IS_COMPILED
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.record_walk import RecordWalk
from pykraft.log_store.interface import LogConfig

BATCH_BYTES = (16 << 10, 64 << 10, 1 << 20)
RECORD_BYTES = (100, 1 << 10, 64 << 10)
NOW_MS = 1_800_000_000_000
CONFIG = LogConfig(max_message_bytes=1 << 30)
WORK = 1 << 62


def best_us(job: Callable[[], object], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        job()
        best = min(best, time.perf_counter() - started)
    return best * 1e6


def begin(view: memoryview) -> ClientBatch:
    return ClientBatch(view, CONFIG, NOW_MS, 9)


def validate_all(view: memoryview) -> None:
    batch = begin(view)
    batch.advance(WORK)
    assert batch.is_done
    batch.finish()


def batch_of(sizes: list[int]) -> memoryview:
    value = os.urandom(max(sizes))
    records = [
        RecordInput(None, value[:size], (), NOW_MS + 5 * index // len(sizes))
        for index, size in enumerate(sizes)
    ]
    return memoryview(bytearray(encode_batch(records)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--python", action="store_true")
    options = parser.parse_args()
    is_compiled = IS_COMPILED and not options.python
    with nullcontext() if is_compiled else patch.multiple(validate, IS_COMPILED=False, begin_walk=RecordWalk):
        print("walked in", "C" if is_compiled else "Python")
        measure(options.rounds)


def measure(rounds: int) -> None:
    rng = random.Random(1)
    print("batch     record    records   header us   all us, one length   all us, random lengths")
    for batch_bytes in BATCH_BYTES:
        for record_bytes in RECORD_BYTES:
            if record_bytes > batch_bytes:
                continue
            count = batch_bytes // record_bytes
            even = batch_of([record_bytes] * count)
            mixed = batch_of([rng.randrange(2 * record_bytes) for _ in range(count)])
            header, all_even, all_mixed = (
                best_us(job, rounds)
                for job in (lambda: begin(even), lambda: validate_all(even), lambda: validate_all(mixed))  # noqa: B023
            )
            print(
                f"{batch_bytes >> 10:5} KiB {record_bytes:7} B {count:8} {header:11.1f}"
                f" {all_even:20.1f} {all_mixed:24.1f}"
            )


if __name__ == "__main__":
    main()
