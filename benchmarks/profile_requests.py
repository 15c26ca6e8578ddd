"""Where the broker's time goes: microseconds of a Produce and of a Fetch, by what it does then.

    python benchmarks/profile_requests.py [--seconds 10]

One node, and prebuilt batches over two plain sockets, as in the raw rows of ``vs_kafka.py``. The processor
time of a request is measured without a profiler (the median of three loads); its shares are then those of the
samples that ``profiled_node.py`` takes while the same load runs on. A sample counts for the innermost of the
product's files in its stack. The node runs interpreted: compiled functions are not seen one by one.
"""

import argparse
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from comparison.cluster import Cluster
from comparison.frames import create_topic, produce_frame
from comparison.load import load, load_fetches
from comparison.requests import check_produced
from comparison.systems import Pykraft
from comparison.table import figure
from comparison.values import batch_of, record_of

from pykraft.testing.processes.cluster import Node
from pykraft.testing.processes.waits import wait_until

ROOT: Final = Path(__file__).resolve().parent.parent
PROFILED_NODE: Final = Path(__file__).resolve().parent / "profiled_node.py"
LOADS: Final = 3
_PARTITIONS: Final = (0, 1)

REST: Final = "event loop and receive"
STAGES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    # A sample within the loop's own code, which is not Python, is taken at the start of what it calls next.
    (REST, ("runtime/network/tcp.py:get_buffer", "runtime/network/tcp.py:buffer_updated")),
    ("send", ("runtime/network/sinks.py",)),
    ("write to and read from files", ("runtime/os_disk.py",)),
    (
        "parse the request",
        (
            "kafka_protocol/hot/produce.py:parse",
            "kafka_protocol/hot/fetch_requests.py",
            "kafka_protocol/headers.py",
        ),
    ),
    (
        "validate the batch",
        (
            "broker/replicas/validat",
            "kafka_protocol/records.py",
            "kafka_protocol/record_walk.py",
            "kafka_protocol/compiled_walk.py",
        ),
    ),
    ("partition and log", ("broker/replicas/", "broker/fetch_session", "log_store/")),
    (
        "build the response, gather its bytes",
        (
            "kafka_protocol/hot/produce.py",
            "kafka_protocol/hot/fetch_responses.py",
            "runtime/network/streams.py",
        ),
    ),
    ("handler of the API", ("broker/apis/",)),
    ("framing, dispatch and turns", ("kafka_protocol/", "broker/serving/", "runtime/")),
)
"""What a sample counts for: the first whose pattern is in ``path:function``."""


class Profiled(Pykraft):
    """A node that can profile itself."""

    def start_command(self, properties: Path) -> list[str]:
        return [sys.executable, str(PROFILED_NODE), "server", "start", str(properties)]

    def environment(self, scratch: Path) -> dict[str, str]:
        return {**super().environment(scratch), "PYKRAFT_INTERPRETED": "1"}


class Load(NamedTuple):
    """``run`` moves ``requests`` batches, after ``prepare``."""

    name: str
    requests: int
    prepare: Callable[[], object]
    run: Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10, help="for how long each load is sampled")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="profile-requests-"))
    try:
        found = directory / "profile"
        os.environ["PYKRAFT_PROFILE"] = str(found)
        with Cluster(Profiled(), directory / "cluster", 1, {}) as cluster:
            columns = {load.name: profile(cluster, load, options.seconds, found) for load in loads(cluster)}
    finally:
        shutil.rmtree(directory)
    print(table(columns))


def loads(cluster: Cluster) -> Iterable[Load]:
    for name, (batch, records), each, depth in (
        ("1 KiB", (record_of(1024), 1), 25_000, 20),
        ("64 KiB", batch_of(64 << 10), 2_500, 5),
    ):
        topic = _Topic(cluster, batch, records, each, depth)
        yield Load(f"Produce {name}", 2 * each, topic.renew, topic.produce)
        yield Load(f"Fetch {name}", 2 * each, lambda: None, topic.fetch)


class _Topic:
    """Two partitions, ``each`` batches are written to and read from each of them."""

    def __init__(self, cluster: Cluster, batch: bytes, records: int, each: int, depth: int) -> None:
        self._cluster = cluster
        self._port = cluster.port
        self._batch = batch
        self._records = records
        self._each = each
        self._depth = depth
        self._name = f"profiled-{len(batch)}"
        create_topic(cluster.nodes, self._name, len(_PARTITIONS), 1)

    def renew(self) -> None:
        self._cluster.delete_topic(self._name)
        create_topic(self._cluster.nodes, self._name, len(_PARTITIONS), 1)

    def produce(self) -> None:
        frames = [produce_frame(self._name, index, self._batch, 1) for index in _PARTITIONS]
        with load(self._port, frames, check_produced, depth=self._depth) as producers:
            producers.run(len(_PARTITIONS) * self._each)

    def fetch(self) -> None:
        with load_fetches(self._port, self._name, _PARTITIONS, len(self._batch), self._records) as fetchers:
            fetchers.run(len(_PARTITIONS) * self._each)


def profile(cluster: Cluster, load: Load, seconds: float, found: Path) -> dict[str, float]:
    """Microseconds of processor time a request, by stage."""
    load.run()
    costs = []
    for _ in range(LOADS):
        load.prepare()
        costs.append(cluster.cost(load.run).cpu_s)
    cpu_us = statistics.median(costs) / load.requests * 1e6
    counts = sample(cluster.nodes[0], load, seconds, found)
    return {stage: cpu_us * count / counts.total() for stage, count in counts.items()}


def sample(node: Node, load: Load, seconds: float, found: Path) -> Counter[str]:
    """How many samples each stage got while the load was repeated."""
    counts: Counter[str] = Counter()
    enough = time.monotonic() + seconds
    while time.monotonic() < enough:
        load.prepare()
        found.unlink(missing_ok=True)
        node.send_signal(signal.SIGUSR1)
        load.run()
        node.send_signal(signal.SIGUSR2)
        wait_until("the profile", found.exists)
        for line in found.read_text().splitlines():
            stack, _, times = line.rpartition(" ")
            counts[_stage_of(stack.split(";"))] += int(times)
    return counts


def _stage_of(stack: Sequence[str]) -> str:
    """Of a stack, innermost first: that of its first frame in the product."""
    for frame in stack:
        path = frame.removeprefix(f"{ROOT}/")
        if path == frame or path.startswith((".venv/", "node/", "benchmarks/")):
            continue
        for stage, patterns in STAGES:
            if any(pattern in path.replace(":_", ":") for pattern in patterns):
                return stage
    return REST


def table(columns: dict[str, dict[str, float]]) -> str:
    lines = [
        "| µs of processor time a request | " + " | ".join(columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for stage, _ in STAGES:
        cells = [figure(column.get(stage, 0.0)) for column in columns.values()]
        lines.append(f"| {stage} | " + " | ".join(cells) + " |")
    totals = [figure(sum(column.values())) for column in columns.values()]
    lines.append("| all | " + " | ".join(totals) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
