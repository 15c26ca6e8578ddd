"""The groups workload says by when a group must have settled: members that are gone may be waited for."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pykraft.jepsen_like.faults.clients.interface import Commit
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Event, MemoryHistory
from pykraft.jepsen_like.faults.workloads.group_seat import STATIC_GROUPS, GroupsConfig
from pykraft.jepsen_like.faults.workloads.groups import GroupsWorkload
from pykraft.jepsen_like.faults.workloads.workload import Limits
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.runtime.simulated.virtual_loop import VirtualLoop


class QuietClient:
    """Every client in one: nothing comes of what it is asked."""

    fatal = None
    has_skipped = False

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
    prefix = ""
    most_replicas = 3

    def __init__(self) -> None:
        self._client = QuietClient()

    def producer(self, *_: object) -> QuietClient:
        return self._client

    reader = member = admin = producer

    def wall_ms(self) -> int:
        return 0


def finish(config: GroupsConfig) -> list[Event]:
    """What is recorded when nothing ever happens."""

    async def body() -> list[Event]:
        loop = asyncio.get_running_loop()
        history = MemoryHistory(lambda: int(loop.time() * 1e6))
        workload = GroupsWorkload(cast(OwnClients, QuietClients()), config, 1, history)
        workload.start()
        await asyncio.sleep(1)
        await workload.finish(Limits(answers_s=5, read_s=5, settle_s=10))
        return history.events

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(body())


def test_members_whose_leave_was_lost_have_a_session_before_their_group_must_be_stable() -> None:
    events = finish(GroupsConfig(members=1, session_timeout_ms=6_000, heartbeat_interval_ms=1_000))
    settled = [event for event in events if event.op == "settled"]
    assert [(event.detail or {})["within_us"] for event in settled] == [19_000_000] * 3


def test_static_members_are_restarted_when_their_groups_are_stable() -> None:
    """One of each group, and then all at once; dynamic members stay."""
    events = finish(GroupsConfig(static_groups=STATIC_GROUPS, members=2, session_timeout_ms=6_000))
    settled_us = max(event.time_us for event in events if event.op == "settled")
    restarts = [event for event in events if event.op == "static-restart"]
    waves = [[e.value for e in restarts if e.time_us == t] for t in sorted({e.time_us for e in restarts})]
    assert waves == [
        ["static-classic-0", "static-consumer-0"],
        ["static-classic-0", "static-classic-1", "static-consumer-0", "static-consumer-1"],
    ]
    assert restarts[0].time_us >= settled_us + 19_000_000
    assert {(event.detail or {})["within_us"] for event in restarts} == {6_000_000}
    joined = Counter(
        (event.detail or {}).get("instance_id")
        for event in events
        if event.op == "member" and event.time_us > settled_us
    )
    assert joined == {
        "static-classic-0": 2,
        "static-consumer-0": 2,
        "static-classic-1": 1,
        "static-consumer-1": 1,
    }


def test_groups_without_static_members_restart_nothing() -> None:
    assert not [event for event in finish(GroupsConfig(members=1)) if event.op == "static-restart"]
