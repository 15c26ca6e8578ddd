"""The options that a schedule of whole nodes draws once: nodes, timings, features."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

from pykraft.jepsen_like.faults.workloads.changes import ADMIN
from pykraft.metadata_log.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)

TOPICS = tuple(f"t{number}" for number in range(8))
"""The topics that clients create, change and delete at will."""


def is_guaranteed(topic: str) -> bool:
    """Whether the records of a topic are guaranteed; not if clients create and delete it at will."""
    return topic not in TOPICS and not topic.startswith(ADMIN)


@dataclass(frozen=True, slots=True)
class WorldOptions:
    """``controllers`` and ``brokers`` are node ids; some nodes are both. ``first_voters`` are controllers.

    ``voters_in_log``: the voters are in the log and may change (KIP-853); otherwise the configuration names
    them by id. ``session_ms``: of all controllers; with ``mixed_sessions`` the longest one, and each start of
    a controller may have another. ``auto_join``: controllers join by themselves. ``unclean``: unclean
    elections are configured for the whole cluster. ``lag_ms``: how long a follower may lag before it leaves
    the ISR. ``spares_tails``: no more disks lose unflushed records than the guarantee allows.
    ``keeps_tails``: none does, and no replica is damaged.
    ``fault_change_chance``: the probability of a change of voters while a fault begins. ``roll_ms``: the time
    that the records of a partition's segment span. ``index_interval_bytes``: between two entries of its
    indexes. ``flush_messages``: a partition's log is flushed after so many records; None: only when it rolls.
    ``log_dirs``: of each broker; ``moves_logs``: administrators move logs between them.
    ``delete_every_s``: the mean time between two deletions of records of the workload, None: there are none.
    ``reads_followers``: consumers read from a replica in their rack. ``throttles``: administrators limit how
    fast replicas are copied. ``transactions``: the clients of the workload write transactions; ``crowd``: and
    very many of them are decided when their coordinator dies (:mod:`.clients.crowd`).
    """

    controllers: tuple[int, ...]
    brokers: tuple[int, ...]
    first_voters: tuple[int, ...]
    session_ms: int
    heartbeat_ms: int
    max_delay_ms: int
    max_flush_ms: int
    segment_bytes: int
    fetch_max_bytes: int
    snapshot_bytes: int
    snapshot_interval_ms: int
    retention_bytes: int
    lag_ms: int
    client_gap_ms: int
    voters_in_log: bool
    auto_join: bool
    elr: bool
    unclean: bool
    fault_change_chance: float
    mixed_sessions: bool
    spares_tails: bool
    keeps_tails: bool
    roll_ms: int
    index_interval_bytes: int
    flush_messages: int | None
    log_dirs: int
    moves_logs: bool
    delete_every_s: float | None
    reads_followers: bool
    throttles: bool
    transactions: bool
    crowd: bool

    def session_ms_of(self, seed: int, process: str) -> int:
        """The session timeout that a controller's process is configured with."""
        shorter = self.mixed_sessions and random.Random(f"session {seed} {process}").random() < 0.5
        return self.session_ms // 2 if shorter else self.session_ms

    @property
    def features(self) -> dict[str, int]:
        """The levels that the cluster is formatted with."""
        levels = {METADATA_VERSION: LATEST_METADATA_VERSION, GROUP_VERSION: 1}
        if self.transactions:
            levels[TRANSACTION_VERSION] = 2
        return {**levels, ELIGIBLE_LEADER_REPLICAS_VERSION: 1} if self.elr else levels


_SHAPES = (
    ((1, 2, 3), (4, 5, 6), 3),
    ((1, 2, 3, 4), (5, 6, 7), 3),
    ((1, 2, 3), (1, 2, 3), 3),
    ((1, 2, 3), (3, 4, 5), 3),
    ((1, 2, 3, 4, 5), (6, 7, 8), 5),
    ((1, 2, 3), (3, 4, 5), 1),
    ((1,), (2, 3, 4), 1),
)
"""Controllers, brokers, and the number of controllers that are voters from the beginning."""


