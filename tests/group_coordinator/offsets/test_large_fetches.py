"""Answers to large OffsetFetch requests: the bytes of any other, over several turns, of one moment."""

import asyncio
from random import Random
from typing import Any

import pytest

from pykraft.group_coordinator.offsets import fetch as offset_fetch
from pykraft.group_coordinator.offsets import large_fetches
from pykraft.group_coordinator.offsets.large_fetches import LARGE_PARTITIONS, LargeFetch, is_large
from pykraft.group_coordinator.replay import replay_all
from pykraft.group_coordinator.state import names
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from pykraft.runtime.turns import TURN_US
from tests.asynchronous import in_loop
from tests.broker.slices import pauses_of, turns_of
from tests.group_coordinator import tools
from tests.group_coordinator.busy import BusyWorld, busy
from tests.group_coordinator.offset_rows import commit_of
from tests.waits import settle, until_now

NAMES = ("t", "u", "deleted", "recreated", "v")
SIZES = {"t": 700, "u": 3, "recreated": 300, "v": 9}

world = in_loop(busy)


def random_state(rng: Random) -> ShardState:
    state = ShardState()
    for _ in range(rng.choice((1, 12))):
        name = rng.choice(NAMES)
        size = SIZES.get(name, 5)
        partitions = sorted(rng.sample(range(size), rng.randrange(1, size + 1)))
        topic_id = rng.choice((tools.topic_id(name), tools.topic_id(name, 2), ZERO_UUID))
        texts = rng.choice((("",), ("", "", "text")))
        offsets = {index: (rng.randrange(10**9), rng.choice(texts)) for index in partitions}
        state = replay_all(state, [commit_of(rng.choice("gh"), name, offsets, topic_id)])
    return state


def random_group(rng: Random) -> OffsetFetchRequestGroup:
    def topic() -> OffsetFetchRequestTopics:
        name = rng.choice((*NAMES, "none"))
        indexes = [rng.randrange(-1, 12) for _ in range(rng.choice((0, 1, 20)))]
        return OffsetFetchRequestTopics(name=name, topic_id=tools.topic_id(name), partition_indexes=indexes)

    topics = None if rng.random() < 0.4 else [topic() for _ in range(rng.choice((0, 1, 5)))]
    return OffsetFetchRequestGroup(group_id=rng.choice("ghi"), topics=topics)


def view_of(incarnation: int) -> TopicsView:
    return TopicsView(tools.make_image(SIZES, 1, {"recreated": incarnation}))


@pytest.mark.parametrize("version", range(1, 11))
@pytest.mark.parametrize("seed", range(12))
def test_large_answer_has_the_bytes_of_any_other(
    seed: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_fetches, "SLICE_STEPS", 1)
    monkeypatch.setattr(names, "SORTED_AT_ONCE", 2)
    rng = Random(seed)
    state, topics = random_state(rng), view_of(rng.choice((1, 2)))
    groups = [random_group(rng) for _ in range(rng.choice((1, 4)) if version >= 8 else 1)]
    if version < 2:
        groups[0].topics = groups[0].topics or []
    found: list[offset_fetch.Found | KafkaError] = []
    answers = []
    for group in groups:
        if rng.random() < 0.2:
            code = rng.choice((ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            found.append(KafkaError(code))
            answers.append(offset_fetch.build_group_error(group, code, version))
        else:
            offsets = offset_fetch.find_offsets(state, group)
            found.append(offsets)
            answers.append(offset_fetch.build_group(group, offsets, topics, version))
    fetch = LargeFetch(groups, found, topics, version)
    assert pauses_of(fetch.build()) >= len(groups)
    assert fetch.body == offset_fetch.build_response(answers, version).encode(version)


@pytest.mark.parametrize(
    ("topics", "partitions", "expected"),
    [(1, LARGE_PARTITIONS - 2, False), (1, LARGE_PARTITIONS - 1, True), (LARGE_PARTITIONS, 0, True)],
)
@pytest.mark.parametrize("named", [True, False])
def test_answers_are_large_by_their_partitions_and_topics(
    topics: int, partitions: int, expected: bool, named: bool
) -> None:
    names = [f"t{number}" for number in range(topics)]
    count = max(partitions, 0 if named else 1)
    offsets = dict.fromkeys(range(count), (1, ""))
    state = replay_all(ShardState(), [commit_of("g", name, offsets, ZERO_UUID) for name in names if offsets])
    asked = [OffsetFetchRequestTopics(name=name, partition_indexes=list(range(partitions))) for name in names]
    group = OffsetFetchRequestGroup(group_id="g", topics=asked if named else None)
    assert is_large([group], [offset_fetch.Found(state.group_offsets("g"))]) is expected


def test_answers_about_many_groups_without_offsets_are_large() -> None:
    groups = [OffsetFetchRequestGroup(group_id="g", topics=None)] * (LARGE_PARTITIONS + 1)
    nothing = offset_fetch.Found(ShardState().group_offsets("g"))
    assert is_large(groups, [nothing] * len(groups))
    assert not is_large(groups[1:], [nothing] * (len(groups) - 1))


def fetch(world: BusyWorld, indexes: list[int] | None) -> asyncio.Task[Any]:
    """Of topic t; None asks for all that is committed."""
    topics = None if indexes is None else [OffsetFetchRequestTopics(name="t", partition_indexes=indexes)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)])
    return asyncio.ensure_future(world.service.offset_fetch(tools.CALLER, request, 9))


def fetched(answer: Any) -> set[int]:
    assert isinstance(answer, bytes)
    (group,) = OffsetFetchResponse.decode(answer, 9).groups
    return {partition.committed_offset for topic in group.topics for partition in topic.partitions}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.world(sizes={"t": 80_000})
async def test_large_answer_takes_several_turns_and_is_of_one_moment(world: BusyWorld, named: bool) -> None:
    partitions = 8_000 if named else 80_000
    world.commit(0, partitions)
    fetching = fetch(world, list(range(partitions)) if named else None)
    answer, turns = await turns_of(fetching, lambda turn: world.commit(turn, 2))
    assert turns > 5
    assert len(fetched(answer)) <= 2, "offsets of several moments"


@pytest.mark.world(sizes={"t": 4})
async def test_answer_to_a_client_that_is_gone_is_written_no_further(world: BusyWorld) -> None:
    began_us, fetching = world.turns.now_us, fetch(world, list(range(40_000)))
    await until_now(lambda: world.turns.now_us >= began_us + 5 * TURN_US)
    assert not fetching.done()
    fetching.cancel()
    await settle(3)
    seen_us = world.turns.now_us
    await settle(5)
    assert fetching.cancelled() and world.turns.now_us == seen_us
