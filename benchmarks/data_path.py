"""The cost of the data path: CPU seconds of the broker per GB, microseconds per request, acks=all latency.

Runs real server processes in a temporary directory and sends them prebuilt frames over plain sockets, so that
the client costs little. Compare CPU seconds and the ratios to the raw-socket rate of the same run, never MB/s
alone: wall-clock figures on a shared machine vary by a factor of two. Memory that the system has never used
is slow on virtual machines, so the page cache is filled first.

    python benchmarks/data_path.py [--quick] [--directory DIR] [--property NAME=VALUE]...
    python benchmarks/data_path.py --broker ID:PORT:PID    # a running one, such as Apache Kafka
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from pykraft.kafka_protocol.headers import decode_response_header, encode_request
from pykraft.kafka_protocol.messages import cluster
from pykraft.kafka_protocol.messages import records as record_messages
from pykraft.kafka_protocol.messages import topics as topic_messages
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.runtime.free_ports import free_ports

GB = 1_000_000_000
MIB = 1 << 20
TICKS = os.sysconf("SC_CLK_TCK")
RECORD_BYTES = 1024
ANSWER_TIMEOUT_S = 60
_MARK = 0x0123456789ABCDEF


class Client:
    """A blocking connection that sends table-driven messages and replays frames."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Unlike settimeout() it adds no system call to every receive.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", ANSWER_TIMEOUT_S, 0))
        self._buffer = bytearray(4 * MIB)

    def call(self, request: Any, version: int) -> Any:
        self.socket.sendall(frame_of(request, version))
        data = self.receive()
        _, at = decode_response_header(request.API_KEY, version, data)
        return request.RESPONSE.decode(bytes(data[at:]), version)

    def receive(self) -> memoryview:
        """The next frame, valid until the next call."""
        size = self._fill(4)
        (length,) = struct.unpack(">i", size)
        return self._fill(length)

    def _fill(self, count: int) -> memoryview:
        if count > len(self._buffer):
            self._buffer = bytearray(count)
        view = memoryview(self._buffer)[:count]
        done = 0
        while done < count:
            received = self.socket.recv_into(view[done:])
            if not received:
                raise ConnectionError("the broker closed the connection")
            done += received
        return view


def frame_of(request: Any, version: int) -> bytes:
    body = encode_request(request, version, 1, "bench")
    return struct.pack(">i", len(body)) + body


