"""The draws of a schedule of the quorum's simulation: who there is, how fast things are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The shape of one schedule's world; every field is drawn from the seed.

    ``static_voters``: voters are named by id alone and do not change, unless ``upgraded``: then an admin asks
    for kraft.version 1, after which they may. ``voters_in_log``: the first leader writes the voters into the
    log, and they may change. ``auto_join``: controllers that are not voters ask to become voters.
    """

    voters: int = 3
    observers: int = 0
    max_delay_ms: int = 5
    max_flush_ms: int = 4
    max_fetch_batches: int = 1000
    proposal_gap_ms: int = 10
    static_voters: bool = False
    upgraded: bool = False
    voters_in_log: bool = False
    auto_join: bool = False
    snapshot_piece_bytes: int | None = None
