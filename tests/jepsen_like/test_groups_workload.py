"""The groups workload says by when a group must have settled: members that are gone may be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pykraft.jepsen_like.history import MemoryHistory
from pykraft.jepsen_like.sim.virtual_loop import VirtualLoop
from pykraft.jepsen_like.workloads.client import Clients, Commit
from pykraft.jepsen_like.workloads.group_seat import GroupsConfig
from pykraft.jepsen_like.workloads.groups import GroupsWorkload
from pykraft.jepsen_like.workloads.workload import Limits
from pykraft.kafka_client.metadata import TopicPartition


class QuietClient:
    """Every client in one: nothing comes of what it is asked."""

    fatal = None

    async def poll(self, timeout_s: float) -> Mapping[Any, Any]:
        await asyncio.sleep(timeout_s)
        return {}

    async def end_offset(self, partition: TopicPartition) -> int:
        return 0

    async def offset_for_time(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        return None

    async def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[Any, Commit | None]:
        return dict.fromkeys(partitions, Commit(0, ""))

    def send(self, partition: TopicPartition, value: str, timestamp_ms: int) -> None:
        return None

    async def subscribe(self, topics: Sequence[str]) -> None: ...
    async def flush(self, timeout_s: float) -> None: ...
    async def close(self) -> None: ...
    async def abandon(self) -> None: ...


class QuietClients:
    def __init__(self) -> None:
        self._client = QuietClient()

    def producer(self, *_: object) -> QuietClient:
        return self._client

    reader = member = admin = producer

    def wall_ms(self) -> int:
        return 0


def test_members_whose_leave_was_lost_have_a_session_before_their_group_must_be_stable() -> None:
    async def body() -> MemoryHistory:
        loop = asyncio.get_running_loop()
        history = MemoryHistory(lambda: int(loop.time() * 1e6))
        config = GroupsConfig(members=1, session_timeout_ms=6_000, heartbeat_interval_ms=1_000)
        workload = GroupsWorkload(cast(Clients, QuietClients()), config, 1, history)
        workload.start()
        await asyncio.sleep(1)
        await workload.finish(Limits(answers_s=5, read_s=5, settle_s=10))
        return history

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        history = runner.run(body())
    settled = [event for event in history.events if event.op == "settled"]
    assert [(event.detail or {})["within_us"] for event in settled] == [19_000_000] * 3
