"""Subscriptions by regular expression: found out off the heartbeat, shared by the group, kept in its log."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pykraft.group_coordinator.consumer import regex_worker
from pykraft.group_coordinator.consumer.regex_worker import Found, RegexWorker
from pykraft.group_coordinator.state.records import ResolvedRegex
from pykraft.group_coordinator.state.result import Resolution
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.image import BrokerRegistration, PartitionRegistration
from pykraft.metadata_log.persistent import Map
from pykraft.regex.pattern import compile_pattern, prepare_regex
from pykraft.runtime.tasks import TaskSupervisor
from tests.asynchronous import in_loop
from tests.group_coordinator import tools
from tests.group_coordinator.coordinators import Coordinator, running_world
from tests.stand_ins import interpreted_only
from tests.unexpected import unexpected
from tests.waits import settle

T, U = tools.topic_id("t"), tools.topic_id("u")
SLOW = "(((a?){30}){30})b"
"""Never matches, and takes hundreds of steps for each character."""


world = in_loop(running_world)


@pytest.fixture
def lab() -> tools.ShardLab:
    return tools.ShardLab({"t": 4, "u": 2})


def join(lab: tools.ShardLab, member_id: str, regex: str) -> None:
    lab.heartbeat(member_id, 0, subscribed_topic_names=[], subscribed_topic_regex=regex)


def topics_of(lab: tools.ShardLab, member_id: str) -> set[Uuid]:
    """Let the member revoke and get what it is to have."""
    for _ in range(3):
        member = lab.group.members[member_id]
        lab.heartbeat(member_id, member.epoch, member.assigned)
    return {topic_id for topic_id, _ in lab.group.members[member_id].assigned}


def test_first_member_joins_at_once_and_gets_its_topics_when_they_are_known(lab: tools.ShardLab) -> None:
    join(lab, "a", "t|x")
    assert (lab.group.epoch, lab.group.members["a"].epoch) == (1, 1), "a new expression alone moves no epoch"
    assert topics_of(lab, "a") == set()
    assert lab.resolve()
    assert lab.group.epoch == 2
    assert lab.group.resolved["t|x"] == ResolvedRegex(("t",), lab.topics.image.offset, lab.clock.now_ms)
    assert topics_of(lab, "a") == {T}


def test_growth_of_a_topic_behind_an_expression_is_noticed_without_a_new_resolution(
    lab: tools.ShardLab,
) -> None:
    join(lab, "a", "t")
    lab.resolve()
    topics_of(lab, "a")
    lab.set_topics({"t": 5, "u": 2})
    topics_of(lab, "a")
    assert len(lab.group.members["a"].assigned) == 5
    lab.set_topics({"u": 2})
    assert topics_of(lab, "a") == set(), "it is gone"


def test_second_member_with_the_same_expression_needs_no_resolution(lab: tools.ShardLab) -> None:
    join(lab, "a", "[tu]")
    lab.resolve()
    join(lab, "b", "[tu]")
    assert not lab.resolve()
    assert lab.group.epoch == 3, "the expression is resolved: the group rebalances at once"
    assert topics_of(lab, "a") and topics_of(lab, "b")


def test_expression_of_the_last_member_is_forgotten(lab: tools.ShardLab) -> None:
    join(lab, "a", "t")
    join(lab, "b", "u")
    lab.resolve()
    assert set(lab.group.resolved) == {"t", "u"}
    lab.heartbeat("b", -1)
    assert set(lab.group.resolved) == {"t"}
    lab.heartbeat(
        "a", lab.group.members["a"].epoch, set(), subscribed_topic_regex="", subscribed_topic_names=["u"]
    )
    assert not lab.group.resolved
    assert topics_of(lab, "a") == {U}


def test_new_topic_is_found_with_a_heartbeat_and_at_most_every_ten_seconds(lab: tools.ShardLab) -> None:
    join(lab, "a", "t.*")
    lab.resolve()
    assert topics_of(lab, "a") == {T}
    lab.set_topics({"t": 4, "u": 2, "t2": 1})
    topics_of(lab, "a")
    assert not lab.resolve(), "the last resolution was just now"
    lab.pass_time(10_000)
    topics_of(lab, "a")
    assert not lab.resolve()
    lab.pass_time(1)
    topics_of(lab, "a")
    assert lab.resolve()
    assert topics_of(lab, "a") == {T, tools.topic_id("t2")}
    lab.pass_time(10_001)
    topics_of(lab, "a")
    assert not lab.resolve(), "there are no topics that it does not know"


def test_clock_that_was_set_back_holds_up_no_resolution(lab: tools.ShardLab) -> None:
    join(lab, "a", "t")
    lab.resolve()
    lab.clock.now_ms -= 3_600_000
    join(lab, "b", "u")
    assert lab.resolve()
    assert topics_of(lab, "b") == {U}


def test_resolution_is_repeated_after_its_interval(lab: tools.ShardLab) -> None:
    join(lab, "a", "t.*")
    lab.resolve()
    records = len(lab.writer.logs[0])
    for expected in (False, True):
        for _ in range(15):
            lab.clock.now_ms += 20_000 + expected
            topics_of(lab, "a")
        assert lab.resolve() is expected
    assert lab.group.epoch == 2 and len(lab.writer.logs[0]) > records, "the same topics: only a later time"


def test_new_coordinator_has_the_topics_and_asks_only_if_there_may_be_new_ones(lab: tools.ShardLab) -> None:
    join(lab, "a", "t")
    lab.resolve()
    lab.fail_over()
    lab.pass_time(10_001)
    assert topics_of(lab, "a") == {T}
    assert not lab.resolve()


def test_what_a_new_expression_does_not_match_goes_to_others_although_it_matches_nothing(
    lab: tools.ShardLab,
) -> None:
    lab.heartbeat("a", 0)
    join(lab, "b", "t")
    lab.resolve()
    assert topics_of(lab, "a") == topics_of(lab, "b") == {T}
    lab.pass_time(10_001)
    epoch = lab.group.members["b"].epoch
    cut = lab.heartbeat("b", epoch, lab.group.members["b"].assigned, subscribed_topic_regex="nothing")
    assert tools.assigned(cut) == frozenset(), "at once"
    lab.resolve()
    topics_of(lab, "b")
    assert topics_of(lab, "a") == {T}
    assert len(lab.group.members["a"].assigned) == 4


@pytest.mark.parametrize(
    ("member_id", "epoch", "group", "code"),
    [
        ("a", 2, "g", ErrorCode.INVALID_REGULAR_EXPRESSION),
        ("new", 0, "g", ErrorCode.INVALID_REGULAR_EXPRESSION),
        ("a", 9, "g", ErrorCode.FENCED_MEMBER_EPOCH),
        ("b", 2, "g", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_bad_expression_is_refused_after_everything_else(
    lab: tools.ShardLab, member_id: str, epoch: int, group: str, code: ErrorCode
) -> None:
    lab.heartbeat("a", 0)
    before = lab.shard.state
    for regex in ("(", "a" * 40_000, "\u20ac" * 9_999 + "a{2000}"):
        with pytest.raises(KafkaError) as refused:
            lab.heartbeat(member_id, epoch, subscribed_topic_regex=regex)
        assert refused.value.code is code
    assert lab.shard.state is before


def test_group_that_is_gone_when_its_topics_are_known_stays_gone() -> None:
    lab = tools.ShardLab({"t": 1})
    join(lab, "a", "t")
    lab.heartbeat("a", -1)
    before = lab.shard.state
    lab.resolve()
    assert lab.shard.state is before


async def test_heartbeat_is_answered_while_the_topics_are_looked_for(world: Coordinator) -> None:
    world.publish(tools.make_image({f"aaaaaaaaaaaaaaaaaaaaaaaaaaaa{n}": 1 for n in range(20)} | {"t": 1}, 2))
    slow = await world.beat("m", 0, group_id="slow", subscribed_topic_names=[], subscribed_topic_regex=SLOW)
    fast = await world.beat("m", 0, subscribed_topic_names=[], subscribed_topic_regex="t")
    assert (slow.error_code, slow.member_epoch, fast.member_epoch) == (0, 1, 1)
    for _ in range(20):
        await asyncio.sleep(0)
    groups = world.hosted.shard.state
    found, waits = groups.consumer_group("g"), groups.consumer_group("slow")
    assert found is not None and waits is not None
    assert "t" in found.resolved, "it does not wait for the slow one"
    assert SLOW not in waits.resolved
    for _ in range(2_000):
        await asyncio.sleep(0)
    done = world.hosted.shard.state.consumer_group("slow")
    assert done is not None and done.resolved[SLOW].topics == ()
    assert (await world.beat("m", 1, group_id="slow")).error_code == 0


async def test_coordinator_that_resigns_looks_for_nothing_any_longer(world: Coordinator) -> None:
    await world.beat("m", 0, subscribed_topic_names=[], subscribed_topic_regex=SLOW)
    assert len(world.service._runtime._regexes) == 1
    world.service.on_resigned(0)
    assert len(world.service._runtime._regexes) == 0
    await settle()
    assert not world.faults


@interpreted_only
def test_turn_takes_a_slice_however_many_names_and_groups_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of each turn is counted: what one character takes, and the slice, limit it."""
    done: list[tuple[str, Found]] = []
    turns: list[int] = []
    find = regex_worker._find

    def counted(*args: object) -> object:
        for work in find(*args):  # type: ignore[arg-type]
            turns[-1] += work
            yield work

    def report(group_id: str) -> Callable[[Found], None]:
        return lambda found: done.append((group_id, found))

    async def main() -> None:
        tasks = TaskSupervisor(unexpected)
        worker = RegexWorker(tasks)
        view = TopicsView(tools.make_image({f"aaaaaaaa{n:03}": 1 for n in range(100)}))
        turns.append(0)
        for group_id, regex in (("fast", "a+0.*"), ("none", "x"), ("slow", SLOW)):
            asked = Resolution(group_id, (regex,), 5)
            for _ in range(2):
                worker.resolve((None, group_id), asked, view, report(group_id))
        assert len(worker) == 3
        while len(worker):
            turns.append(0)
            await asyncio.sleep(0)
        await tasks.close()

    monkeypatch.setattr(regex_worker, "_find", counted)
    asyncio.run(main())
    assert sorted(group_id for group_id, _ in done) == ["fast", "none", "slow"], "each once"
    assert [group_id for group_id, _ in done][-1] == "slow"
    assert len(dict(done)["fast"]["a+0.*"].topics) == 100
    largest = len(compile_pattern(SLOW)._steps)
    assert max(turns) <= regex_worker.SLICE_WORK + 3 * largest
    assert len(turns) > 10


