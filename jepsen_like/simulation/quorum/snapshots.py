"""The snapshot files of one simulated replica, and the start of its log.

A snapshot's state is the sequence of the batches below its end, so the replica's list of batches remains the
whole history: the batches of a snapshot are put before those of the log, and every invariant sees them.
``start`` is where the replica's records begin; nothing before it is served as records. Files that have a name
are durable; a file that is being fetched is lost in a crash.
"""

import pickle
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from pykraft.jepsen_like.simulation.quorum.invariants.history import StoredBatch
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.quorum.core.effects import (
    AdvanceLogStart,
    AppendSnapshotChunk,
    CheckSnapshot,
    InstallSnapshot,
    ReplyWithSnapshot,
)
from pykraft.quorum.core.events import Event, RetentionReached, SnapshotChecked, SnapshotTaken
from pykraft.quorum.core.log_shape import BEGINNING, LogShape, SnapshotId
from pykraft.quorum.core.messages import FetchSnapshotResponse
from pykraft.quorum.core.raft_core import RaftCore
from pykraft.quorum.core.voters import VoterSet


def encode_state(batches: Sequence[StoredBatch]) -> bytes:
    body = pickle.dumps([tuple(batch) for batch in batches], protocol=4)
    return zlib.crc32(body).to_bytes(4, "big") + body


def decode_state(data: bytes) -> list[StoredBatch]:
    """The batches of a snapshot; :class:`ValueError` if pieces are missing or of another file."""
    body = data[4:]
    if int.from_bytes(data[:4], "big") != zlib.crc32(body) or not body:
        raise ValueError("not a whole snapshot")
    return [StoredBatch(*fields) for fields in pickle.loads(body)]


class SnapshottedReplica(Protocol):
    """A replica as its snapshots see it: its core, and the log that they come from and replace."""

    core: RaftCore
    batches: list[StoredBatch]
    epoch_starts: list[tuple[int, int]]

    def step(self, event: Event) -> None: ...

    def batch_ending_at(self, end_offset: int) -> StoredBatch | None: ...

    def batches_before(self, end_offset: int) -> list[StoredBatch]: ...

    def replace_log(self, batches: Sequence[StoredBatch]) -> None: ...

    def lower_mark(self, end_offset: int) -> None: ...

    def replace_mark(self, end_offset: int) -> None: ...


class SimSnapshots:
    """See the module. ``half_installed``: die once between the two halves of an installation."""

    def __init__(self, replica: SnapshottedReplica) -> None:
        self._replica = replica
        self.files: dict[SnapshotId, bytes] = {}
        self.start = BEGINNING
        self.fetched = bytearray()
        self.pieces = 0
        self.half_installed = False

    @property
    def latest(self) -> SnapshotId | None:
        return max(self.files, default=None)

    def forget(self) -> None:
        """Delete all snapshots: the disk is replaced."""
        self.files.clear()
        self.start = BEGINNING

    def recover(self) -> LogShape:
        """Build the log of a start: the newest snapshot replaces a log that does not reach it."""
        replica, latest = self._replica, self.latest
        self.fetched.clear()
        if latest is not None:
            last = replica.batch_ending_at(latest.end_offset)
            if last is None or last.epoch != latest.epoch:
                self._take_the_place_of_the_log(latest)
        end_offset = replica.batches[-1].end_offset if replica.batches else 0
        shape = LogShape(end_offset, replica.epoch_starts)
        if self.start != BEGINNING:
            shape.advance_start(self.start)
        return shape

    def take(self) -> SnapshotId | None:
        """Take a snapshot of all committed records, if there are new ones. It is durable or not there."""
        replica = self._replica
        state, latest = replica.core.state, self.latest
        if state.high_watermark <= (0 if latest is None else latest.end_offset):
            return None
        snapshot_id = SnapshotId(state.high_watermark, state.log.epoch_of(state.high_watermark - 1))
        self.files[snapshot_id] = encode_state(replica.batches_before(snapshot_id.end_offset))
        replica.step(SnapshotTaken(snapshot_id))
        return snapshot_id

    def cut(self) -> None:
        """Delete the records before the newest snapshot."""
        if self.latest is not None:
            self._replica.step(RetentionReached(self.latest))

    def rewrite(self, snapshot_id: SnapshotId) -> None:
        """Write the same state in other bytes, as another version of the software might do."""
        body = pickle.dumps(decode_state(self.files[snapshot_id]), protocol=5)
        self.files[snapshot_id] = zlib.crc32(body).to_bytes(4, "big") + body

    # --- effects ----------------------------------------------------------------------------------------

    def advance_start(self, effect: AdvanceLogStart) -> None:
        assert effect.snapshot_id in self.files, "records were deleted that no snapshot covers"
        self.start = effect.snapshot_id
        self._delete_before(effect.snapshot_id)

    def append_chunk(self, effect: AppendSnapshotChunk) -> None:
        if effect.position == 0:
            self.fetched.clear()
        assert effect.position == len(self.fetched)
        self.fetched += effect.data
        self.pieces += 1

    def checked(self, effect: CheckSnapshot) -> SnapshotChecked:
        """The result of a check."""
        if zlib.crc32(self.fetched) != effect.checksum:
            return SnapshotChecked(effect.attempt, False)
        state = decode_state(bytes(self.fetched))
        sets = [batch.value for batch in state if isinstance(batch.value, VoterSet)]
        return SnapshotChecked(effect.attempt, True, sets[-1] if sets else None)

    def install(self, effect: InstallSnapshot) -> bool:
        """Replace the log by the fetched snapshot; False if the replica dies between the two halves."""
        self._replica.lower_mark(effect.snapshot_id.end_offset)
        self.files[effect.snapshot_id] = bytes(self.fetched)
        self.fetched.clear()
        if self.half_installed:
            self.half_installed = False
            return False
        self._take_the_place_of_the_log(effect.snapshot_id)
        self._replica.replace_mark(effect.snapshot_id.end_offset)
        self._delete_before(effect.snapshot_id)
        return True

    def respond(self, effect: ReplyWithSnapshot) -> FetchSnapshotResponse:
        """The response, with the piece that is asked for."""
        response = effect.response
        data = self.files.get(response.snapshot_id)
        if data is None:
            response = replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        elif response.position > len(data):
            response = replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE)
        else:
            piece = data[response.position : response.position + effect.max_bytes]
            checksum = zlib.crc32(data)
            response = replace(response, size_bytes=len(data), checksum=checksum, data=piece)
        return response

    def _take_the_place_of_the_log(self, snapshot_id: SnapshotId) -> None:
        self.start = snapshot_id
        self._replica.replace_log(decode_state(self.files[snapshot_id]))

    def _delete_before(self, snapshot_id: SnapshotId) -> None:
        self.files = {i: data for i, data in self.files.items() if i >= snapshot_id}
