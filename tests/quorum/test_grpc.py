"""Three voters and an observer over real gRPC on loopback, on real files."""

import random
from collections.abc import Sequence
from pathlib import Path

from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.quorum.bootstrap import format_log
from pykraft.quorum.core.voters import ReplicaKey, Voter, VoterSet
from pykraft.quorum.driver import QuorumConfig, QuorumNode
from pykraft.quorum.state_store import QuorumStateStore
from pykraft.runtime.address import Address
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.free_ports import free_ports
from pykraft.runtime.grpc_rpc import GrpcServer, GrpcTransport
from pykraft.runtime.os_disk import OsDisk
from tests.narrowing import present
from tests.quorum.nodes import Recorder
from tests.unexpected import unexpected
from tests.waits import until

CONFIG = QuorumConfig(
    election_timeout_ms=300,
    fetch_timeout_ms=600,
    election_backoff_max_ms=300,
    request_timeout_ms=500,
    fetch_max_wait_ms=200,
)


class Process:
    """One node with its own server, transport and directory."""

    def __init__(self, key: ReplicaKey, address: Address, voters: VoterSet, directory: Path) -> None:
        self.key, self.address, self.voters = key, address, voters
        self.directory = f"{directory}/{key.id}/__cluster_metadata-0"
        format_log(OsDisk(), self.directory, now_ms=0)
        self.node: QuorumNode | None = None

    @property
    def live(self) -> QuorumNode:
        assert self.node is not None
        return self.node

    async def start(self) -> None:
        clock, disk = SystemClock(), OsDisk()
        self.listener = Recorder()
        self.log = Log.open(disk, self.directory, LogConfig(), now_ms=clock.wall_ms())
        self.transport = GrpcTransport(unexpected)
        self.node = QuorumNode(
            config=CONFIG,
            cluster_id="grpc-test",
            local=self.key,
            voters=self.voters,
            log=self.log,
            state_store=QuorumStateStore(disk, self.directory),
            transport=self.transport,
            clock=clock,
            rng=random.Random(self.key.id),
        )
        self.server = GrpcServer()
        if self.voters.is_voter(self.key):
            self.live.register(self.server)
        await self.server.bind(self.address.host, self.address.port)
        await self.server.start()
        await self.live.start([self.listener])

    async def stop(self) -> None:
        await self.live.stop()
        await self.server.stop(0)
        await self.transport.close()
        self.log.close()
        self.node = None


def _leader(processes: Sequence[Process]) -> Process | None:
    live = [p for p in processes if p.node is not None]
    known = {p.live.leader for p in live}
    leader_id = known.pop().leader_id if len(known) == 1 else None
    return next((p for p in live if p.key.id == leader_id), None)


async def _commit(processes: Sequence[Process], value: bytes) -> None:
    await until(lambda: _leader(processes))
    node = present(_leader(processes)).live
    node.propose(node.leader.epoch, [value])
    await until(lambda: all(value in p.listener.values for p in processes if p.node is not None))


async def test_election_commit_failover_restart_and_observer_over_grpc(tmp_path: Path) -> None:
    keys = [ReplicaKey(i, Uuid(bytes([i]) * 16)) for i in (1, 2, 3, 4)]
    addresses = [Address("127.0.0.1", port) for port in free_ports(4)]
    voters = VoterSet([Voter(k, a) for k, a in zip(keys[:3], addresses, strict=False)])
    processes = [Process(k, a, voters, tmp_path) for k, a in zip(keys, addresses, strict=True)]
    for process in processes:
        await process.start()
    try:
        await _commit(processes, b"one")
        first = _leader(processes)
        assert processes[3].live.leader_address() == present(first).address
        await present(first).stop()
        await _commit(processes, b"two")
        await present(first).start()
        await _commit(processes, b"three")
        for process in processes:
            assert process.listener.values == [b"one", b"two", b"three"]
    finally:
        for process in processes:
            if process.node is not None:
                await process.stop()
