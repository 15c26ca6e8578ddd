"""Faults of links that still carry something: reset again and again, flapping, slow, lossy, throttled."""

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.fault import Fault
from pykraft.jepsen_like.faults.nemeses.kind import SINGLE, Kind, Repair, between
from pykraft.jepsen_like.faults.nemeses.kinds.links import (
    CLAIMS,
    FAMILY,
    both_ways,
    cut_node,
    impose,
    other_nodes,
    possible,
)
from pykraft.jepsen_like.faults.nemeses.kinds.turns import in_turns
from pykraft.jepsen_like.faults.surroundings.surroundings import CLIENTS, LinkState

_RESET: Final = LinkState(cut=True, resets=True)
_RESETTING_S: Final = 0.1
_CLIENTS_TOO: Final = "clients"


def _reset(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    directions = both_ways(victims, [CLIENTS, *other_nodes(cluster, victims)])
    every_s = fault.settings["every_ms"] / 1000
    return in_turns(lambda: impose(cluster, _RESET, directions), _RESETTING_S, every_s or None)


def _flap(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    cut_s, whole_s = fault.settings["cut_ms"] / 1000, fault.settings["whole_ms"] / 1000
    return in_turns(lambda: cut_node(cluster, fault, victims), cut_s, whole_s)


def _wear(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    state: dict[str, Any] = dict(fault.settings)
    ends = other_nodes(cluster, victims)
    if state.pop(_CLIENTS_TOO):
        ends.append(CLIENTS)
    return impose(cluster, LinkState(**state), both_ways(victims, ends))


def _repetition(rng: random.Random) -> Mapping[str, float]:
    """0: only once."""
    return {"every_ms": rng.choice((0, round(rng.uniform(300, 1000)), round(rng.uniform(1000, 3000))))}


def _turns(rng: random.Random) -> Mapping[str, float]:
    return {"cut_ms": round(rng.uniform(100, 2500)), "whole_ms": round(rng.uniform(100, 2500))}


def _slowness(rng: random.Random) -> Mapping[str, float]:
    delay_ms = round(rng.uniform(20, 400))
    return {"delay_ms": delay_ms, "jitter_ms": round(rng.uniform(0, delay_ms / 2)), **_scope(rng)}


def _scope(rng: random.Random) -> Mapping[str, float]:
    return {_CLIENTS_TOO: rng.randrange(2)}


_kind = partial(Kind, family=FAMILY, targets=SINGLE, claims=CLAIMS)

KINDS: Final = (
    _kind(
        "reset-links",
        "the connections of one node are reset, its clients' too, once or again and again",
        _reset,
        between(1.0, 6.0),
        settings=_repetition,
        why_unavailable=possible(_RESET, least_nodes=1),
    ),
    _kind(
        "flapping-links",
        "one node cut off from all others, and not, in turns",
        _flap,
        between(3.0, 10.0),
        settings=_turns,
        disables=True,
        why_unavailable=possible(LinkState(cut=True)),
    ),
    _kind(
        "slow-links",
        "20 to 400 ms to and from one node, with jitter",
        _wear,
        between(3.0, 12.0),
        settings=_slowness,
        why_unavailable=possible(LinkState(delay_ms=20.0, jitter_ms=10.0)),
    ),
    _kind(
        "lossy-links",
        "1 to 20 % of what goes to and from one node is lost, and sent again later",
        _wear,
        between(3.0, 12.0),
        settings=lambda rng: {"loss": round(rng.uniform(0.01, 0.2), 3), **_scope(rng)},
        why_unavailable=possible(LinkState(loss=0.01)),
    ),
    _kind(
        "throttled-links",
        "50 to 500 kB/s to and from one node",
        _wear,
        between(3.0, 12.0),
        settings=lambda rng: {"bytes_per_s": round(rng.uniform(50_000, 500_000), -3), **_scope(rng)},
        why_unavailable=possible(LinkState(bytes_per_s=50_000.0)),
    ),
)