@dataclass
class Node:
    """One server process."""

    node_id: int
    port: int
    pid: int
    process: subprocess.Popen[bytes] | None = None
    """None if it was not started here; it is then not stopped here either."""

    def cpu_s(self) -> tuple[float, float]:
        """CPU seconds since its start: (in user mode, in the kernel)."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) / TICKS, int(fields[12]) / TICKS

    def rss_mib(self) -> float:
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


def start_cluster(directory: str, count: int, more_properties: list[str]) -> list[Node]:
    ports, controller_ports = free_ports(count), free_ports(count)
    voters = ",".join(f"{n + 1}@127.0.0.1:{controller_ports[n]}" for n in range(count))
    command = [sys.executable, "-m", "pykraft.node"]
    nodes = []
    for n in range(count):
        path = f"{directory}/node-{n + 1}"
        os.makedirs(path)
        properties = f"{path}/server.properties"
        with open(properties, "w") as file:
            file.write(
                f"process.roles=broker,controller\nnode.id={n + 1}\ncontroller.quorum.voters={voters}\n"
                f"listeners=PLAINTEXT://127.0.0.1:{ports[n]},CONTROLLER://127.0.0.1:{controller_ports[n]}\n"
                f"controller.listener.names=CONTROLLER\nlog.dirs={path}/data\n" + "\n".join(more_properties)
            )
        subprocess.run(
            [*command, "storage", "format", "-t", "bench-cluster", "-c", properties],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with open(f"{path}/server.log", "wb") as log:
            process = subprocess.Popen(
                [*command, "server", "start", properties], stdout=log, stderr=subprocess.STDOUT
            )
        nodes.append(Node(n + 1, ports[n], process.pid, process))
    for node in nodes:
        wait_for(lambda node=node: can_connect(node.port), f"node {node.node_id}")  # type: ignore[misc]
    return nodes


def can_connect(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_for(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out waiting for {what}")
        time.sleep(0.02)


def stop_cluster(nodes: list[Node]) -> None:
    processes = [node.process for node in nodes if node.process is not None]
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def create_topic(nodes: list[Node], name: str, partitions: int, replication_factor: int) -> list[int]:
    """Create a topic; returns the leader of each partition."""
    client = Client(nodes[0].port)
    configs = [topic_messages.CreatableTopicConfig(name="retention.ms", value="-1")]
    topic = topic_messages.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor, configs=configs
    )
    request = topic_messages.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    result = client.call(request, 7).topics[0]
    assert result.error_code in (0, 36), result
    leaders: list[int] = []

    def ready() -> bool:
        asked = [cluster.MetadataRequestTopic(name=name)]
        response = client.call(cluster.MetadataRequest(topics=asked), 9)
        found = sorted(response.topics[0].partitions, key=lambda p: p.partition_index)
        leaders[:] = [p.leader_id for p in found]
        return len(found) == partitions and all(p.error_code == 0 for p in found)

    wait_for(ready, f"topic {name}")
    small = produce_frame(name, 0, batch_of(100), 1)
    for index, leader in enumerate(leaders):
        port = next(node.port for node in nodes if node.node_id == leader)
        probe = Client(port)
        small = produce_frame(name, index, batch_of(100), 1)
        wait_for(lambda: produced(probe, small), f"{name}-{index}")  # noqa: B023
    return leaders


def delete_topic(node: Node, name: str) -> None:
    """Free the logs' memory, so that the next measurement uses memory that the system has used before."""
    topics = [topic_messages.DeleteTopicState(name=name)]
    request = topic_messages.DeleteTopicsRequest(topics=topics, timeout_ms=30_000)
    Client(node.port).call(request, 6)
    time.sleep(0.5)


def produced(client: Client, frame: bytes) -> bool:
    client.socket.sendall(frame)
    data = client.receive()
    _, at = decode_response_header(0, 8, data)
    response = record_messages.ProduceResponse.decode(bytes(data[at:]), 8)
    return response.responses[0].partition_responses[0].error_code == 0


def batch_of(size_bytes: int) -> bytes:
    """A batch of 1 KiB records, of nearly ``size_bytes``."""
    count = max(1, size_bytes // RECORD_BYTES)
    value = os.urandom(min(size_bytes, RECORD_BYTES - 20))
    now_ms = int(time.time() * 1000)
    return encode_batch([RecordInput(None, value, (), now_ms)] * count)


def produce_frame(topic: str, index: int, batch: bytes, acks: int) -> bytes:
    data = [record_messages.PartitionProduceData(index=index, records=batch)]
    topics = [record_messages.TopicProduceData(name=topic, partition_data=data)]
    return frame_of(record_messages.ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics), 8)


def fetch_frame(topic: str, index: int, offset: int, max_bytes: int, max_wait_ms: int = 100) -> bytes:
    partition = record_messages.FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    topics = [record_messages.FetchTopic(topic=topic, partitions=[partition])]
    request = record_messages.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, session_epoch=-1, topics=topics
    )
    return frame_of(request, 11)


def pump(port: int, frames: Callable[[int], bytes | bytearray], count: int, depth: int) -> int:
    """Send ``count`` frames, ``depth`` of them unanswered; returns the bytes of the answers."""
    client = Client(port)
    sent = received = total = 0
    while received < count:
        while sent < count and sent - received < depth:
            client.socket.sendall(frames(sent))
            sent += 1
        total += len(client.receive()) + 4
        received += 1
    client.socket.close()
    return total


def in_parallel(jobs: Sequence[Callable[[], int]]) -> list[int]:
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


@dataclass
class Cost:
    """The broker's CPU time and the wall time of one measurement."""

    user_s: float
    kernel_s: float
    wall_s: float

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.kernel_s


