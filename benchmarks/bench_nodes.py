"""Real nodes as child processes that report the stalls of their event loop, and a client of controllers.

A child runs one :class:`pykraft.node.node.Node`, unmodified, and a timer: the longest time between two ticks,
less the interval, is how long the loop was blocked. Wall time on a shared machine includes the time of other
processes, so the processor time of the loop's thread between the same ticks is reported too.

It is long because the child and what starts, commands and asks it are the two ends of one protocol.

    python benchmarks/bench_nodes.py PROPERTIES SOCKET    # a child: a line each, commands in, JSON out
"""

import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ticker import Ticker, stall_figures

from pykraft.broker.membership.controller_channel import ControllerChannel, _TimeLimit
from pykraft.metadata_log.features import SUPPORTED_RANGES
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.pb import controller_pb2 as pb
from pykraft.node.broker_node import BrokerNode
from pykraft.node.config import load_server_config
from pykraft.node.incarnation import draw_uuid, enter_directories
from pykraft.node.node import Node
from pykraft.node.run import make_world, new_loop
from pykraft.runtime.address import Address
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.directory_lock import DirectoryLock
from pykraft.runtime.free_ports import free_ports
from pykraft.runtime.grpc_rpc import GrpcTransport
from pykraft.testing.processes import node_process as processes
from pykraft.testing.processes.formatted import format_node, node_properties, write_properties
from pykraft.testing.processes.wire_client import decode_answer, frame_of

CLUSTER_ID = "bench-metadata-cluste"
HOST = "127.0.0.1"


# --- the child ---


class Child:
    """Answers the parent's questions about the node in this process."""

    def __init__(self, node: Node, ticker: Ticker) -> None:
        self._node = node
        self._ticker = ticker
        self._first_change_s = self._last_change_s = 0.0
        self._changed = 0
        self._fenced_s: dict[int, float] = {}
        if node.broker is not None:
            self._watch(node.broker.metadata)

    def _watch(self, cache: Any) -> None:
        publish = cache.publish

        def watched(delta: Any, image: Any) -> None:
            publish(delta, image)
            now_s = time.monotonic()
            if delta.changed_partitions:
                self._first_change_s = self._first_change_s or now_s
                self._last_change_s = now_s
                self._changed += sum(len(indexes) for indexes in delta.changed_partitions.values())
            for broker_id in delta.changed_brokers:
                broker = image.brokers.get(broker_id)
                if broker is not None and broker.fenced:
                    self._fenced_s[broker_id] = now_s

        cache.publish = watched

    async def answer(self, words: Sequence[str]) -> Any:
        match words:
            case ["reset"]:
                self._ticker.reset()
                self._first_change_s = self._last_change_s = 0.0
                self._changed = 0
                return True
            case ["stalls"]:
                return stall_figures(self._ticker)
            case ["memory"]:
                gc.collect()
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                return pages * os.sysconf("SC_PAGE_SIZE")
            case ["cpu"]:
                return time.process_time()
            case ["offset"]:
                return self._image().offset
            case ["is_active"]:
                return self._node.controller is not None and self._node.controller.active
            case ["changes"]:
                return {
                    "first_s": self._first_change_s,
                    "last_s": self._last_change_s,
                    "count": self._changed,
                    "fenced_s": self._fenced_s,
                }
            case ["led_by", broker_id]:
                topics = self._image().topics_by_id.values()
                return sum(p.leader == int(broker_id) for topic in topics for p in topic.partitions)
            case ["has_topic", name]:
                await self._broker().metadata.wait_until(lambda image: name in image.topic_ids, 60_000)
                return time.monotonic()
            case _:
                raise ValueError(f"unknown command {words}")

    def _broker(self) -> BrokerNode:
        assert self._node.broker is not None
        return self._node.broker

    def _image(self) -> MetadataImage:
        assert self._node.loader is not None
        return self._node.loader.image


async def _run_child(path: str, number: str) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=int(number)))
    config = load_server_config(Path(path).read_text())
    # As in `pykraft server start`: the locks tell the controller that the previous process is dead.
    locks = [DirectoryLock(directory) for directory in config.all_dirs if os.path.isdir(directory)]
    incarnation = enter_directories(locks, draw_uuid(os.urandom))
    node = Node(config, make_world(config, _die, incarnation=incarnation))
    ticker = Ticker(loop)
    await node.start()
    child = Child(node, ticker)
    _say(writer, time.monotonic())
    listening = loop.create_task(_listen(reader, writer, child, stop))
    await stop.wait()
    listening.cancel()
    await node.stop()


