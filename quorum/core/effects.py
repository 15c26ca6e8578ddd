"""The actions that the core requests. The driver executes the list in order, and that order is the protocol.

The promises a driver must keep, all of them safety:

1. Effects of one step run in list order, before the next event is stepped.
2. :class:`PersistElectionState` has reached the disk (fsync) before any later effect runs. So no vote is
   answered, and no message of an epoch sent, that a crash could make the replica forget.
3. Appends and truncations have been applied to the log before any later effect runs; a truncation is flushed
   by the driver before it continues, and so is the installation of a snapshot, and the end of a recovery.
4. :class:`FlushLog` may complete later and merge with its successors, but LogFlushed is stepped only when
   the fsync has returned, and how far it reached is noted durably (``quorum/flushed_mark``). A replica's
   fetch offset and the leader's own share in the high watermark follow LogFlushed, never the append.
5. A process may die between any two effects.
"""

from __future__ import annotations

from pykraft.lazy_dataclass import dataclass
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import BatchSpan, FetchResponse, FetchSnapshotResponse, Request, Response
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.core.voters import ReplicaKey, VoterSet
from pykraft.runtime.address import Address


@dataclass(frozen=True, slots=True)
class PersistElectionState:
    """Write the quorum-state file; durable before the next effect."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """The leader's first record of its epoch: a control batch of one record at ``offset``."""

    offset: int
    epoch: int
    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class AppendVoters:
    """The leader appends a voter set as a control batch ``[base_offset, end_offset)``.

    The batch holds the set alone; or kraft.version and then the set, if it is two records long.
    """

    base_offset: int
    end_offset: int
    epoch: int
    voters: VoterSet


@dataclass(frozen=True, slots=True)
class AppendProposal:
    """The leader appends the payload of a Proposed event as one batch ``[base_offset, end_offset)``."""

    base_offset: int
    end_offset: int
    epoch: int
    payload: object


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """A follower appends batches as the leader sent them."""

    batches: tuple[BatchSpan, ...]
    payload: object


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Drop every record at ``end_offset`` and above; durable before the next effect."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class EndRecovery:
    """The replica holds again what it may have lost (:mod:`.recovery`); durable before the next effect.

    ``end_offset``: everything below is flushed.
    """

    end_offset: int


@dataclass(frozen=True, slots=True)
class AdvanceLogStart:
    """Drop the log before the end of this snapshot, and older snapshots. Need not be durable."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class AppendSnapshotChunk:
    """Add a piece to the snapshot that is being fetched; ``position`` 0 starts its file over. Not durable."""

    snapshot_id: SnapshotId
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class CheckSnapshot:
    """All pieces are here: make them durable and read them back, then report with SnapshotChecked.

    ``checksum``: that of the whole file, as the leader sent it.
    """

    snapshot_id: SnapshotId
    attempt: int
    checksum: int


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """A fetched and checked snapshot takes the place of the whole log, which then starts and ends at its end.

    First the file gets its name, durably, then the log is emptied, durably: a crash between the two leaves a
    log that does not reach the newest snapshot, and the next start completes the installation.
    """

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class FlushLog:
    """Start a flush of at least ``[0, end_offset)``; report it with LogFlushed(end_offset', generation)."""

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class Send:
    """Call another replica. The answer, or the failure at the deadline, returns under ``correlation_id``.

    ``to`` is its node id, or negative if only the address is known.
    """

    to: int
    correlation_id: int
    request: Request
    timeout_ms: int
    address: Address


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request that was received under ``token``."""

    token: int
    response: Response


@dataclass(frozen=True, slots=True)
class ReplyWithRecords:
    """Answer a fetch with the whole batches found from ``start_offset``, at least one, below ``end_offset``.

    The driver reads them when this effect runs (after the appends before it) and fills in ``batches``
    and ``payload``.
    """

    token: int
    response: FetchResponse
    start_offset: int
    end_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class ReplyWithSnapshot:
    """Answer a snapshot fetch with a piece of the file of ``response.snapshot_id``.

    The driver fills in size, checksum and data from ``response.position`` on; or the error SNAPSHOT_NOT_FOUND
    if there is no such file here, POSITION_OUT_OF_RANGE if it is shorter.
    """

    token: int
    response: FetchSnapshotResponse
    max_bytes: int


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Everything below ``high_watermark`` is committed and flushed here: deliver it to the listeners."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """The known leader of ``epoch`` is now ``leader_id`` (None: unknown).

    ``deliver_after_offset`` is set when the local replica leads: its listeners learn it only once this offset
    (the LeaderChange record) has been committed and delivered, so that they have seen all that came before.
    ``address`` is where it listens.
    """

    leader: ReplicaKey | None
    epoch: int
    deliver_after_offset: int | None = None
    address: Address | None = None


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """Another voter set is in force here: one was appended or truncated."""

    voters: VoterSet


@dataclass(frozen=True, slots=True)
class PeerDisbelieved:
    """A peer sent something impossible, and it was ignored. ``reason`` is for people."""

    reason: str


Effect = (
    PersistElectionState
    | AppendLeaderChange
    | AppendVoters
    | AppendProposal
    | AppendFetched
    | TruncateTo
    | EndRecovery
    | AdvanceLogStart
    | AppendSnapshotChunk
    | CheckSnapshot
    | InstallSnapshot
    | FlushLog
    | Send
    | Reply
    | ReplyWithRecords
    | ReplyWithSnapshot
    | AdvanceHighWatermark
    | LeaderChanged
    | VotersChanged
    | PeerDisbelieved
)
