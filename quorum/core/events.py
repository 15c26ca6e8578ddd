"""Everything that can happen to a replica. ``RaftCore.step`` takes one of these and the time.

Events are delivered one at a time; the effects of one step have been carried out, in order, before the
next step begins (a flush is *started* by its effect and reported later by :class:`LogFlushed`).
"""

from __future__ import annotations

from pykraft.lazy_dataclass import dataclass
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import Request, Response
from pykraft.quorum.core.voters import VoterSet


@dataclass(frozen=True, slots=True)
class Started:
    """The replica has been read back from disk. The first event, exactly once."""


@dataclass(frozen=True, slots=True)
class TimerFired:
    """Time has passed: :attr:`RaftCore.next_deadline_ms` is due. Early or repeated ones do no harm."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request of another replica. ``token`` comes back in exactly one Reply or ReplyWithRecords effect."""

    token: int
    request: Request


@dataclass(frozen=True, slots=True)
class RequestAbandoned:
    """The sender of the request with this token no longer waits. A later answer is dropped."""

    token: int


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    """The answer to the request that was sent under ``correlation_id``."""

    correlation_id: int
    response: Response


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """No answer came by the deadline, or the peer could not be reached."""

    correlation_id: int


@dataclass(frozen=True, slots=True)
class LogFlushed:
    """Everything below ``end_offset`` survives a power loss.

    ``generation`` is copied from the FlushLog effect: a flush that overlapped a truncation is void for
    records appended since, and is ignored.
    """

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class Proposed:
    """The local controller wants ``record_count`` records appended as one batch in ``epoch``.

    Only to be sent while :meth:`RaftCore.may_propose` holds for that epoch. ``payload`` is opaque.
    """

    epoch: int
    record_count: int
    payload: object


@dataclass(frozen=True, slots=True)
class UpgradeProposed:
    """The local controller wants kraft.version 1, in ``epoch``.

    Only to be sent while :meth:`RaftCore.may_propose` holds for that epoch and
    :meth:`RaftCore.upgrade_objection` has none.
    """

    epoch: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot of our own committed state is durable."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class RetentionReached:
    """The log need no longer hold what lies before the end of this snapshot, which is durable here."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class SnapshotChecked:
    """The fetched snapshot is durable, and intact or damaged. ``attempt`` is copied from CheckSnapshot.

    ``voters``: the set in the snapshot, None if it holds none.
    """

    attempt: int
    is_intact: bool
    voters: VoterSet | None = None


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """Stop gracefully: a leader hands over, and this replica starts no further election."""


Event = (
    Started
    | TimerFired
    | RequestReceived
    | RequestAbandoned
    | ResponseReceived
    | RequestFailed
    | LogFlushed
    | Proposed
    | UpgradeProposed
    | SnapshotTaken
    | RetentionReached
    | SnapshotChecked
    | ShutdownRequested
)
