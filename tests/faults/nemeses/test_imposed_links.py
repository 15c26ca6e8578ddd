"""Which directions the faults of links break, and that faults of the same link do not repair each other."""

from itertools import combinations
from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Repair
from pykraft.jepsen_like.faults.nemeses.kinds import bad_links, links
from pykraft.jepsen_like.faults.surroundings.surroundings import (
    CLIENTS,
    WHOLE,
    Direction,
    Links,
    LinkState,
    Surroundings,
)

KINDS = {kind.name: kind for kind in (*links.KINDS, *bad_links.KINDS)}
CUT = LinkState(cut=True)
RESET = LinkState(cut=True, resets=True)


class RecordedLinks(Links):
    def __init__(self) -> None:
        self.broken: dict[Direction, LinkState] = {}

    def set(self, source: int, target: int, state: LinkState) -> None:
        self.broken.pop((source, target), None)
        if state != WHOLE:
            self.broken[source, target] = state

    def why_unavailable(self, state: LinkState) -> str | None:
        return "no delays" if state.delay_ms else None


class Site:
    """A cluster that is never started, with links that only note what is done to them."""

    def __init__(self, directory: Path, nodes: int) -> None:
        surroundings = Surroundings()
        self.links = surroundings.links = RecordedLinks()
        self.cluster = ProcessCluster(directory, nodes, surroundings=surroundings)

    def inflict(self, name: str, *victims: int, draw: float = 0.3, **settings: float) -> Repair:
        fault = Fault(0, name, Target.ANY, 0.0, 1.0, draw, False, settings)
        return KINDS[name].inflict(self.cluster, fault, victims)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, 3)


def test_faults_of_the_same_link_do_not_repair_each_other(site: Site) -> None:
    cut = site.inflict("cut-node", 1)
    slow = site.inflict("slow-links", 2, delay_ms=50, jitter_ms=10, clients=1)
    assert site.links.broken[1, 2] == LinkState(cut=True, delay_ms=50, jitter_ms=10)
    cut()
    assert site.links.broken[1, 2] == LinkState(delay_ms=50, jitter_ms=10)
    assert (1, 3) not in site.links.broken
    again = site.inflict("cut-node", 1)
    slow()
    assert site.links.broken[1, 2] == CUT
    again()
    assert not site.links.broken


def test_states_of_two_faults_are_joined_to_what_is_worse() -> None:
    lossy, throttled = LinkState(loss=0.1, delay_ms=5), LinkState(loss=0.2, delay_ms=7, bytes_per_s=10.0)
    assert lossy.joined(throttled) == LinkState(loss=0.2, delay_ms=12, bytes_per_s=10.0)
    assert RESET.joined(CUT) == CUT.joined(RESET) == CUT
    assert RESET.joined(RESET) == RESET.joined(WHOLE) == RESET


def test_cuts_break_what_they_say(site: Site) -> None:
    ways = {(1, 2), (2, 1), (1, 3), (3, 1)}
    for name, settings, expected in (
        ("cut-node", {}, ways),
        ("cut-off", {}, ways | {(1, CLIENTS), (CLIENTS, 1)}),
        ("cut-one-way", {"hears": 1}, {(1, 2), (1, 3)}),
        ("cut-one-way", {"hears": 0}, {(2, 1), (3, 1)}),
        ("cut-clients", {"lost": 0}, {(1, CLIENTS), (CLIENTS, 1)}),
        ("cut-clients", {"lost": 1}, {(CLIENTS, 1)}),
        ("cut-clients", {"lost": 2}, {(1, CLIENTS)}),
        ("shatter", {}, ways | {(2, 3), (3, 2)}),
    ):
        repair = site.inflict(name, 1, **settings)
        assert site.links.broken == dict.fromkeys(expected, CUT), name
        repair()
        assert not site.links.broken


def test_second_node_of_a_pair_follows_from_the_draw(site: Site) -> None:
    for draw, second in ((0.1004, 2), (0.1006, 3)):
        repair = site.inflict("cut-pair", 1, draw=draw)
        assert set(site.links.broken) == {(1, second), (second, 1)}
        repair()


@pytest.mark.parametrize("nodes", [4, 5, 6, 7])
def test_every_node_of_a_ring_hears_another_majority(tmp_path: Path, nodes: int) -> None:
    site = Site(tmp_path, nodes)
    site.inflict("ring")
    heard = {
        one: frozenset(other for other in site.cluster.members if (other, one) not in site.links.broken)
        for one in site.cluster.members
    }
    assert all(len(nearest) > nodes // 2 for nearest in heard.values())
    assert all(one != other for one, other in combinations(heard.values(), 2))


def test_connections_are_reset_again_and_again_until_it_is_repaired(site: Site) -> None:
    repair = site.inflict("reset-links", 1, every_ms=1)
    assert site.links.broken == dict.fromkeys(
        ((1, 2), (2, 1), (1, 3), (3, 1), (1, CLIENTS), (CLIENTS, 1)), RESET
    )
    repair()
    assert not site.links.broken


def test_what_cannot_be_done_says_why(tmp_path: Path, site: Site) -> None:
    assert KINDS["cut-node"].why_unavailable(site.cluster) is None
    assert KINDS["slow-links"].why_unavailable(site.cluster) == "no delays"
    assert KINDS["ring"].why_unavailable(site.cluster) == "at least 4 nodes are needed"
    assert KINDS["cut-node"].why_unavailable(Site(tmp_path, 1).cluster) == "at least 2 nodes are needed"
    assert KINDS["cut-node"].why_unavailable(ProcessCluster(tmp_path, 3)) is not None
