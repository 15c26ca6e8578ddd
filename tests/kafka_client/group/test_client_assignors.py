"""The assignors of a classic group's leader: shares, stickiness, and what must be revoked first."""

import random
from collections.abc import Iterable

import pytest

from pykraft.kafka_client.group.assignors import MemberSubscription, assign
from pykraft.kafka_client.group.config import COOPERATIVE_STICKY, RANGE
from pykraft.kafka_client.metadata import TopicPartition


def member(
    *topics: str, owned: Iterable[tuple[str, int]] = (), generation: int = 1, instance_id: str | None = None
) -> MemberSubscription:
    return MemberSubscription(
        frozenset(topics), tuple(TopicPartition(*one) for one in owned), generation, instance_id
    )


def of(topic: str, *indexes: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in indexes]


def test_range_assigns_runs_of_each_topic_and_the_remainder_to_the_first() -> None:
    assigned = assign(RANGE, {"t": 5, "u": 2}, {"b": member("t", "u"), "a": member("t"), "c": member("u")})
    assert assigned == {"a": of("t", 0, 1, 2), "b": of("t", 3, 4) + of("u", 0), "c": of("u", 1)}


def test_range_puts_static_members_first_by_their_permanent_name() -> None:
    assigned = assign(RANGE, {"t": 2}, {"a": member("t"), "z": member("t", instance_id="i")})
    assert assigned == {"z": of("t", 0), "a": of("t", 1)}


def test_topics_that_do_not_exist_have_no_owner() -> None:
    for assignor in (RANGE, COOPERATIVE_STICKY):
        assert assign(assignor, {}, {"a": member("t")}) == {"a": []}


def test_sticky_members_keep_their_partitions() -> None:
    members = {"a": member("t", owned=[("t", 3), ("t", 1)]), "b": member("t", owned=[("t", 0)])}
    assert assign(COOPERATIVE_STICKY, {"t": 4}, members) == {"a": of("t", 1, 3), "b": of("t", 0, 2)}


def test_partition_that_moves_has_no_owner_until_it_is_revoked() -> None:
    first = {"a": member("t", owned=[("t", 0), ("t", 1), ("t", 2)]), "b": member("t")}
    assigned = assign(COOPERATIVE_STICKY, {"t": 3}, first)
    assert (len(assigned["a"]), assigned["b"]) == (2, [])
    second = {"a": member("t", owned=assigned["a"]), "b": member("t")}
    assert assign(COOPERATIVE_STICKY, {"t": 3}, second) == {
        "a": assigned["a"],
        "b": sorted(set(of("t", 0, 1, 2)) - set(assigned["a"])),
    }


def test_of_two_claims_to_a_partition_the_newer_generation_wins() -> None:
    members = {
        "a": member("t", owned=[("t", 0)], generation=4),
        "b": member("t", owned=[("t", 0)], generation=5),
    }
    assert assign(COOPERATIVE_STICKY, {"t": 1}, members) == {"a": [], "b": of("t", 0)}


def test_a_topic_that_is_no_longer_wanted_is_not_kept_and_is_assigned_only_after_it_was_revoked() -> None:
    members = {"a": member("u", owned=[("t", 0)]), "b": member("t")}
    assert assign(COOPERATIVE_STICKY, {"t": 1, "u": 1}, members) == {"a": of("u", 0), "b": []}
    members["a"] = member("u", owned=[("u", 0)], generation=2)
    assert assign(COOPERATIVE_STICKY, {"t": 1, "u": 1}, members) == {"a": of("u", 0), "b": of("t", 0)}


def test_new_partitions_go_to_who_has_the_fewest_so_that_the_others_stay() -> None:
    """The first member may not read all of the topics."""
    members = {
        "a": member("u", owned=[("u", 1)]),
        "b": member("t", "u"),
        "c": member("t", "u", owned=[("u", 0)]),
        "d": member("t", "u", owned=[("t", 1), ("u", 3)]),
    }
    assigned = assign(COOPERATIVE_STICKY, {"t": 4, "u": 4}, members)
    assert {member_id: len(partitions) for member_id, partitions in assigned.items()} == dict.fromkeys(
        "abcd", 2
    )
    assert all(set(members[member_id].owned) <= set(partitions) for member_id, partitions in assigned.items())


@pytest.mark.parametrize("seed", range(30))
def test_sticky_shares_are_even_and_complete_once_the_moving_partitions_were_revoked(seed: int) -> None:
    rng = random.Random(seed)
    counts = {f"t{n}": rng.randrange(1, 9) for n in range(rng.randrange(1, 4))}
    owned: dict[str, list[TopicPartition]] = {}
    for generation in range(1, 8):
        members = {f"m{n}" for n in range(6) if rng.random() < 0.7} or {"m0"}
        owned = {member_id: owned.get(member_id, []) for member_id in sorted(members)}
        for _ in range(2):
            given = {
                member_id: member(*counts, owned=held, generation=generation)
                for member_id, held in owned.items()
            }
            assigned = assign(COOPERATIVE_STICKY, counts, given)
            for member_id, partitions in assigned.items():
                others = {p for other, held in owned.items() if other != member_id for p in held}
                assert not others & set(partitions), "no member gets a partition that another still owns"
            owned = assigned
        everything = sorted(p for partitions in owned.values() for p in partitions)
        assert everything == sorted(TopicPartition(t, i) for t, count in counts.items() for i in range(count))
        sizes = [len(partitions) for partitions in owned.values()]
        assert max(sizes) - min(sizes) <= 1
