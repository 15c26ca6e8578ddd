"""A group member, with something happening at each of its await points.

Whatever it is, no partition ever has two owners, no record is skipped, and in the end everybody owns what the
group's subscriptions say.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from pykraft.kafka_client.errors import CommitRefusedError, CommitUnknownError
from pykraft.kafka_client.group.member import GroupMember, OffsetAndMetadata, PolledRecords
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.codec.schema import Message
from tests.kafka_client.await_points import Places, named, plans
from tests.kafka_client.group_world import GroupWorld, Kind
from tests.kafka_client.scripted import ScriptedCluster
from tests.kafka_client.virtual_cluster import network_of, run_virtual

KINDS: tuple[Kind, ...] = (("consumer", None), ("classic", "range"), ("classic", "cooperative-sticky"))
PARTITIONS = 4
RUNS_S = 4.0


class Scenario:
    """A member beside another one reads, commits what it was given, and looks for new partitions."""

    def __init__(self, world: GroupWorld, scripted: ScriptedCluster, kind: Kind) -> None:
        self.world = world
        self.kind = kind
        self.network = network_of(scripted)
        self.network.write_ms = 1
        self.faults: list[str] = []
        self.topics: Sequence[str] = ("t",)
        self.is_closed = self.is_over = False
        self.was_unsure = self.was_cancelled = False
        self.tasks: list[asyncio.Task[Any]] = []
        self.call: asyncio.Task[Any] | None = None
        self.read: defaultdict[int, int] = defaultdict(int)
        self.member: GroupMember
        world.fault = self._fault

    def _fault(self, broker_id: int, request: Message) -> str | None:
        return self.faults.pop() if self.faults else None

    async def play(self, places: Places) -> None:
        world = self.world
        for values in world.values.values():
            values += [b"a", b"b", b"c"]
        world.join(*self.kind, metadata_max_age_ms=1_500)
        await world.until(world.is_shared)
        self.network.at_await = places.reached
        self.member = world.join(*self.kind, network=self.network, metadata_max_age_ms=1_500)
        reading = asyncio.ensure_future(self._read())
        await asyncio.sleep(RUNS_S / 2)
        for values in world.values.values():
            values += [b"d"]
        await asyncio.sleep(RUNS_S / 2)
        self.network.at_await = lambda: None
        self.faults.clear()
        await world.until(self._is_settled)
        await world.until(self._has_read_all)
        self.is_over = True
        await asyncio.gather(reading, *self.tasks)
        if not self.is_closed:
            await world.leave(self.member)
        await asyncio.sleep(3)
        assert self.network.connections == 0, "a connection is left open"
        await world.stop()

    async def _read(self) -> None:
        seat = self.world.seats[self.member]
        while not self.is_closed and not self.is_over:
            told = len(seat.events)
            self.call = asyncio.ensure_future(self.member.poll(500))
            try:
                found = await self.call
            except asyncio.CancelledError:
                if not self.was_cancelled:
                    raise
                self.was_cancelled = False
                continue
            self._check_read(found, is_same_assignment=len(seat.events) == told)
            if found:
                await self._commit(found)

    def _check_read(self, found: dict[TopicPartition, PolledRecords], *, is_same_assignment: bool) -> None:
        for where, polled in found.items():
            first, before = polled.records[0].offset, self.read[where.partition]
            assert first <= before, f"{where}: skipped from {before} to {first}"
            assert first == before or not is_same_assignment or self.was_unsure, f"{where}: {first} again"
            self.read[where.partition] = max(before, polled.next_offset)

    async def _commit(self, found: dict[TopicPartition, PolledRecords]) -> None:
        offsets = {where: OffsetAndMetadata(polled.next_offset) for where, polled in found.items()}
        try:
            await self.member.commit(offsets, 5_000)
        except (CommitRefusedError, CommitUnknownError):
            self.was_unsure = True

    def _is_settled(self) -> bool:
        if self.is_closed or self.topics != ("t",):
            others = [seat for member, seat in self.world.seats.items() if member is not self.member]
            return not self.member.owned and sum(len(seat.held) for seat in others) == PARTITIONS
        return self.world.is_shared()

    def _has_read_all(self) -> bool:
        owned = [] if self.is_closed else self.member.owned
        return all(self.read[one.partition] == len(self.world.values[one.partition]) for one in owned)

    # -- what happens --------------------------------------------------------------------------------------

    def subscribe(self, *topics: str) -> None:
        self.topics = topics
        self.member.subscribe(topics)

    def cancel(self) -> None:
        if self.call is not None:
            self.was_cancelled = True
            asyncio.get_running_loop().call_soon(self.call.cancel)

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.tasks.append(asyncio.ensure_future(self.world.leave(self.member)))

    def commit(self) -> None:
        async def committing() -> None:
            await self._commit({})

        self.tasks.append(asyncio.ensure_future(committing()))

    def move(self) -> None:
        self.world.move_coordinator(self.world.coordinator % 3 + 1)


def fault(*faults: str) -> Callable[[Scenario], object]:
    """What the next requests to coordinators meet."""
    return lambda scenario: scenario.faults.extend(faults)


EVENTS: dict[str, Callable[[Scenario], object]] = {
    "another subscription": lambda scenario: scenario.subscribe("nothing"),
    "the first subscription": lambda scenario: scenario.subscribe("t"),
    "cut, and requests arrive": lambda scenario: scenario.network.cut(arrives=True),
    "cut, and requests are lost": lambda scenario: scenario.network.cut(arrives=False),
    "the coordinator moves": Scenario.move,
    "the poll is cancelled": Scenario.cancel,
    "another task commits": Scenario.commit,
    "closed": Scenario.close,
    "a request is lost": fault("lost"),
    "an answer is lost": fault("unanswered"),
    "requests are late": fault("late", "late"),
    "answers are slow": fault("slow", "slow"),
}


def play(kind: Kind, plan: dict[int, str]) -> int:
    async def main() -> int:
        scripted = ScriptedCluster()
        world = GroupWorld(scripted, PARTITIONS)
        await world.start()
        scenario = Scenario(world, scripted, kind)
        places = Places({place: partial(EVENTS[name], scenario) for place, name in plan.items()})
        await scenario.play(places)
        return places.count

    with named(plan):
        return run_virtual(main())


@pytest.mark.parametrize("event", EVENTS)
def test_whatever_happens_at_an_await_partitions_have_one_owner_and_no_record_is_skipped(event: str) -> None:
    count = min(play(kind, {}) for kind in KINDS)
    for turn, plan in enumerate(plans(event, list(EVENTS), count, stride=29)):
        play(KINDS[turn // 2 % 3], plan)
