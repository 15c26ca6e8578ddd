"""Looking for the leader when the voters that a prospective knows refuse its pre-votes.

Its voter set may be out of date: it was away while it was removed, or while the others moved or were replaced
one by one, and the current leader does not know its address. So after each lost poll it asks one more node:
its leader at the address that others give, or a bootstrap server (KIP-853).

The question is a fetch of epoch 0. Every leader refuses it, so it does not count as a fetch of a majority;
the answer says which epoch the node is in, which replica leads, and where it listens.
"""

from __future__ import annotations

from pykraft.quorum.core.messages import FetchRequest, FetchResponse
from pykraft.quorum.core.roles import Prospective
from pykraft.quorum.core.state import CoreState
from pykraft.quorum.core.transitions import maybe_adopt_epoch
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.runtime.address import Address


def search_leader(state: CoreState, role: Prospective) -> None:
    """Ask one of the nodes that the poll does not reach."""
    targets = _targets(state, role)
    if targets:
        key, address = targets[state.rng.randrange(len(targets))]
        question = FetchRequest(state.cluster_id, state.local, 0, 0, 0, 0, 0, state.config.fetch_max_bytes)
        role.search_correlation = state.send(key, address, question)


def _targets(state: CoreState, role: Prospective) -> list[tuple[ReplicaKey, Address]]:
    asked = {voter.address for voter in state.voters} | {state.local_address}
    leader_id, leader_address = state.election.leader_id, role.leader_address
    servers = state.config.bootstrap_servers
    targets = []
    if leader_id is not None and leader_address is not None and leader_address not in asked:
        targets.append((ReplicaKey(leader_id), leader_address))
    targets += [(ReplicaKey(-1 - n), address) for n, address in enumerate(servers) if address not in asked]
    return targets


def handle_search_response(
    state: CoreState, role: Prospective, correlation_id: int, response: FetchResponse, now_ms: int
) -> None:
    if role.search_correlation == correlation_id:
        role.search_correlation = None
        maybe_adopt_epoch(state, response, now_ms)
