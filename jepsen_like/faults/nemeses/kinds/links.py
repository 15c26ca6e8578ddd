"""Faults of links: nodes cut off from each other or from clients, both ways or one way.

A fault breaks the links between nodes, and those of clients only where it says so. Several may break the same
link: see :meth:`~pykraft.jepsen_like.faults.surroundings.surroundings.Surroundings.impose`.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import SINGLE, Kind, Repair, Timing, between
from pykraft.jepsen_like.faults.nemeses.kinds.shims import refuse_ignored
from pykraft.jepsen_like.faults.surroundings.surroundings import CLIENTS, Direction, LinkState

FAMILY: Final = "links"
CLAIMS: Final = frozenset({"links"})
_CUT: Final = LinkState(cut=True)


def impose(cluster: ProcessCluster, state: LinkState, directions: Iterable[Direction]) -> Repair:
    """Where there are shims they lead nodes to the proxies: none may be ignored."""
    for node_id in cluster.surroundings.shims:
        refuse_ignored(cluster, node_id)
    return cluster.surroundings.impose(dict.fromkeys(directions, state))


def other_nodes(cluster: ProcessCluster, victims: Sequence[int]) -> list[int]:
    """All but the victims; nodes that may join later are among them."""
    return [node_id for node_id in cluster.nodes if node_id not in victims]


def both_ways(some: Iterable[int], others: Iterable[int]) -> list[Direction]:
    pairs = [(one, other) for one in some for other in others if one != other]
    return [*pairs, *((other, one) for one, other in pairs)]


def possible(*states: LinkState, least_nodes: int = 2) -> Callable[[ProcessCluster], str | None]:
    """For :attr:`Kind.why_unavailable`."""

    def why_unavailable(cluster: ProcessCluster) -> str | None:
        links = cluster.surroundings.links
        if links is None:
            return f"no links that can be broken in the {cluster.surroundings.tier} tier here"
        if len(cluster.members) < least_nodes:
            return f"at least {least_nodes} nodes are needed"
        return next(filter(None, map(links.why_unavailable, states)), None)

    return why_unavailable


def cut_length_s(rng: random.Random, timing: Timing) -> float:
    """Mostly just past the session timeout, where a deposed leader is most dangerous."""
    if rng.random() < 1 / 3:
        return rng.uniform(0.5, timing.session_timeout_s)
    return timing.session_timeout_s + (
        rng.uniform(0.2, 3.0) if rng.random() < 0.85 else rng.uniform(3.0, 9.0)
    )


def cut_node(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    return impose(cluster, _CUT, both_ways(victims, other_nodes(cluster, victims)))


def _cut_off(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    return impose(cluster, _CUT, both_ways(victims, [CLIENTS, *other_nodes(cluster, victims)]))


def _cut_pair(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """The draw has chosen the first; what is left of it chooses the second."""
    others = [node_id for node_id in cluster.members if node_id not in victims]
    second = others[int(fault.draw * 1000 * len(others)) % len(others)]
    return impose(cluster, _CUT, both_ways(victims, [second]))


def _cut_one_way(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    others = other_nodes(cluster, victims)
    if fault.settings["hears"]:
        return impose(cluster, _CUT, [(victim, other) for victim in victims for other in others])
    return impose(cluster, _CUT, [(other, victim) for victim in victims for other in others])


def _shatter(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    return impose(cluster, _CUT, both_ways(cluster.nodes, cluster.nodes))


def _ring(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    """In an order that the draw chooses, a node hears the nearest of both sides: a majority with itself."""
    circle = list(cluster.members)
    random.Random(fault.draw).shuffle(circle)
    count = len(circle)
    reach = (count // 2 + 1) // 2
    distances = {
        (one, other): abs(i - j) for i, one in enumerate(circle) for j, other in enumerate(circle) if i != j
    }
    far = [direction for direction, away in distances.items() if min(away, count - away) > reach]
    return impose(cluster, _CUT, far)


def _cut_clients(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    requests, responses = [(CLIENTS, victim) for victim in victims], [(victim, CLIENTS) for victim in victims]
    lost = {0: requests + responses, 1: requests, 2: responses}[int(fault.settings["lost"])]
    return impose(cluster, _CUT, lost)


_kind = partial(Kind, family=FAMILY, claims=CLAIMS)
_cut = partial(_kind, lasts_s=cut_length_s, targets=SINGLE, disables=True, why_unavailable=possible(_CUT))

KINDS: Final = (
    _cut(
        "cut-node",
        "one node cut off from all others; clients still reach it",
        cut_node,
        moves_leaders=True,
    ),
    _cut("cut-off", "one node cut off from all others and from clients", _cut_off, moves_leaders=True),
    _cut("cut-pair", "two nodes cut off from each other; both hear the rest", _cut_pair),
    _cut(
        "cut-one-way",
        "one node hears all others and is not heard, or the reverse",
        _cut_one_way,
        settings=lambda rng: {"hears": rng.randrange(2)},
    ),
    _kind(
        "split",
        "a minority of the nodes cut off from the majority",
        cut_node,
        cut_length_s,
        targets={Target.MINORITY: 1.0},
        weight=0.5,
        disables=True,
        moves_leaders=True,
        why_unavailable=possible(_CUT, least_nodes=5),
    ),
    _kind(
        "ring",
        "every node hears a majority, and no two the same one",
        _ring,
        cut_length_s,
        targets={Target.CLUSTER: 1.0},
        weight=0.5,
        why_unavailable=possible(_CUT, least_nodes=4),
    ),
    _kind(
        "shatter",
        "no node hears any other",
        _shatter,
        between(1.0, 6.0),
        targets={Target.ALL: 1.0},
        weight=0.3,
        disables=True,
        moves_leaders=True,
        why_unavailable=possible(_CUT),
    ),
    _kind(
        "cut-clients",
        "clients cut off from one broker: their requests are lost, its responses, or both",
        _cut_clients,
        cut_length_s,
        targets=SINGLE,
        # 0: requests and responses, 1: requests, 2: responses.
        settings=lambda rng: {"lost": rng.randrange(3)},
        why_unavailable=possible(_CUT, least_nodes=1),
    ),
)
