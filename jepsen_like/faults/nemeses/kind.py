"""A kind of fault: its name, whom it may hit, how long it lasts, and how it is inflicted and repaired."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target

if TYPE_CHECKING:
    from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster

T = TypeVar("T")
Repair = Callable[[], None]
"""Ends a fault. It is called once, with nodes that may have ended meanwhile.
:class:`~pykraft.testing.processes.waits.WaitError` if the cluster is not repaired in time."""


@dataclass(frozen=True, slots=True)
class ToldRepair:
    """A repair with what the history is to tell of the fault besides its settings."""

    repair: Repair
    detail: Mapping[str, str]

    def __call__(self) -> None:
        self.repair()


class NotPossibleNowError(RuntimeError):
    """The fault cannot be inflicted now (nobody leads, a request was refused …); nothing is left of it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Useful lengths of faults, from the cluster's timeouts."""

    session_timeout_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Kind:
    """``does`` is one line of ``pykraft jepsen list``; ``family`` is what ``--nemesis`` may name as well.

    ``targets``: each with its weight. ``lasts_s`` draws how long a fault lasts, ``settings`` the numbers of
    one fault. ``weight``: how often it is drawn beside others. ``moves_leaders``: what a victim led, another
    one leads then; other kinds may leave every leadership where it is.

    ``inflict`` is called with the cluster, the fault and its victims (none for :attr:`Target.CLUSTER`), on a
    thread of its own; it records nothing. It returns when the fault is in force, with its repair, or raises
    :class:`NotPossibleNowError`, or :class:`~pykraft.testing.processes.waits.WaitError` if what it has begun
    cannot be taken back in time.

    ``claims``: what of each victim nobody else may touch while it lasts (``process``, ``links``, ``disk``,
    ``clock``, ``voters`` …). ``disables``: a victim counts as down. ``may_end``: a victim may end by itself,
    as it should if its disk fails. ``loses_tails``: what a victim had not flushed is lost.

    ``why_unavailable`` says why it cannot be done with the surroundings that there are. ``not_with``: the
    workloads that would undo its repair again and again.
    """

    name: str
    does: str
    inflict: Callable[[ProcessCluster, Fault, Sequence[int]], Repair]
    lasts_s: Callable[[random.Random, Timing], float]
    family: str
    targets: Mapping[Target, float]
    claims: frozenset[str] = frozenset({"process"})
    settings: Callable[[random.Random], Mapping[str, float]] = field(default=lambda _: {})
    weight: float = 1.0
    disables: bool = False
    may_end: bool = False
    loses_tails: bool = False
    moves_leaders: bool = False
    not_with: frozenset[str] = frozenset()
    why_unavailable: Callable[[ProcessCluster], str | None] = field(default=lambda _: None)

    @property
    def has_process(self) -> bool:
        """Whether a victim must run when it begins, and is started by nobody else."""
        return "process" in self.claims


SINGLE: Final = {Target.ANY: 3.0, Target.CONTROLLER: 3.0, Target.BUSIEST: 4.0}
"""For :attr:`Kind.targets`: one node."""


def each(do: Callable[[T], object], things: Iterable[T]) -> Repair:
    """Does it with one after the other."""
    all_things = list(things)

    def repair() -> None:
        for one in all_things:
            do(one)

    return repair


def between(low_s: float, high_s: float) -> Callable[[random.Random, Timing], float]:
    """For :attr:`Kind.lasts_s`: evenly distributed, whatever the timeouts are."""
    return lambda rng, _: rng.uniform(low_s, high_s)