def measured(node: Node, work: Callable[[], Any]) -> Cost:
    (user, kernel), wall = node.cpu_s(), time.monotonic()
    work()
    user_after, kernel_after = node.cpu_s()
    return Cost(user_after - user, kernel_after - kernel, time.monotonic() - wall)


def raw_socket_rate(total_bytes: int) -> float:
    """GB/s from one process to another over loopback, 1 MiB at a time."""
    listener = socket.create_server(("127.0.0.1", 0))
    child = os.fork()
    if child == 0:
        sender = socket.create_connection(listener.getsockname())
        block = bytes(MIB)
        for _ in range(total_bytes // MIB):
            sender.sendall(block)
        sender.close()
        os._exit(0)
    connection, _ = listener.accept()
    view = memoryview(bytearray(MIB))
    started, received = time.monotonic(), 0
    while count := connection.recv_into(view):
        received += count
    rate = received / (time.monotonic() - started) / GB
    connection.close()
    listener.close()
    os.waitpid(child, 0)
    return rate


def touch_page_cache(directory: str, size_bytes: int) -> None:
    """Make the system use memory that it may never have used: freed pages are quick to allocate again."""
    path = f"{directory}/touch"
    block = os.urandom(MIB)
    with open(path, "wb", buffering=0) as file:
        for _ in range(size_bytes // MIB):
            file.write(block)
    os.remove(path)


def measure_single(node: Node, total_bytes: int, raw_rate: float) -> None:
    for label, size in (("1 MiB", MIB), ("64 KiB", 64 * 1024)):
        topic = f"bulk-{size}"
        create_topic([node], topic, 2, 1)
        batch = batch_of(size)
        count = max(4, total_bytes // len(batch) // 2)
        moved = 2 * count * len(batch)
        jobs = [partial(replay_produce, node.port, topic, index, batch, count) for index in (0, 1)]
        report(f"produce {label} batches", measured(node, partial(in_parallel, jobs)), moved, raw_rate)
        step = size // RECORD_BYTES
        jobs = [partial(replay_fetch, node.port, topic, index, len(batch), step, count) for index in (0, 1)]
        report(f"fetch   {label} at a time", measured(node, partial(in_parallel, jobs)), moved, raw_rate)
        delete_topic(node, topic)


def replay_produce(port: int, topic: str, index: int, batch: bytes, count: int) -> int:
    frame = produce_frame(topic, index, batch, 1)
    return pump(port, lambda _: frame, count, 5)


def replay_fetch(port: int, topic: str, index: int, size_bytes: int, records: int, count: int) -> int:
    """Fetch batch after batch; offset 0 holds the record that probed whether the topic was ready."""
    frame = bytearray(fetch_frame(topic, index, _MARK, size_bytes))
    offset_at = frame.index(_MARK.to_bytes(8, "big"))

    def at(number: int) -> bytearray:
        frame[offset_at : offset_at + 8] = (1 + number * records).to_bytes(8, "big")
        return frame

    return pump(port, at, count, 2)


def measure_requests(node: Node, count: int) -> None:
    create_topic([node], "small", 1, 1)
    frame = produce_frame("small", 0, batch_of(RECORD_BYTES), 1)
    cost = measured(node, lambda: pump(node.port, lambda _: frame, count, 20))
    print(f"  produce 1 KiB, 1 partition   {cost.cpu_s / count * 1e6:8.1f} us CPU a request, "
          f"{count / cost.wall_s:9,.0f} requests/s")  # fmt: skip
    frame = fetch_frame("small", 0, 1, RECORD_BYTES)
    cost = measured(node, lambda: pump(node.port, lambda _: frame, count, 20))
    print(f"  fetch 1 KiB, 1 partition     {cost.cpu_s / count * 1e6:8.1f} us CPU a request, "
          f"{count / cost.wall_s:9,.0f} requests/s")  # fmt: skip


def measure_during_bulk(node: Node, seconds: float) -> None:
    """Latency of a small control request while two producers send 1 MiB batches as fast as they can."""
    create_topic([node], "beside", 2, 1)
    frames = [produce_frame("beside", index, batch_of(MIB), 1) for index in (0, 1)]
    stop = threading.Event()

    def load(frame: bytes) -> None:
        client = Client(node.port)
        while not stop.is_set():
            for _ in range(3):
                client.socket.sendall(frame)
            for _ in range(3):
                client.receive()

    threads = [threading.Thread(target=load, args=(frame,)) for frame in frames]
    for thread in threads:
        thread.start()
    request = frame_of(cluster.MetadataRequest(topics=[]), 9)
    client = Client(node.port)
    latencies = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        started = time.perf_counter()
        client.socket.sendall(request)
        client.receive()
        latencies.append(time.perf_counter() - started)
        time.sleep(0.002)
    stop.set()
    for thread in threads:
        thread.join()
    delete_topic(node, "beside")
    latencies.sort()
    p50, p99 = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    print(f"  Metadata beside bulk produce p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms")


def measure_acks_all(nodes: list[Node], count: int) -> None:
    leader = create_topic(nodes, "replicated", 1, 3)[0]
    port = next(node.port for node in nodes if node.node_id == leader)
    frame = produce_frame("replicated", 0, batch_of(100), -1)
    client = Client(port)
    wait_for(lambda: produced(client, frame), "replication")
    latencies = []
    for n in range(count + count // 10):
        started = time.perf_counter()
        client.socket.sendall(frame)
        client.receive()
        if n >= count // 10:
            latencies.append(time.perf_counter() - started)
    latencies.sort()
    p50, p99 = latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]
    print(f"  acks=all, 3 brokers, 100 B   p50 {p50 * 1e6:.0f} us, p99 {p99 * 1e6:.0f} us")
    bulk = produce_frame("replicated", 0, batch_of(64 * 1024), -1)
    size = len(batch_of(64 * 1024))
    total = 4 * count
    node = next(node for node in nodes if node.node_id == leader)
    cost = measured(node, lambda: pump(port, lambda _: bulk, total, 5))
    print(f"  acks=all, 3 brokers, 64 KiB  {total * size / cost.wall_s / 1e6:.0f} MB/s, "
          f"leader {cost.cpu_s / (total * size / GB):.2f} s/GB")  # fmt: skip


def report(label: str, cost: Cost, size_bytes: int, raw_rate: float) -> None:
    rate = size_bytes / cost.wall_s / GB
    print(
        f"  {label:28} {cost.cpu_s / (size_bytes / GB):8.2f} CPU s/GB "
        f"({cost.user_s / (size_bytes / GB):.2f} user), {rate * 1000:7.0f} MB/s, "
        f"{rate / raw_rate:5.2f} of raw"
    )


def measure_broker(node: Node, total_bytes: int, raw_rate: float, is_quick: bool) -> None:
    print("one broker:")
    measure_single(node, total_bytes, raw_rate)
    measure_requests(node, 20_000 if is_quick else 200_000)
    measure_during_bulk(node, 1 if is_quick else 4)
    print(f"  memory of the broker         {node.rss_mib():8.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the load: shows the shape only")
    parser.add_argument("--directory", help="where the brokers keep their data (default: a temporary one)")
    parser.add_argument("--property", action="append", default=[], help="for every node: NAME=VALUE")
    parser.add_argument("--broker", help="measure only this broker of this machine: ID:PORT:PID")
    options = parser.parse_args()
    total = 200 * MIB if options.quick else 2000 * MIB
    directory = tempfile.mkdtemp(prefix="pykraft-bench-", dir=options.directory)
    nodes: list[Node] = []
    try:
        touch_page_cache(directory, 2 * total)
        rate = raw_socket_rate(5 * total)
        print(f"raw socket, 1 MiB at a time: {rate * 1000:,.0f} MB/s")
        if options.broker:
            node_id, port, pid = map(int, options.broker.split(":"))
            measure_broker(Node(node_id, port, pid), total, rate, options.quick)
            return
        nodes = start_cluster(f"{directory}/one", 1, options.property)
        measure_broker(nodes[0], total, rate, options.quick)
        stop_cluster(nodes)
        nodes = start_cluster(f"{directory}/three", 3, options.property)
        print("three brokers:")
        measure_acks_all(nodes, 500 if options.quick else 5000)
    finally:
        stop_cluster(nodes)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
