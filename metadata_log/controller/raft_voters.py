"""AddRaftVoter and RemoveRaftVoter: clients' requests to change the metadata quorum itself (KIP-853).

The request is validated here; whether the change can be made is the quorum's decision.
"""

from __future__ import annotations

from typing import Protocol

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.cluster import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from pykraft.quorum.core.voters import ReplicaKey, Voter
from pykraft.runtime.address import Address


class VoterQuorum(Protocol):
    """The quorum, as far as its voters can be changed."""

    async def add_voter(self, voter: Voter, timeout_ms: int, *, ack_when_committed: bool = True) -> None: ...

    async def remove_voter(self, key: ReplicaKey, timeout_ms: int) -> None: ...


async def handle_add_raft_voter(
    quorum: VoterQuorum, cluster_id: str, listener_name: str, request: AddRaftVoterRequest, timeout_ms: int
) -> AddRaftVoterResponse:
    """``timeout_ms``: how long the node that forwarded the request waits for the response.

    :class:`KafkaError`: INVALID_REQUEST unless the voter is named in full, or the quorum's error.
    """
    _check_cluster(cluster_id, request.cluster_id)
    key = _key(request.voter_id, request.voter_directory_id)
    found = next((at for at in request.listeners if at.name == listener_name), None)
    if found is None or not found.host or found.port == 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the new voter needs a host and a port for listener {listener_name}"
        )
    voter = Voter(key, Address(found.host, found.port))
    wait_ms = min(request.timeout_ms, _ahead_of(timeout_ms))
    await quorum.add_voter(voter, wait_ms, ack_when_committed=request.ack_when_committed)
    return AddRaftVoterResponse(error_message=None)


async def handle_remove_raft_voter(
    quorum: VoterQuorum, cluster_id: str, request: RemoveRaftVoterRequest, timeout_ms: int
) -> RemoveRaftVoterResponse:
    """As :func:`handle_add_raft_voter`."""
    _check_cluster(cluster_id, request.cluster_id)
    key = _key(request.voter_id, request.voter_directory_id)
    await quorum.remove_voter(key, _ahead_of(timeout_ms))
    return RemoveRaftVoterResponse(error_message=None)


def _ahead_of(timeout_ms: int) -> int:
    """A shorter time, so that the quorum's error arrives before the waiting node times out."""
    return timeout_ms * 9 // 10


def _check_cluster(expected: str, given: str | None) -> None:
    if given is not None and given != expected:
        raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {expected}, not {given}")


def _key(node_id: int, directory_id: Uuid) -> ReplicaKey:
    if node_id < 0 or directory_id == ZERO_UUID:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a voter needs a node id and a directory id")
    return ReplicaKey(node_id, directory_id)
