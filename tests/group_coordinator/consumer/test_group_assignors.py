"""Both assignors: everything assigned once, balanced, and sticky."""

from hypothesis import given
from hypothesis import strategies as st

from pykraft.group_coordinator.consumer.assignors.interface import MemberSpec
from pykraft.group_coordinator.consumer.assignors.range import assign_range
from pykraft.group_coordinator.consumer.assignors.uniform import assign_uniform
from pykraft.group_coordinator.state.records import Partitions
from pykraft.kafka_protocol.ids import Uuid

A, B, C = (Uuid(letter * 16) for letter in (b"a", b"b", b"c"))
TOPICS = (A, B, C)


def specs(
    subscriptions: dict[str, set[Uuid]], current: dict[str, Partitions] | None = None
) -> dict[str, MemberSpec]:
    current = current or {}
    return {
        member_id: MemberSpec(frozenset(topics), current.get(member_id, frozenset()))
        for member_id, topics in subscriptions.items()
    }


def moved(before: dict[str, Partitions], after: dict[str, Partitions]) -> int:
    """Partitions that moved between members that are in both assignments."""
    owners = {p: m for m, partitions in before.items() for p in partitions if m in after}
    return sum(owners[p] != m for m, partitions in after.items() for p in partitions if p in owners)


members = st.dictionaries(
    st.sampled_from([f"m{i}" for i in range(6)]), st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1
)
counts = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})


def check_legal(
    subscriptions: dict[str, set[Uuid]], sizes: dict[Uuid, int], assigned: dict[str, Partitions]
) -> None:
    assert set(assigned) == set(subscriptions)
    everything = [p for partitions in assigned.values() for p in partitions]
    assert len(everything) == len(set(everything)), "a partition was assigned twice"
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert set(everything) == {(topic, i) for topic in wanted for i in range(sizes[topic])}
    for member_id, partitions in assigned.items():
        assert {topic for topic, _ in partitions} <= subscriptions[member_id]


@given(subscriptions=members, sizes=counts)
def test_every_partition_is_assigned_to_exactly_one_subscriber(
    subscriptions: dict[str, set[Uuid]], sizes: dict[Uuid, int]
) -> None:
    check_legal(subscriptions, sizes, assign_uniform(specs(subscriptions), sizes))
    check_legal(subscriptions, sizes, assign_range(specs(subscriptions), sizes))


@given(subscriptions=members, changed=members, sizes=counts, grown=counts)
def test_assignment_stays_legal_when_built_on_any_earlier_one(
    subscriptions: dict[str, set[Uuid]],
    changed: dict[str, set[Uuid]],
    sizes: dict[Uuid, int],
    grown: dict[Uuid, int],
) -> None:
    for assign in (assign_uniform, assign_range):
        before = assign(specs(subscriptions), sizes)
        check_legal(changed, grown, assign(specs(changed, before), grown))


@given(subscriptions=members, sizes=counts)
def test_nothing_moves_when_nothing_changed(
    subscriptions: dict[str, set[Uuid]], sizes: dict[Uuid, int]
) -> None:
    for assign in (assign_uniform, assign_range):
        before = assign(specs(subscriptions), sizes)
        assert assign(specs(subscriptions, before), sizes) == before


@given(size=st.integers(0, 20), count=st.integers(1, 7))
def test_uniform_loads_differ_by_at_most_one(size: int, count: int) -> None:
    assigned = assign_uniform(specs({f"m{i}": {A} for i in range(count)}), {A: size})
    loads = sorted(len(partitions) for partitions in assigned.values())
    assert loads[-1] - loads[0] <= 1


@given(size=st.integers(1, 24), count=st.integers(1, 6))
def test_uniform_moves_only_the_newcomers_share(size: int, count: int) -> None:
    before = assign_uniform(specs({f"m{i}": {A} for i in range(count)}), {A: size})
    after = assign_uniform(specs({f"m{i}": {A} for i in range(count + 1)}, before), {A: size})
    assert moved(before, after) == len(after[f"m{count}"])


@given(size=st.integers(1, 24), count=st.integers(2, 6))
def test_uniform_moves_nothing_of_the_others_when_a_member_leaves(size: int, count: int) -> None:
    before = assign_uniform(specs({f"m{i}": {A} for i in range(count)}), {A: size})
    after = assign_uniform(specs({f"m{i}": {A} for i in range(1, count)}, before), {A: size})
    assert moved(before, after) == 0


def test_uniform_with_different_subscriptions_uses_the_idle_member() -> None:
    assigned = assign_uniform(specs({"m0": {A, B}, "m1": {A}}), {A: 4, B: 4})
    assert {topic for topic, _ in assigned["m0"]} == {B}
    assert len(assigned["m1"]) == 4


def test_range_gives_contiguous_runs_and_the_longer_ones_first() -> None:
    assigned = assign_range(specs({"m0": {A}, "m1": {A}, "m2": {A}}), {A: 7})
    assert [sorted(i for _, i in assigned[m]) for m in ("m0", "m1", "m2")] == [[0, 1, 2], [3, 4], [5, 6]]


@given(size=st.integers(1, 9), names=st.sets(st.sampled_from("pqrstu"), min_size=1), later=st.data())
def test_range_keeps_equal_topics_co_partitioned(size: int, names: set[str], later: st.DataObject) -> None:
    before = assign_range(specs({name: {A, B} for name in names}), {A: size, B: size})
    others = later.draw(st.sets(st.sampled_from("pqrstu"), min_size=1))
    after = assign_range(specs({name: {A, B} for name in others}, before), {A: size, B: size})
    for assigned in (before, after):
        for partitions in assigned.values():
            assert {i for topic, i in partitions if topic == A} == {
                i for topic, i in partitions if topic == B
            }


def test_range_goes_by_the_order_of_the_members_alone() -> None:
    before = assign_range(specs({"b": {A}, "c": {A}}), {A: 4})
    after = assign_range(specs({"c": {A}, "d": {A}}, before), {A: 4})
    assert (after["c"], after["d"]) == (before["b"], before["c"])


def test_static_members_come_first_in_range_whatever_their_member_id() -> None:
    members = {
        "zzz": MemberSpec(frozenset({A}), frozenset(), instance_id="i1"),
        "aaa": MemberSpec(frozenset({A}), frozenset()),
    }
    assigned = assign_range(members, {A: 2})
    assert assigned["zzz"] == {(A, 0)}


def test_static_members_share_in_range_by_their_instance_ids() -> None:
    """So they get the same again when all of them return under other member ids."""
    for names in ("x", "y", "z"), ("z", "y", "x"), ("y", "z", "x"):
        members = {
            name: MemberSpec(frozenset({A}), frozenset(), instance_id=f"i{number}")
            for number, name in enumerate(names)
        }
        assigned = assign_range(members, {A: 3})
        assert [assigned[name] for name in names] == [{(A, 0)}, {(A, 1)}, {(A, 2)}]
