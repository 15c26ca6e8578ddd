from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykraft.kafka_protocol.errors import KafkaError
from pykraft.metadata_log.controller.topics.placement import place_replicas


@given(brokers=st.integers(1, 12), partitions=st.integers(1, 40), seed=st.integers(0, 1000), data=st.data())
def test_leaders_are_even_and_replicas_distinct_whatever_the_racks(
    brokers: int, partitions: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, brokers))
    names = st.sampled_from(["a", "b", "c", None])
    racks = {id: data.draw(names) for id in range(brokers)}
    placements = list(place_replicas(racks, partitions, factor, Random(seed)))
    assert all(len(set(replicas)) == factor for replicas in placements)
    leaders = Counter(replicas[0] for replicas in placements)
    counts = [leaders[id] for id in racks]
    assert max(counts) - min(counts) <= 1
    rack_count = len(set(racks.values()))
    for replicas in placements:
        assert len({racks[id] for id in replicas}) == min(factor, rack_count)


def test_replicas_spread_evenly_without_racks() -> None:
    placements = list(place_replicas(dict.fromkeys(range(6)), 60, 3, Random(1)))
    held = Counter(id for replicas in placements for id in replicas)
    assert max(held.values()) - min(held.values()) <= 3


@given(rows=st.integers(1, 4), columns=st.integers(1, 4), rounds=st.integers(1, 6), seed=st.integers(0, 1000))
def test_with_equal_racks_leaders_and_replicas_are_even_and_every_rack_has_its_share(
    rows: int, columns: int, rounds: int, seed: int
) -> None:
    racks = {row * columns + column: f"r{column}" for row in range(rows) for column in range(columns)}
    factor = min(3, len(racks))
    placements = list(place_replicas(racks, rounds * len(racks), factor, Random(seed)))
    leaders = Counter(replicas[0] for replicas in placements)
    assert set(leaders.values()) == {rounds}
    in_rack = Counter(racks[id] for replicas in placements for id in replicas)
    share = rounds * len(racks) * factor / columns
    assert all(abs(in_rack[f"r{column}"] - share) <= len(racks) * rounds / 2 for column in range(columns))
    if factor <= columns:
        assert all(len({racks[id] for id in replicas}) == factor for replicas in placements)


@given(
    active=st.integers(1, 6),
    fenced=st.integers(0, 6),
    partitions=st.integers(1, 30),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_fenced_brokers_are_used_last_and_only_if_the_active_ones_do_not_suffice(
    active: int, fenced: int, partitions: int, seed: int, data: st.DataObject
) -> None:
    names = st.sampled_from(["a", "b", None])
    up = {id: data.draw(names) for id in range(active)}
    down = {100 + id: data.draw(names) for id in range(fenced)}
    factor = data.draw(st.integers(1, active + fenced))
    placements = list(place_replicas(up, partitions, factor, Random(seed), down))
    for replicas in placements:
        assert len(set(replicas)) == factor and replicas[0] in up
        assert [id in down for id in replicas] == sorted(id in down for id in replicas)
        assert sum(id in down for id in replicas) == max(0, factor - active)
    if factor > active:
        held = Counter(id for replicas in placements for id in replicas if id in down)
        if len(set(down.values())) == 1:
            assert max(held.values()) - min(held[id] for id in down) <= factor - active


def test_followers_of_one_leader_vary() -> None:
    placements = list(place_replicas(dict.fromkeys(range(5)), 25, 2, Random(1)))
    assert len({replicas[1] for replicas in placements if replicas[0] == 0}) > 2


def test_same_seed_gives_the_same_placement() -> None:
    racks = {1: "a", 2: "b", 3: "a"}
    assert list(place_replicas(racks, 9, 2, Random(7))) == list(place_replicas(racks, 9, 2, Random(7)))


@pytest.mark.parametrize("racks", [{}, {1: None}])
def test_too_few_brokers_are_an_error(racks: dict[int, str | None]) -> None:
    with pytest.raises(KafkaError, match="INVALID_REPLICATION_FACTOR"):
        place_replicas(racks, 1, 2, Random(0))