def test_long_expression_is_compiled_before_the_heartbeat_is_decided() -> None:
    prepare_regex("(" * 5)
    prepare_regex("t" * 20_000)
    with pytest.raises(KafkaError):
        join(tools.ShardLab({"t": 1}), "a", "(" * 5)


def test_group_notices_that_a_topic_moved_to_other_racks() -> None:
    def view(racks: dict[int, str | None], replicas: tuple[int, ...]) -> TopicsView:
        image = tools.make_image({"t": 1})
        brokers = {
            number: BrokerRegistration(number, 1, Uuid(bytes(15) + b"\x01"), (), rack)
            for number, rack in racks.items()
        }
        topic = image.topics_by_id[T]
        registration = PartitionRegistration(
            replicas=replicas, isr=replicas, leader=replicas[0], leader_epoch=0, partition_epoch=0
        )
        moved = replace(topic, partitions=(registration,))
        return TopicsView(replace(image, brokers=Map(brokers), topics_by_id=Map({T: moved})))

    lab = tools.ShardLab({"t": 1})
    lab.heartbeat("a", 0)
    hashes = [
        one.metadata_hash(lab.group)
        for one in (
            view({1: None, 2: None}, (1, 2)),
            view({1: "x", 2: "y"}, (1, 2)),
            view({1: "x", 2: "y"}, (2, 1)),
            view({1: "x", 2: "z"}, (1, 2)),
            view({1: "x", 2: "y"}, (1,)),
        )
    ]
    assert hashes[1] == hashes[2], "in which order the replicas are does not matter"
    assert len(set(hashes)) == 4


def test_resolution_that_goes_wrong_costs_only_itself() -> None:
    """Its group may ask again, and the others get what they asked for."""
    done: list[str] = []
    broken = {"broken"}

    async def main() -> None:
        tasks = TaskSupervisor(unexpected)
        worker = RegexWorker(tasks)
        view = TopicsView(tools.make_image({"t": 1}))

        async def ask(*groups: str) -> None:
            for group_id in groups:
                regex: Any = None if group_id in broken else "t"  # as if by a bug
                asked = Resolution(group_id, (regex,), 5)
                worker.resolve((None, group_id), asked, view, lambda _, name=group_id: done.append(name))  # type: ignore[misc]
            while len(worker):
                await asyncio.sleep(0)

        await ask("broken", "whole")
        assert done == ["whole"]
        broken.clear()
        await ask("broken")
        assert done == ["whole", "broken"]
        await tasks.close()

    asyncio.run(main())
