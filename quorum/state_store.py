"""The quorum-state file: epoch, leader and vote, in Kafka's JSON (version 1, with the voted directory id).

Written whole and atomically; durable when ``write`` returns. A missing file means a replica that has never
been in an epoch. A file that does not parse is never treated as missing: a forgotten vote can elect two
leaders.
"""

from __future__ import annotations

import json
from typing import Any

from pykraft.kafka_protocol.ids import ZERO_UUID, uuid_from_str, uuid_to_str
from pykraft.quorum.core.plausibility import MAX_EPOCH
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.runtime.disk import Disk

QUORUM_STATE_FILE = "quorum-state"


class QuorumStateError(Exception):
    """The quorum-state file is damaged or implausible."""


class QuorumStateStore:
    """Reads and writes ``<directory>/quorum-state``."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{QUORUM_STATE_FILE}"

    def read(self) -> ElectionState:
        """:class:`QuorumStateError` naming the file if it is damaged."""
        try:
            data = self._disk.read(self.path)
        except FileNotFoundError:
            return ElectionState()
        try:
            return decode_quorum_state(data)
        except (ValueError, KeyError, TypeError) as error:
            raise QuorumStateError(
                f"{self.path} is corrupt ({error}). It may have held a vote, so this replica must not start. "
                "Restore the file from a copy, or format the metadata directory again"
            ) from error

    def write(self, state: ElectionState) -> None:
        self._disk.write_atomic(self.path, encode_quorum_state(state))


def encode_quorum_state(state: ElectionState) -> bytes:
    content = {
        "leaderId": -1 if state.leader_id is None else state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": -1 if state.voted is None else state.voted.id,
        "votedDirectoryId": uuid_to_str(ZERO_UUID if state.voted is None else state.voted.directory_id),
        "data_version": 1,
    }
    return json.dumps(content, separators=(",", ":")).encode("ascii")


def decode_quorum_state(data: bytes) -> ElectionState:
    """Versions 0 (no directory ids) and 1. :class:`ValueError` or :class:`KeyError` for anything else."""
    content: dict[str, Any] = json.loads(data)
    if not isinstance(content, dict) or content["data_version"] not in (0, 1):
        raise ValueError("data_version is not 0 or 1")
    epoch, leader_id, voted_id = content["leaderEpoch"], content["leaderId"], content["votedId"]
    if not all(type(number) is int for number in (epoch, leader_id, voted_id)) or epoch < 0:
        raise ValueError("leaderEpoch, leaderId and votedId must be whole numbers, the epoch not negative")
    if epoch >= MAX_EPOCH:
        raise ValueError(
            f"leaderEpoch is {epoch}, and no election can follow epoch {MAX_EPOCH}; no series of elections"
            " gets there, but a foreign client of the controllers' listener can"
        )
    directory_id = ZERO_UUID
    if content["data_version"] == 1:
        directory_id = uuid_from_str(content["votedDirectoryId"])
    return ElectionState(
        epoch,
        None if leader_id < 0 else leader_id,
        None if voted_id < 0 else ReplicaKey(voted_id, directory_id),
    )
