"""A quorum of whole nodes (driver, log, state file) in one event loop in virtual time, over memory disks."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.quorum.bootstrap import format_log
from pykraft.quorum.core.effects import AppendSnapshotChunk, CheckSnapshot
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.driver import CommittedBatch, LeaderAndEpoch, QuorumConfig, QuorumNode, SnapshotId
from pykraft.quorum.snapshots import SnapshotStore
from pykraft.quorum.state_store import QuorumStateStore
from pykraft.quorum.storage import QuorumStorage
from pykraft.runtime.address import Address
from pykraft.runtime.disk import Disk
from pykraft.runtime.rpc import PendingCall, RpcFailure, RpcHandler
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.simulated.virtual_loop import SimExecutor, VirtualClock, VirtualLoop

DIRECTORY = "/data/__cluster_metadata-0"

FAST = QuorumConfig(
    election_timeout_ms=60,
    fetch_timeout_ms=120,
    election_backoff_max_ms=60,
    request_timeout_ms=100,
    retry_backoff_ms=5,
    fetch_max_wait_ms=50,
)

MAX_FLUSH_MS = 2


def fetch_snapshot(
    storage: QuorumStorage,
    snapshot_id: SnapshotId,
    values: Sequence[bytes],
    voters: VoterSet | None,
    pieces: Iterator[int],
) -> None:
    """Fetch a whole snapshot in pieces of this size and check it: it may then be installed."""
    source = MemoryDisk()
    source.make_dirs(DIRECTORY)
    store = SnapshotStore(source, DIRECTORY)
    writer = store.writer(snapshot_id, 5, voters)
    writer.append(values)
    writer.finish()
    writer.publish()
    store.add(writer.info)
    position = 0
    while position < writer.info.size_bytes:
        data = store.read_chunk(snapshot_id, position, next(pieces))
        storage.apply(AppendSnapshotChunk(snapshot_id, position, data))
        position += len(data)
    storage.checked[snapshot_id] = storage.prepare_check(
        CheckSnapshot(snapshot_id, 1, writer.info.checksum)
    )()


class MemoryRpc:
    """Servers and transports of one process: calls are tasks; a cut address answers with failures."""

    def __init__(self) -> None:
        self.handlers: dict[Address, dict[str, RpcHandler]] = {}
        self.down: set[Address] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    def server(self, address: Address) -> "MemoryRpcServer":
        return MemoryRpcServer(self, address)

    def transport(self, sender: Address) -> "MemoryTransport":
        return MemoryTransport(self, sender)

    def send(
        self,
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
        sender: Address | None = None,
    ) -> PendingCall:
        def check() -> None:
            if to in self.down or sender in self.down or method not in self.handlers.get(to, {}):
                raise ConnectionRefusedError

        async def call() -> None:
            outcome: bytes | RpcFailure
            try:
                await asyncio.sleep(0)
                check()
                async with asyncio.timeout(deadline_ms / 1000):
                    outcome = await self.handlers[to][method](payload)
                check()
            except (TimeoutError, ConnectionRefusedError) as error:
                outcome = RpcFailure(type(error).__name__)
            on_reply(outcome)

        task = asyncio.get_running_loop().create_task(call())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class MemoryTransport:
    """The calling side of one replica: a replica that is down neither receives nor sends."""

    def __init__(self, rpc: MemoryRpc, sender: Address) -> None:
        self._rpc = rpc
        self._sender = sender

    def send(
        self,
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
    ) -> PendingCall:
        return self._rpc.send(to, method, payload, deadline_ms, on_reply, self._sender)

    async def close(self) -> None:
        """The calls belong to :class:`MemoryRpc`."""


class MemoryRpcServer:
    def __init__(self, rpc: MemoryRpc, address: Address) -> None:
        self._rpc = rpc
        self._address = address

    def register(self, method: str, handler: RpcHandler) -> None:
        self._rpc.handlers.setdefault(self._address, {})[method] = handler

    async def bind(self, host: str, port: int) -> int:
        return port

    async def start(self) -> None:
        """The handlers are called from the moment they are registered."""

    async def stop(self, grace_ms: int) -> None:
        self._rpc.handlers.pop(self._address, None)


class Recorder:
    """A listener that records its calls, and checks their order."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.batches: list[CommittedBatch] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.next_offset = 0
        self.largest_slice = 0
        self.snapshot: tuple[SnapshotId, int] | None = None

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            assert batch.base_offset + batch.earlier == self.next_offset
            self.values += batch.values
            self.next_offset += len(batch.values)
            if batch.is_last_piece:
                self.next_offset = batch.last_offset + 1
                self.batches.append(batch)
        self.largest_slice = max(self.largest_slice, sum(len(batch.values) for batch in batches))

    def begin_snapshot(self, snapshot_id: SnapshotId, append_time_ms: int) -> None:
        self.snapshot = snapshot_id, append_time_ms
        self.values.clear()

    def handle_snapshot_values(self, values: Sequence[bytes]) -> None:
        self.values += values

    def finish_snapshot(self) -> None:
        assert self.snapshot is not None
        self.next_offset = self.snapshot[0].end_offset

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)


