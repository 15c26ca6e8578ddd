"""The effects that touch the disk, carried out on the log and the quorum-state file.

The real log must follow the core's outline of it exactly; every method asserts that it does. All of them
return once the effect has been applied; only :meth:`QuorumStorage.persist` and :meth:`QuorumStorage.truncate`
have also made it durable. Flushing the log is the driver's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import iter_headers, read_header
from pykraft.log_store.log import Log
from pykraft.quorum import control_records
from pykraft.quorum.effects import (
    AppendFetched,
    AppendLeaderChange,
    AppendProposal,
    PersistElectionState,
    ReplyWithRecords,
    TruncateTo,
)
from pykraft.quorum.log_shape import LogShape
from pykraft.quorum.messages import FetchResponse
from pykraft.quorum.roles import ElectionState
from pykraft.quorum.rpc import FetchedRecords
from pykraft.runtime.clock import Clock

DiskEffect = AppendFetched | AppendLeaderChange | AppendProposal | PersistElectionState | TruncateTo


class StateStore(Protocol):
    """Where the election state is kept; ``write`` returns once it is durable."""

    def read(self) -> ElectionState: ...

    def write(self, state: ElectionState) -> None: ...


def encode_proposal(values: Sequence[bytes], base_offset: int, epoch: int, now_ms: int) -> bytes:
    """One batch of one record a value. ``now_ms`` is the time of day."""
    records = [RecordInput(None, value, (), now_ms) for value in values]
    return encode_batch(records, base_offset=base_offset, leader_epoch=epoch)


class QuorumStorage:
    """``log`` is open and recovered."""

    def __init__(self, log: Log, state_store: StateStore, clock: Clock) -> None:
        self._log = log
        self._state_store = state_store
        self._clock = clock

    def read_election(self) -> ElectionState:
        return self._state_store.read()

    def outline(self) -> LogShape:
        """The log as the core is to know it."""
        entries = [(entry.epoch, entry.start_offset) for entry in self._log.epoch_cache.entries]
        return LogShape(self._log.log_end_offset, entries)

    def apply(self, effect: DiskEffect) -> None:
        match effect:
            case PersistElectionState(state):
                self._state_store.write(state)
            case AppendProposal(base_offset, end_offset, _, payload):
                assert isinstance(payload, bytes)
                self._append(payload, base_offset, end_offset)
            case AppendFetched(batches, payload):
                assert isinstance(payload, FetchedRecords)
                self._log.append(payload.data, payload.headers, now_ms=self._clock.wall_ms())
                assert batches[-1].end_offset == self._log.log_end_offset
            case AppendLeaderChange(offset):
                self._append(self._leader_change(effect), offset, offset + 1)
            case TruncateTo(end_offset):
                self._log.truncate_to(end_offset)
                self._log.flush()
                assert end_offset == self._log.log_end_offset

    def _append(self, batch: bytes, base_offset: int, end_offset: int) -> None:
        assert base_offset == self._log.log_end_offset
        self._log.append(batch, [read_header(batch)], now_ms=self._clock.wall_ms())
        assert end_offset == self._log.log_end_offset

    def _leader_change(self, effect: AppendLeaderChange) -> bytes:
        value = control_records.leader_change(effect.leader_id, effect.voters, effect.granting_voters)
        kind = control_records.ControlType.LEADER_CHANGE
        record = control_records.control_record(kind, value, self._clock.wall_ms())
        return encode_batch([record], base_offset=effect.offset, leader_epoch=effect.epoch, is_control=True)

    def with_records(self, effect: ReplyWithRecords) -> FetchResponse:
        """The answer to a fetch, with the whole batches that are there."""
        found = self._log.read(effect.start_offset, effect.max_bytes, end_offset=effect.end_offset)
        if found is None:
            return effect.response
        data = found.file.pread(found.position, found.size_bytes)
        end = 0
        for position, header in iter_headers(data):
            end = position + header.size_bytes
        return replace(effect.response, payload=data[:end])