TRANSACTIONS = "transactions"
TRANSACTIONS_SHARE = 0.08
"""The share of schedules with transactions, where no workload was asked for."""


def has_transactions(seed: int, workload: str | None) -> bool:
    if workload is None:
        return random.Random(f"transactional clients {seed}").random() < TRANSACTIONS_SHARE
    return workload == TRANSACTIONS


BESIDE_TRANSACTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "moves between directories": {"log_dirs": 2, "moves_logs": True},
    "reads from followers": {"reads_followers": True},
    "throttles": {"throttles": True},
    "small segments": {"segment_bytes": 4096, "index_interval_bytes": 100},
    "a crowd": {"crowd": True},
}
"""Features that are tried together with transactions, two at a time: what goes wrong between them shows too
seldom if each is drawn by itself."""


def draw_pair(seed: int) -> tuple[str, ...]:
    """A pair of :data:`BESIDE_TRANSACTIONS`: successive seeds have every pair in turn."""
    pairs = tuple(combinations(BESIDE_TRANSACTIONS, 2))
    return pairs[seed % len(pairs)]


def draw_options(seed: int, workload: str | None = None) -> WorldOptions:
    """With ``workload`` :data:`TRANSACTIONS` nothing that was answered may be lost: what coordinators promise
    is about all partitions at once. Other clients do little then, except a pair of features that is chosen
    for them."""
    drawn = replace(_draw_options(seed), transactions=has_transactions(seed, workload))
    if workload != TRANSACTIONS:
        return drawn
    chosen = {name: value for one in draw_pair(seed) for name, value in BESIDE_TRANSACTIONS[one].items()}
    drawn = replace(
        drawn, keeps_tails=True, unclean=False, delete_every_s=None, client_gap_ms=4000, log_dirs=1
    )
    return replace(drawn, **chosen)


def _draw_options(seed: int) -> WorldOptions:
    rng = random.Random(f"world {seed}")
    controllers, brokers, voting = rng.choice(_SHAPES)
    logs = random.Random(f"logs {seed}")
    directories = random.Random(f"directories {seed}")
    session_ms = rng.choice((9000, 9000, 4500))
    voters_in_log = voting < len(controllers) or rng.random() < 0.7
    return WorldOptions(
        controllers=controllers,
        brokers=brokers,
        first_voters=controllers[:voting],
        session_ms=session_ms,
        heartbeat_ms=session_ms * 2 // 9,
        max_delay_ms=rng.choice((2, 5, 20, 60)),
        max_flush_ms=rng.choice((1, 4, 20)),
        segment_bytes=rng.choice((4096, 1 << 20)),
        fetch_max_bytes=rng.choice((2000, 1 << 20)),
        snapshot_bytes=rng.choice((2000, 20_000, 20 << 20)),
        snapshot_interval_ms=rng.choice((0, 4000)),
        retention_bytes=rng.choice((0, 20_000, 100 << 20)),
        lag_ms=rng.choice((1500, 4000)),
        client_gap_ms=rng.choice((150, 400)),
        voters_in_log=voters_in_log,
        auto_join=voters_in_log and rng.random() < 0.5,
        elr=rng.random() < 0.5,
        unclean=rng.random() < 0.25,
        fault_change_chance=rng.choice((0.0, 0.2, 0.5)) if voters_in_log else 0.0,
        mixed_sessions=random.Random(f"mixed sessions {seed}").random() < 0.2,
        spares_tails=random.Random(f"tails {seed}").random() < 0.6,
        roll_ms=logs.choice((1000, 5000, 604_800_000)),
        index_interval_bytes=logs.choice((100, 4096)),
        flush_messages=logs.choice((None, None, 20)),
        log_dirs=directories.choice((2, 3)) if directories.random() < 0.3 else 1,
        moves_logs=directories.random() < 0.7,
        keeps_tails=False,
        transactions=False,
        crowd=False,
        throttles=random.Random(f"throttles {seed}").random() < 0.3,
        reads_followers=random.Random(f"racks {seed}").random() < 0.4,
        delete_every_s=random.Random(f"deletions {seed}").choice((None, None, 0.5, 2.0)),
    )