class Replica:
    """One node that can be started, stopped, and crashed with its disk."""

    def __init__(self, cluster: "Cluster", key: ReplicaKey, address: Address) -> None:
        self.cluster = cluster
        self.key = key
        self.address = address
        self.never_votes = False
        self.memory_disk = MemoryDisk()
        format_log(self.memory_disk, DIRECTORY, now_ms=0)
        self.disk: Disk = self.memory_disk
        self.listener = Recorder()
        self.fatal: list[BaseException] = []
        self.node: QuorumNode | None = None
        self.log: Log
        self.threads: SimExecutor

    @property
    def live(self) -> QuorumNode:
        """The node, which must be running."""
        assert self.node is not None
        return self.node

    def new_node(self) -> QuorumNode:
        """A node on what the disk holds, not started yet."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        clock = VirtualClock(loop)
        self.log = Log.open(self.disk, DIRECTORY, LogConfig(), now_ms=clock.wall_ms())
        self.listener = Recorder()
        self.threads = SimExecutor(random.Random(self.key.id), MAX_FLUSH_MS)
        return QuorumNode(
            config=self.cluster.config,
            cluster_id="test-cluster",
            local=self.key,
            voters=self.cluster.voters_known_to(self.key),
            log=self.log,
            state_store=QuorumStateStore(self.disk, DIRECTORY),
            transport=self.cluster.rpc.transport(self.address),
            clock=clock,
            rng=random.Random(self.key.id),
            on_fatal=self.fatal.append,
            flush_executor=self.threads,  # type: ignore[arg-type]
            local_address=None if self.never_votes else self.address,
        )

    async def start(self) -> QuorumNode:
        node = self.new_node()
        node.register(self.cluster.rpc.server(self.address))
        self.cluster.rpc.down.discard(self.address)
        self.node = node
        await node.start([self.listener])
        return node

    async def stop(self) -> None:
        await self.live.stop()
        self.cluster.rpc.down.add(self.address)
        self.log.close()
        self.node = None

    async def crash(self, rng: random.Random) -> None:
        """Kill -9 with a power loss: no peer is told, unflushed bytes are lost or torn."""
        self.cluster.rpc.down.add(self.address)
        self.live._halt()
        await self.live.stop()
        self.node = None
        self.memory_disk.crash(rng)


class Cluster:
    """``voters_of_observers``: the voters that observers are started with; the same as for voters if None.
    ``fixed``: every node is started with voters known by their ids alone.
    """

    def __init__(
        self,
        voters: int,
        observers: int = 0,
        config: QuorumConfig = FAST,
        voters_of_observers: VoterSet | None = None,
        *,
        fixed: bool = False,
    ) -> None:
        self.config = config
        self.voters_of_observers = voters_of_observers
        self.rpc = MemoryRpc()
        keys = [ReplicaKey(i, Uuid(bytes([i]) * 16)) for i in range(1, voters + observers + 1)]
        addresses = [Address("test", 9000 + key.id) for key in keys]
        named = [ReplicaKey(key.id) if fixed else key for key in keys[:voters]]
        self.voters = VoterSet([Voter(k, a) for k, a in zip(named, addresses, strict=False)])
        self.replicas = [Replica(self, key, address) for key, address in zip(keys, addresses, strict=True)]

    def voters_known_to(self, key: ReplicaKey) -> VoterSet:
        notified = self.voters_of_observers
        return self.voters if notified is None or self.voters.is_voter(key) else notified

    @property
    def nodes(self) -> list[QuorumNode]:
        return [replica.node for replica in self.replicas if replica.node is not None]

    async def start(self) -> None:
        for replica in self.replicas:
            await replica.start()

    async def until(self, condition: Callable[[], object], timeout_s: float = 20.0) -> None:
        """Let (virtual) time pass until ``condition`` holds."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                for replica in self.replicas:
                    assert not replica.fatal, replica.fatal
                await asyncio.sleep(0.002)

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def leading(self) -> Replica | None:
        """The live replica that leads, once every live voter agrees on it."""
        known = {replica.node.leader for replica in self.replicas if replica.node is not None}
        if len(known) != 1:
            return None
        leader_id = known.pop().leader_id
        return next((r for r in self.replicas if r.key.id == leader_id and r.node is not None), None)

    async def leader(self) -> Replica:
        await self.until(self.leading)
        replica = self.leading()
        assert replica is not None
        return replica

    async def commit(self, *values: bytes) -> int:
        """Propose to the leader and wait until every live listener has the values."""
        replica = await self.leader()
        offset = replica.live.propose(replica.live.leader.epoch, values)
        await self.until(
            lambda: all(r.listener.next_offset > offset for r in self.replicas if r.node is not None)
        )
        return offset

    async def stop(self) -> None:
        for replica in self.replicas:
            if replica.node is not None:
                await replica.stop()
        await self.rpc.close()


@asynccontextmanager
async def running_cluster(
    voters: int = 3,
    observers: int = 0,
    config: QuorumConfig = FAST,
    voters_of_observers: VoterSet | None = None,
    *,
    fixed: bool = False,
) -> AsyncIterator[Cluster]:
    """A started cluster, which is stopped afterwards."""
    cluster = Cluster(voters, observers, config, voters_of_observers, fixed=fixed)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()
