"""Changes of the metadata quorum's voters (KIP-853).

A change is requested once and not retried: if its answer is lost, the change may have been made, and a second
request would then be refused. Describe the quorum before trying again.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.kafka_client.admin.operations import Operations
from pykraft.kafka_client.errors import check
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import AddRaftVoterRequest, Listener, RemoveRaftVoterRequest
from pykraft.runtime.address import Address


class VoterOperations(Operations):
    async def add_raft_voter(
        self,
        voter_id: int,
        directory_id: Uuid,
        endpoints: Mapping[str, Address],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Make a controller a voter of the metadata quorum; ``endpoints`` are its listeners by name."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=cluster.request_deadline(deadline_ms) - cluster.network.now_ms(),
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[Listener(name=name, host=at.host, port=at.port) for name, at in endpoints.items()],
        )
        response = await cluster.ask_any(request, deadline_ms)
        check(response.error_code, response.error_message, "AddRaftVoter")

    async def remove_raft_voter(
        self, voter_id: int, directory_id: Uuid, *, timeout_ms: int | None = None
    ) -> None:
        """Make a voter an observer."""
        cluster, deadline_ms = self.cluster, self.cluster.deadline(timeout_ms)
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id)
        response = await cluster.ask_any(request, deadline_ms)
        check(response.error_code, response.error_message, "RemoveRaftVoter")
