"""Measure a round of compaction: its speed, and its cost to a client that produces meanwhile.

One real node. A client produces single small batches with acks=1, one at a time: to a quiet broker, then
beside a round over a log of ``--mib``, then beside a round that may read and write ``--throttle`` MiB a
second (``log.cleaner.io.max.bytes.per.second``). Every key of the log is written four times. A round lasts
from the change of ``min.cleanable.dirty.ratio`` that makes it due to its entry in the cleaner's checkpoint.

    python benchmarks/compaction.py [--mib 64] [--throttle 64] [--directory DIR]
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench_nodes import percentile
from comparison.cluster import Cluster
from comparison.frames import MIB, batch_of, connect, create_topic, produce_frame, produced
from comparison.systems import Pykraft

from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.log_store.checkpoint import CLEANER_OFFSET_CHECKPOINT, read_offset_checkpoint
from pykraft.runtime.os_disk import OsDisk
from pykraft.testing.processes.cluster import Node

TOPIC, BROKER = 2, 4
SEGMENTS = 8
RECORDS, VALUE_BYTES = 64, 1000
BATCH_BYTES = RECORDS * (VALUE_BYTES + 20)
PAUSE_S = 0.001
IN_FLIGHT = 4
NEVER, ALWAYS = "1.0", "0.0"


def alter(node: Node, kind: int, name: str, **values: str) -> None:
    """Set configs; ``_`` in their names stands for ``.``."""
    configs = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in values.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = connect(node.port).call(request, 1)
    assert answer.responses[0].error_code == 0, answer.responses[0]


def fill(node: Node, topic: str, size_bytes: int, codec: Compression) -> None:
    """Every key is written four times, in the same order."""
    count = max(4, size_bytes // BATCH_BYTES)
    value = os.urandom(VALUE_BYTES)
    now_ms = int(time.time() * 1000)

    def frame(number: int) -> bytes:
        first = number % (count // 4) * RECORDS
        inputs = [RecordInput(b"key-%d" % (first + n), value, (), now_ms) for n in range(RECORDS)]
        return produce_frame(topic, 0, encode_batch(inputs, compression=codec), 1)

    with connect(node.port) as client:
        for number in range(count + IN_FLIGHT):
            if number < count:
                client.socket.sendall(frame(number))
            if number >= IN_FLIGHT:
                client.answer()


def produce_while(node: Node, topic: str, is_going_on: Callable[[], bool]) -> list[float]:
    """Milliseconds of each request."""
    client, frame = connect(node.port), produce_frame(topic, 0, batch_of(1000), 1)
    taken = []
    while is_going_on():
        started = time.perf_counter()
        assert produced(client, frame)
        taken.append((time.perf_counter() - started) * 1000)
        time.sleep(PAUSE_S)
    return taken


def log_bytes(partition: Path) -> int:
    return sum(path.stat().st_size for path in partition.glob("*.log"))


def measure_round(node: Node, data: Path, topic: str, size_bytes: int, codec: Compression) -> None:
    """Fill a topic, compact it, and report."""
    create_topic([node], topic, 1, 1)
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": NEVER}
    alter(node, TOPIC, topic, segment_bytes=str(max(MIB, size_bytes // SEGMENTS)), **settings)
    fill(node, topic, size_bytes, codec)
    before = log_bytes(data / f"{topic}-0")
    began_cpu, began = node.cpu_s(), time.monotonic()
    alter(node, TOPIC, topic, min_cleanable_dirty_ratio=ALWAYS)
    path, disk = f"{data}/{CLEANER_OFFSET_CHECKPOINT}", OsDisk()
    taken = produce_while(node, "quiet", lambda: (topic, 0) not in read_offset_checkpoint(disk, path))
    seconds, cpu_s = time.monotonic() - began, node.cpu_s() - began_cpu
    after = log_bytes(data / f"{topic}-0")
    report(f"beside a round ({topic})", taken)
    mib = before / MIB
    print(
        f"    {mib:.0f} MiB became {after / MIB:.0f} in {seconds:.1f} s: {mib / seconds:.1f} MiB a second,"
        f" {cpu_s / mib * 1024:.1f} s of CPU a GiB, the requests included"
    )


def report(what: str, taken: list[float]) -> None:
    p50, p99 = percentile(taken, 0.5), percentile(taken, 0.99)
    print(f"  {what}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, max {max(taken):.2f} ms ({len(taken)} requests)")


def run(options: argparse.Namespace, directory: str) -> None:
    properties = {"log.cleaner.backoff.ms": "100", "log.scrub.bytes.per.second": "0"}
    data, codec = Path(directory) / "node-1" / "data", Compression[options.codec.upper()]
    with Cluster(Pykraft(), Path(directory), 1, properties) as cluster:
        (node,) = cluster.nodes
        create_topic([node], "quiet", 1, 1)
        print(f"acks=1, one request at a time; {options.mib} MiB to compact, {options.codec}")
        produce_while(node, "quiet", partial(next, iter([True] * 200 + [False])))  # warm
        end = time.monotonic() + options.seconds
        report("quiet", produce_while(node, "quiet", lambda: time.monotonic() < end))
        for limit_mib, topic in ((0, "no-throttle"), (options.throttle, f"at-most-{options.throttle}-MiB")):
            if limit_mib:
                alter(node, BROKER, "", log_cleaner_io_max_bytes_per_second=str(limit_mib * MIB))
            measure_round(node, data, topic, options.mib * MIB, codec)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--mib", type=int, default=64, help="size of the log, 4 at least; default: %(default)s"
    )
    parser.add_argument("--throttle", type=int, default=64, help="MiB a second; default: %(default)s")
    parser.add_argument("--codec", choices=[codec.name.lower() for codec in Compression], default="none")
    parser.add_argument("--seconds", type=float, default=3, help="of the quiet measurement")
    parser.add_argument("--directory", help="where the log is made; a temporary directory by default")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="pykraft-bench-", dir=options.directory)
    try:
        run(options, directory)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
