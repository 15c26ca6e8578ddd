"""How long a broker takes to open its logs after ``kill -9``: ``python benchmarks/open_after_kill.py``.

Makes the logs of ``--partitions`` partitions with a few batches each above the recovery point, as a broker
leaves them that is killed, and opens them as its start does. Prints seconds, and the ratio to merely reading
the same files. ``--profile`` prints where the time goes.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

from pykraft.broker.logs.log_loading import create_log, load_dir
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store import checkpoint
from pykraft.log_store.epoch_cache import encode_entries
from pykraft.log_store.interface import LogConfig
from pykraft.runtime.os_disk import OsDisk

NOW_MS = 1_700_000_000_000


def make_logs(root: str, partitions: int, flushed: int, dirty: int, record_bytes: int) -> None:
    """Each log has ``flushed`` batches below its recovery point and ``dirty`` above it."""
    disk, config = OsDisk(), LogConfig()
    points: dict[tuple[str, int], int] = {}
    for index in range(partitions):
        topic_id = Uuid(index.to_bytes(16, "big"))
        opened = create_log(disk, root, f"{root}/t-{index}", config, topic_id, NOW_MS)
        for offset in range(flushed + dirty):
            if offset == flushed:
                # As after a flush, which takes long for so many logs.
                epochs = opened.log.epoch_cache
                Path(epochs.path).write_bytes(encode_entries(epochs.entries))
            inputs = [RecordInput(None, bytes([offset % 251]) * record_bytes, (), NOW_MS + offset)]
            data = encode_batch(inputs, base_offset=offset, leader_epoch=1)
            opened.log.append(data, [read_header(data)], now_ms=NOW_MS)
        opened.log.abandon()
        points["t", index] = flushed
    checkpoint.write_offset_checkpoint(disk, f"{root}/{checkpoint.RECOVERY_POINT_CHECKPOINT}", points)
    starts = dict.fromkeys(points, 0)
    checkpoint.write_offset_checkpoint(disk, f"{root}/{checkpoint.LOG_START_OFFSET_CHECKPOINT}", starts)


def open_logs(root: str, partitions: int) -> float:
    """Seconds."""
    began = perf_counter()
    loaded = load_dir(OsDisk(), root, LogConfig(), NOW_MS)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda opened: opened.log.flush_recovered(), loaded.logs))
    seconds = perf_counter() - began
    assert len(loaded.logs) == partitions and not loaded.offline
    for opened in loaded.logs:
        opened.log.abandon()
    return seconds


def read_files(root: str) -> float:
    """Seconds to read every file of every partition."""
    began = perf_counter()
    for path in Path(root).rglob("*"):
        if path.is_file():
            path.read_bytes()
    return perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--flushed", type=int, default=50, help="batches below the recovery point")
    parser.add_argument("--dirty", type=int, default=10, help="batches above it")
    parser.add_argument("--record-bytes", type=int, default=1000)
    parser.add_argument("--directory", help="where the logs are made; a temporary directory by default")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    root = tempfile.mkdtemp(dir=options.directory)
    try:
        make_logs(root, options.partitions, options.flushed, options.dirty, options.record_bytes)
        read_files(root)  # from now on everything is in the page cache
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        opening = open_logs(root, options.partitions)
        profile.disable()
        reading = read_files(root)
        print(
            f"{options.partitions} partitions, {options.dirty} batches to check in each:"
            f" opened in {opening:.2f} s, {opening / reading:.1f} times as long as reading the files"
        )
        if options.profile:
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
