"""What a member reads while calls are cancelled, positions move, and partitions go and come."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from pykraft.kafka_client.errors import OffsetOutOfRangeError
from pykraft.kafka_client.group.member import GroupMember, OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.codec.schema import Message
from tests.kafka_client.group_world import GroupWorld
from tests.kafka_client.scripted import ScriptedCluster, when_asked
from tests.kafka_client.virtual_cluster import run_virtual
from tests.narrowing import present

T = TypeVar("T")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def alone(scripted: ScriptedCluster, body: Callable[[GroupWorld, GroupMember], Awaitable[T]]) -> T:
    """A member that owns both partitions of the topic, and knows where to read."""

    async def main() -> T:
        world = GroupWorld(scripted, 2)
        await world.start()
        member = world.join("consumer")
        await world.until(world.is_shared)
        assert await member.poll(0) == {}
        try:
            return await body(world, member)
        finally:
            await world.stop()

    return run_virtual(main())


async def read(member: GroupMember, timeout_ms: int = 500) -> dict[int, list[str]]:
    polled = await member.poll(timeout_ms)
    return {
        where.partition: [present(record.value).decode() for record in one.records]
        for where, one in polled.items()
    }


async def read_all(member: GroupMember) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for _ in range(10):
        for partition, values in (await read(member, 100)).items():
            found.setdefault(partition, []).extend(values)
    return found


async def lose_and_find(world: GroupWorld, member: GroupMember) -> None:
    """The member loses its partitions, and gets them again."""
    member.subscribe(["nothing"])
    await world.until(lambda: not member.owned)
    member.subscribe(["t"])
    await world.until(world.is_shared)


def test_a_poll_that_is_cancelled_costs_no_record(scripted: ScriptedCluster) -> None:
    """One partition has answered, the other has not."""

    async def body(world: GroupWorld, member: GroupMember) -> dict[int, list[str]]:
        world.values |= {0: [b"a", b"b"], 1: [b"x"]}
        for slow, after_s in ((1, 0.2), (0, 0.2), (1, 0.05)):
            world.fetch_takes_ms.clear()
            world.fetch_takes_ms[slow] = 900
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(member.poll(2_000), after_s)
        world.fetch_takes_ms.clear()
        return await read_all(member)

    assert alone(scripted, body) == {0: ["a", "b"], 1: ["x"]}


def test_an_error_of_the_position_before_does_not_move_the_one_that_was_sought(
    scripted: ScriptedCluster,
) -> None:
    async def body(world: GroupWorld, member: GroupMember) -> dict[int, list[str]]:
        world.values[0] = [b"a", b"b", b"c"]
        member.seek(T0, 9)
        when_asked(scripted, ApiKey.FETCH, lambda _: member.seek(T0, 1))
        return await read_all(member)

    assert alone(scripted, body) == {0: ["b", "c"]}


@pytest.mark.parametrize("is_first", [True, False])
def test_records_from_before_a_seek_are_not_returned_after_it(
    scripted: ScriptedCluster, is_first: bool
) -> None:
    """Whether the partition itself is being read, or another one after it."""

    async def body(world: GroupWorld, member: GroupMember) -> None:
        world.values |= {0: [b"a", b"b", b"c"], 1: [b"x"]}
        world.fetch_takes_ms[0 if is_first else 1] = 300
        for _ in range(2):  # each is first once
            member.seek(T0, 0)
            member.seek(T1, 0)
            polling = asyncio.ensure_future(read(member, 1_000))
            await asyncio.sleep(0.1)
            member.seek(T0, 2)
            found = await polling
            assert found.get(0, ["c"]) == ["c"], "from where it stood before"
            if 0 not in found:
                assert (await read_all(member))[0] == ["c"]

    alone(scripted, body)


@pytest.mark.parametrize("api", [ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS])
def test_a_position_that_is_sought_while_it_is_looked_for_is_kept(
    scripted: ScriptedCluster, api: ApiKey
) -> None:
    async def body(world: GroupWorld, member: GroupMember) -> dict[int, list[str]]:
        await lose_and_find(world, member)
        world.values[0] = [b"a", b"b", b"c"]
        when_asked(scripted, api, lambda _: member.seek(T0, 2))
        return await read_all(member)

    assert alone(scripted, body) == {0: ["c"]}


@pytest.mark.parametrize("api", [ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS, ApiKey.FETCH])
def test_a_partition_that_comes_back_is_read_from_where_the_group_is_now(
    scripted: ScriptedCluster, api: ApiKey
) -> None:
    """It was away during one poll: the member may not have seen that it was."""

    async def body(world: GroupWorld, member: GroupMember) -> dict[int, list[str]]:
        world.values[0] = [b"a", b"b", b"c"]
        member.seek(T0, 0)
        await lose_and_find(world, member)
        if api is ApiKey.FETCH:
            assert await member.poll(0)  # has positions again, and has read all
        ownership = member._ownership
        tasks: list[asyncio.Future[None]] = []

        def away(_: Message) -> None:
            lease, held = ownership.renewed_ms, dict(ownership.held())
            ownership.lose()
            assert ownership.renew(present(lease), member.identity.member_id, member.identity.member_epoch)
            committed = member.commit({T0: OffsetAndMetadata(1), T1: OffsetAndMetadata(0)})
            tasks.append(asyncio.ensure_future(committed))
            asyncio.get_running_loop().call_later(0.02, ownership.take, held)

        when_asked(scripted, api, away)
        if api is ApiKey.FETCH:
            world.fetch_takes_ms[1] = world.fetch_takes_ms[0] = 100
        polled = await read(member, 300)
        world.fetch_takes_ms.clear()
        found = await read_all(member)
        return {0: polled.get(0, []) + found.get(0, [])}

    assert alone(scripted, body) == {0: ["b", "c"]}


def test_a_partition_that_was_out_of_range_and_away_is_read_from_where_the_group_is_now(
    scripted: ScriptedCluster,
) -> None:
    """Only until it is assigned again is what the group committed taken for wrong."""

    async def body(world: GroupWorld, member: GroupMember) -> dict[int, list[str]]:
        world.values[0] = [b"a", b"b", b"c"]
        member.seek(T0, 9)
        with pytest.raises(OffsetOutOfRangeError):
            await read_all(member)
        member.subscribe(["nothing"])
        await world.until(lambda: not member.owned)
        await member.commit({T0: OffsetAndMetadata(2)})
        member.subscribe(["t"])
        await world.until(world.is_shared)
        return await read_all(member)

    assert alone(scripted, body) == {0: ["c"]}