async def _listen(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, child: Child, stop: asyncio.Event
) -> None:
    pending: set[asyncio.Task[None]] = set()

    async def reply(line: str) -> None:
        number, *words = line.split()
        _say(writer, [int(number), await child.answer(words)])

    while line := (await reader.readline()).decode():
        task = asyncio.create_task(reply(line))
        pending.add(task)
        task.add_done_callback(pending.discard)
    stop.set()


def _say(writer: asyncio.StreamWriter, it: object) -> None:
    writer.write(json.dumps(it).encode() + b"\n")


def _die(error: BaseException) -> None:
    print(f"fatal: {error!r}", file=sys.stderr, flush=True)
    os._exit(1)


# --- the parent ---


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node of a benchmark's cluster. ``port`` is the broker's, 0 for a controller, and vice versa."""

    node_id: int
    properties: Path
    port: int
    controller_port: int


class NodeProcess:
    """A process with one node in it, which answers questions through a socket."""

    def __init__(self, spec: NodeSpec) -> None:
        self.spec = spec
        self._process = processes.NodeProcess(spec.node_id, (), spec.properties.with_suffix(".log"))
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self.started_s = 0.0
        self.ready_s = 0.0

    async def start(self) -> None:
        """Wait until the node serves; :attr:`started_s` and :attr:`ready_s` are monotonic times."""
        self.started_s = time.monotonic()
        ours, its = socket.socketpair()
        self._process.command = (sys.executable, __file__, str(self.spec.properties), str(its.fileno()))
        with its:
            self._process.start((its.fileno(),))
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=1 << 24)
        line = await reader.readline()
        if not line:
            raise SystemExit(f"node {self.spec.node_id} did not start: see {self._process.output_file}")
        self.ready_s = json.loads(line)
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, output: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await output.readline():
                number, answer = json.loads(line)
                self._asked.pop(number).set_result(answer)
        for waiting in self._asked.values():
            if not waiting.done():
                waiting.set_exception(SystemExit(f"node {self.spec.node_id} is gone"))

    async def ask(self, command: str) -> Any:
        assert self._writer is not None
        self._number += 1
        answer = self._asked[self._number] = asyncio.get_running_loop().create_future()
        self._writer.write(f"{self._number} {command}\n".encode())
        return await answer

    async def kill(self) -> None:
        await self._end(self._process.kill)

    async def stop(self) -> None:
        await self._end(self._process.stop)

    async def _end(self, end: Callable[[], object]) -> None:
        await asyncio.to_thread(end)
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()
        self._asked.clear()


def make_cluster(directory: Path, controllers: int, brokers: int, **overrides: str) -> list[NodeSpec]:
    """Formatted nodes: controllers 1, 2, …, then brokers 101, 102, …; in ``overrides`` _ stands for a dot."""
    ids = [*range(1, controllers + 1), *range(101, 101 + brokers)]
    places = {i: Address(HOST, port) for i, port in zip(ids, free_ports(len(ids)), strict=True)}
    voters = dict(list(places.items())[:controllers])
    others = {i: at for i, at in places.items() if i not in voters}
    specs = []
    for i, at in places.items():
        file = directory / f"node-{i}" / "server.properties"
        needed = node_properties(i, voters, others, file.parent / "data")
        write_properties(file, needed | {key.replace("_", "."): value for key, value in overrides.items()})
        format_node(file, CLUSTER_ID)
        specs.append(NodeSpec(i, file, *((0, at.port) if i in voters else (at.port, 0))))
    return specs


class ControllerClient:
    """Calls the active controller the way brokers do, without knowing in advance which node it is."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._transport = GrpcTransport(_die)
        self._addresses = [Address(HOST, port) for port in ports]
        self._turn = 0
        self._channel = ControllerChannel(self._transport, self._next, SystemClock(), random.Random())

    def _next(self) -> Address:
        return self._addresses[self._turn % len(self._addresses)]

    async def call(self, method: str, request: Any, response_class: Any, timeout_ms: int = 60_000) -> Any:
        """Asks one controller after the other until the active one answers."""
        deadline = time.monotonic() + timeout_ms / 1000
        payload = request.SerializeToString()
        while True:
            limit = _TimeLimit(SystemClock(), timeout_ms)
            outcome = await self._channel._attempt(self._next(), method, payload, timeout_ms, limit)
            if isinstance(outcome, bytes):
                response = response_class.FromString(outcome)
                if response.error_code == 0:
                    return response
                if response.error_code != 41:
                    raise SystemExit(f"{method}: error {response.error_code} {response.error_message}")
            if time.monotonic() > deadline:
                raise SystemExit(f"{method}: no controller answered")
            self._turn += 1
            await asyncio.sleep(0.005)

    async def forward(self, request: Any, version: int) -> Any:
        """A client's request, as a broker forwards it."""
        message = pb.ForwardRequest(
            api_key=request.API_KEY, api_version=version, body=request.encode(version),
            principal="User:ANONYMOUS", client_id="bench", client_address=HOST,
            listener="PLAINTEXT", timeout_ms=60_000,
        )  # fmt: skip
        answer = await self.call("Forward", message, pb.ForwardResponse)
        return request.RESPONSE.decode(answer.body, version)

    async def close(self) -> None:
        await self._transport.close()


