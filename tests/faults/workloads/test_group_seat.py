"""What a seat of a group writes down, with members that do what a test tells them, in virtual time."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pykraft.jepsen_like.faults.clients.interface import (
    Commit,
    MemberConfig,
    OperationError,
    Polled,
    PositionLostError,
    RefusedError,
    UnknownOutcomeError,
)
from pykraft.jepsen_like.faults.history import Event, MemoryHistory
from pykraft.jepsen_like.faults.workloads.group_seat import GroupsConfig, Seat
from pykraft.jepsen_like.faults.workloads.workload import Tasks
from pykraft.kafka_client.group.config import OwnershipListener
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.runtime.simulated.virtual_loop import VirtualLoop

PLACE = TopicPartition("t", 0)
GROUP = MemberConfig("", "g", "consumer", ("t",))
CONFIG = GroupsConfig(groups=(GROUP,), change_every_s=1_000.0, commit_every_s=0.3)
STATIC = replace(CONFIG, groups=(), static_groups=(GROUP,))
TWO_TOPICS = MemberConfig("", "g", "classic", ("t", "u"), "cooperative-sticky")


class ScriptedMember:
    """Owns one partition at once; ``script`` is what its polls bring, then nothing."""

    def __init__(
        self, listener: OwnershipListener, script: Sequence[Any], commit_error: OperationError | None
    ) -> None:
        self.script = list(script)
        self.commits: list[Mapping[TopicPartition, Commit]] = []
        self.listener = listener
        self.commit_error = commit_error
        self.end = ""
        self.topics: list[tuple[str, ...]] = []
        listener.assigned([PLACE])

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        await asyncio.sleep(timeout_s)
        step = self.script.pop(0) if self.script else ()
        if isinstance(step, OperationError):
            raise step
        if step == "moves":
            await self.listener.revoked([PLACE])
            self.listener.assigned([PLACE])
            step = (0, 1)
        return {PLACE: Polled(tuple((offset, f"v{offset}") for offset in step))} if step else {}

    async def commit(self, commits: Mapping[TopicPartition, Commit]) -> None:
        self.commits.append(commits)
        if self.commit_error is not None:
            raise self.commit_error

    async def subscribe(self, topics: Sequence[str]) -> None:
        self.topics.append(tuple(topics))

    async def close(self) -> None:
        self.end = "closed"

    async def abandon(self) -> None:
        self.end = "abandoned"


class ScriptedClients:
    """Each member takes the next script. ``configs``: with what they were opened."""

    def __init__(self, *scripts: Sequence[Any], commit_error: OperationError | None = None) -> None:
        self.scripts = list(scripts)
        self.commit_error = commit_error
        self.members: list[ScriptedMember] = []
        self.configs: list[MemberConfig] = []

    def member(self, config: MemberConfig, listener: OwnershipListener) -> ScriptedMember:
        self.configs.append(config)
        script = self.scripts.pop(0) if self.scripts else ()
        self.members.append(ScriptedMember(listener, script, self.commit_error))
        return self.members[-1]


def sit(
    clients: ScriptedClients,
    for_s: float = 2.0,
    config: GroupsConfig = CONFIG,
    group: MemberConfig = GROUP,
    restart_after_s: float | None = None,
) -> list[Event]:
    """What one seat records in so many virtual seconds."""
    loop = VirtualLoop()
    history = MemoryHistory(lambda: int(loop.time() * 1e6))

    async def run() -> None:
        tasks = Tasks()
        calm, is_static = asyncio.Event(), group in config.static_groups
        seat = Seat(clients, config, group, 0, random.Random(1), history, calm, is_static=is_static)  # type: ignore[arg-type]
        tasks.start(seat.run(tasks))
        if restart_after_s is not None:
            asyncio.get_running_loop().call_later(restart_after_s, seat.restart)
        await asyncio.sleep(for_s)
        assert await tasks.stop(10.0)

    try:
        loop.run_until_complete(run())
    finally:
        loop.close()
    return history.events


def of_op(events: Sequence[Event], op: str, kind: str | None = None) -> list[Event]:
    return [event for event in events if event.op == op and kind in (None, event.type)]


def test_a_member_commits_its_position_once_and_by_a_tag() -> None:
    clients = ScriptedClients([(0, 1, 2)])
    events = sit(clients)
    (commit,) = of_op(events, "commit", "ok")
    assert (commit.key, commit.offset) == ("g/t-0", 3)
    assert [dict(one) for one in clients.members[0].commits] == [{PLACE: Commit(3, str(commit.value))}]
    assert clients.members[0].end == "closed"


def test_the_outcome_of_a_commit_is_what_its_error_says() -> None:
    for error, kind in ((RefusedError("no"), "fail"), (UnknownOutcomeError("perhaps"), "info")):
        events = sit(ScriptedClients([(0,)], commit_error=error))
        assert {event.type for event in of_op(events, "commit")} == {"invoke", kind}


def test_partition_that_moved_during_a_poll_is_neither_committed_nor_continued() -> None:
    clients = ScriptedClients(["moves"])
    events = sit(clients)
    assert of_op(events, "commit") == []
    polled, rewind = of_op(events, "poll", "ok")[0], of_op(events, "rewind")[0]
    assert events.index(rewind) > events.index(polled)


def test_a_lost_position_is_recorded_and_reading_begins_again() -> None:
    clients = ScriptedClients([(0, 1), PositionLostError(PLACE, 2, "gone"), (0,)])
    events = sit(clients)
    assert [event.error for event in of_op(events, "poll", "info")] == ["gone"]
    assert of_op(events, "rewind")
    assert len(clients.members) == 1


def test_a_membership_that_ends_is_followed_by_another() -> None:
    clients = ScriptedClients([UnknownOutcomeError("fenced")], [(0,)])
    events = sit(clients)
    assert [event.process for event in of_op(events, "member")] == ["g-0.0", "g-0.1"]
    gone = of_op(events, "member-gone")[0]
    assert gone.process == "g-0.0"
    assert of_op(events, "poll", "ok")[0].process == "g-0.1"


def test_static_members_follow_each_other_with_one_instance_id_and_subscription() -> None:
    clients = ScriptedClients()
    config = replace(STATIC, change_every_s=2.0)
    events = sit(clients, 30.0, replace(config, static_groups=(TWO_TOPICS,)), TWO_TOPICS)
    assert len(clients.members) > 5
    assert {one.instance_id for one in clients.configs} == {"g-0"}
    assert len({one.topics for one in clients.configs}) == 1
    assert all(member.topics == [] for member in clients.members), "none changes its subscription"
    assert {(event.detail or {})["instance_id"] for event in of_op(events, "member")} == {"g-0"}
    assert {member.end for member in clients.members} == {"closed", "abandoned"}


def test_restarted_static_member_leaves_and_comes_back_at_once() -> None:
    clients = ScriptedClients()
    events = sit(clients, 4.0, STATIC, restart_after_s=1.0)
    assert [event.process for event in of_op(events, "member")] == ["g-0.0", "g-0.1"]
    gone = of_op(events, "member-gone")[0]
    assert (gone.process, gone.detail) == ("g-0.0", {"abandoned": False})
    assert clients.members[0].end == "closed"
    assert clients.configs[0] == replace(clients.configs[1], name="g-0.0")


def test_dynamic_members_have_no_instance_id() -> None:
    clients = ScriptedClients()
    events = sit(clients)
    assert {one.instance_id for one in clients.configs} == {None}
    assert all("instance_id" not in (event.detail or {}) for event in of_op(events, "member"))


def test_cooperative_member_of_librdkafka_only_adds_topics() -> None:
    config = replace(CONFIG, groups=(TWO_TOPICS,), change_every_s=1.0)
    for adds in (True, False):
        clients = ScriptedClients()
        sit(clients, 120.0, replace(config, cooperative_adds=adds), TWO_TOPICS)
        narrowed = [
            (before, after)
            for opened, member in zip(clients.configs, clients.members, strict=True)
            for before, after in pairwise((opened.topics, *member.topics))
            if not set(before) <= set(after)
        ]
        assert bool(narrowed) is not adds


def test_poll_without_records_is_recorded_with_the_time_when_it_was_invoked() -> None:
    events = sit(ScriptedClients([(0,)]))
    empty = of_op(events, "poll-empty", "ok")
    polls = of_op(events, "poll", "invoke")
    assert [event.time_us for event in polls] == [0]
    assert [event.time_us for event in empty][:3] == [200_000, 400_000, 600_000]
