"""The end of the workload in which replicas move: every partition goes home, whatever brokers are known."""

import asyncio
from collections.abc import Sequence
from typing import cast

from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import MemoryHistory
from pykraft.jepsen_like.faults.workloads.append import AppendConfig
from pykraft.jepsen_like.faults.workloads.moves import MovesConfig, MovesWorkload
from pykraft.jepsen_like.faults.workloads.workload import Limits
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.runtime.simulated.virtual_loop import VirtualLoop


class Admin:
    """In the place of a cluster whose brokers become known one look after the other."""

    prefix = ""
    most_replicas = 3

    repeats = 0

    def __init__(self, known: Sequence[Sequence[int]]) -> None:
        self._known = list(known)
        self.placed: dict[TopicPartition, Sequence[int]] = {}

    async def brokers(self) -> Sequence[int]:
        return self._known.pop(0) if len(self._known) > 1 else self._known[0]

    async def reassign(self, partition: TopicPartition, replicas: Sequence[int]) -> None:
        self.placed[partition] = replicas

    async def replicas(self, partition: TopicPartition) -> Sequence[int]:
        return self.placed[partition]

    def wall_ms(self) -> int:
        return 0

    async def close(self) -> None:
        pass

    def admin(self, name: str) -> "Admin":
        return self


def move_home(admin: Admin) -> MemoryHistory:
    history = MemoryHistory(lambda: int(asyncio.get_running_loop().time() * 1e6))

    async def body() -> None:
        config = MovesConfig(AppendConfig(topic="moves", partitions=2))
        workload = MovesWorkload(cast(OwnClients, admin), config, 1, history)
        await workload._move_home(Limits(answers_s=1, read_s=5, settle_s=1))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(body())
    return history


def test_partitions_wait_until_a_broker_is_known() -> None:
    admin = Admin([(), (), (1, 2, 3)])
    history = move_home(admin)
    assert list(admin.placed.values()) == [[1, 2, 3], [2, 3, 1]]
    assert [event.error for event in history.events if event.op == "get-failed"] == ["no broker is known"] * 2


def test_partitions_that_no_broker_takes_are_no_progress() -> None:
    history = move_home(Admin([()]))
    assert [event.op for event in history.events if event.op == "no-progress"] == ["no-progress"] * 2