class KafkaClient:
    """One connection to a broker, one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port, limit=1 << 20)

    async def ask(self, request: Any, version: int) -> bytes:
        self._writer.write(frame_of(request, version))
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(length)

    async def call(self, request: Any, version: int) -> Any:
        return decode_answer(request.RESPONSE, version, await self.ask(request, version))

    def close(self) -> None:
        self._writer.close()


class SyntheticBroker:
    """A broker that only registers and sends heartbeats: it has no log, no clients and no metadata."""

    def __init__(self, client: ControllerClient, broker_id: int) -> None:
        self._client = client
        self.broker_id = broker_id
        self.epoch = -1
        self._beating: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Registered and unfenced on return; it then sends a heartbeat every two seconds."""
        identity = self.broker_id.to_bytes(16, "big")
        request = pb.RegisterBrokerRequest(
            cluster_id=CLUSTER_ID, broker_id=self.broker_id,
            incarnation_id=os.urandom(15) + b"\1", log_dirs=[b"\1" + identity[1:]],
            endpoints=[pb.Endpoint(name="PLAINTEXT", host=HOST, port=9, security_protocol="PLAINTEXT")],
            features=[
                pb.Feature(name=one.name, min_level=one.min_level, max_level=one.max_level)
                for one in SUPPORTED_RANGES
            ],
            previous_broker_epoch=-1,
        )  # fmt: skip
        response = await self._client.call("RegisterBroker", request, pb.RegisterBrokerResponse)
        self.epoch = response.broker_epoch
        await self._beat()
        self._beating = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(2)
            await self._beat()

    async def _beat(self) -> None:
        request = pb.BrokerHeartbeatRequest(
            broker_id=self.broker_id, broker_epoch=self.epoch, current_metadata_offset=1 << 60
        )
        await self._client.call("BrokerHeartbeat", request, pb.BrokerHeartbeatResponse)

    async def fall_silent(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beating
            self._beating = None


@contextlib.asynccontextmanager
async def running(
    controllers: int, brokers: int, synthetic: Sequence[int], **overrides: str
) -> AsyncIterator[tuple[list[NodeProcess], ControllerClient, dict[int, SyntheticBroker]]]:
    """The nodes of :func:`make_cluster` and registered synthetic brokers; all end with the block."""
    with tempfile.TemporaryDirectory() as directory:
        specs = make_cluster(Path(directory), controllers, brokers, **overrides)
        nodes = [NodeProcess(spec) for spec in specs]
        client = ControllerClient([spec.controller_port for spec in specs[:controllers]])
        fakes = {broker_id: SyntheticBroker(client, broker_id) for broker_id in synthetic}
        try:
            await asyncio.gather(*(node.start() for node in nodes))
            for fake in fakes.values():
                await fake.start()
            yield nodes, client, fakes
        finally:
            for fake in fakes.values():
                await fake.fall_silent()
            await asyncio.gather(*(node.kill() for node in nodes))
            await client.close()


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_run_child(*sys.argv[1:]))
