"""Changes of the metadata quorum's voters (KIP-853).

A change is requested once and not retried: if its answer is lost, the change may have been made, and a second
request would then be refused. Describe the quorum before trying again.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.kafka_client.admin.cluster import check
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import AddRaftVoterRequest, Listener, RemoveRaftVoterRequest
from pykraft.runtime.address import Address


async def add_raft_voter(
    cluster: Cluster,
    voter_id: int,
    directory_id: Uuid,
    endpoints: Mapping[str, Address],
    deadline_ms: int,
) -> None:
    """Make a controller that follows the quorum a voter. ``endpoints``: its listeners by name."""
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=cluster.request_deadline(deadline_ms) - cluster.network.now_ms(),
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=[Listener(name=name, host=at.host, port=at.port) for name, at in endpoints.items()],
    )
    response = await cluster.ask_any(request, deadline_ms)
    check(response.error_code, response.error_message, "AddRaftVoter")


async def remove_raft_voter(cluster: Cluster, voter_id: int, directory_id: Uuid, deadline_ms: int) -> None:
    """Make a voter an observer."""
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id)
    response = await cluster.ask_any(request, deadline_ms)
    check(response.error_code, response.error_message, "RemoveRaftVoter")
