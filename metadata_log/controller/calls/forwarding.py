"""Clients' requests that brokers forward: one row for each, with its messages and its handler.

A row is all that brokers and the controllers' own listeners need to serve an API, besides its message table.
The decisions are in the module of the handler.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import field
from typing import Any, Final, Generic, Protocol, TypeVar

from pykraft.kafka_protocol.codec.pace import MAX_ITEMS, SLICE_BYTES
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.cluster import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pykraft.kafka_protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from pykraft.kafka_protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.controller.cluster_control import handle_unregister_broker
from pykraft.metadata_log.controller.config import ControllerConfig, Rng
from pykraft.metadata_log.controller.configs_control import (
    handle_alter_configs,
    handle_incremental_alter_configs,
)
from pykraft.metadata_log.controller.describe_quorum import build_describe_quorum_response
from pykraft.metadata_log.controller.elect_leaders import handle_elect_leaders
from pykraft.metadata_log.controller.features_control import handle_update_features
from pykraft.metadata_log.controller.raft_voters import (
    VoterQuorum,
    handle_add_raft_voter,
    handle_remove_raft_voter,
)
from pykraft.metadata_log.controller.result import ControllerResult, InSlices
from pykraft.metadata_log.controller.topics.create_partitions import handle_create_partitions
from pykraft.metadata_log.controller.topics.create_topics import handle_create_topics
from pykraft.metadata_log.controller.topics.delete_topics import handle_delete_topics
from pykraft.metadata_log.controller.topics.reassignments import (
    handle_alter_partition_reassignments,
    handle_list_partition_reassignments,
)
from pykraft.metadata_log.image import MetadataImage
from pykraft.quorum.core.voters import VoterSet
from pykraft.quorum.listener import QuorumDescription

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

LONGEST_WAIT_MS: Final = 30_000
_FEW_ITEMS: Final = 1000
"""The most for a request that is answered in one turn, and needs only a few."""

_SHORTEST_WAIT_MS: Final = 1000
"""A client with a timeout of 0 does not want to wait; the request is sent to the controller all the same."""


@dataclass(frozen=True, slots=True)
class Situation:
    """The state that a request is decided on."""

    image: MetadataImage
    config: ControllerConfig
    rng: Rng
    context: RequestContext
    voter_ids: Iterable[int]
    kraft_version: int
    upgrade_objection: Callable[[], str | None]
    """Why the quorum cannot upgrade ``kraft_version`` now; None if it can."""


class DescribedQuorum(VoterQuorum, Protocol):
    """The quorum, as far as clients may describe it and change its voters."""

    def describe(self, now_ms: int) -> QuorumDescription: ...

    @property
    def voters(self) -> VoterSet: ...


@dataclass(frozen=True, slots=True)
class QuorumSituation:
    """The state for a request that the quorum answers; ``wait_ms`` is how long the caller waits."""

    quorum: DescribedQuorum
    cluster_id: str
    listener_name: str
    wall_ms: int
    wait_ms: int


@dataclass(frozen=True, slots=True)
class Forwarded(Generic[Q, R]):
    """The messages of one forwarded API. ``max_items``: elements of all arrays of a request together."""

    request: type[Q]
    response: type[R]
    max_items: int = field(default=MAX_ITEMS, kw_only=True)

    def decode(self, body: bytes, version: int) -> Generator[None, None, Q]:
        """Decode in slices. UNSUPPORTED_VERSION; INVALID_REQUEST if it is malformed or has too many items."""
        if len(body) <= min(SLICE_BYTES, self.max_items):  # it has no room for more
            return self.request.decode_from(body, 0, version)[0]
        return (yield from self.request.decode_in_slices(body, version, self.max_items))


@dataclass(frozen=True, slots=True)
class Decided(Forwarded[Q, R]):
    """An API that is decided on the metadata."""

    decide: Callable[[Situation, Q], ControllerResult[R] | InSlices[R]]


@dataclass(frozen=True, slots=True)
class AskedOfQuorum(Forwarded[Q, R]):
    """An API that the quorum answers."""

    ask: Callable[[QuorumSituation, Q], Awaitable[R]]


async def _describe_quorum(at: QuorumSituation, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    description = at.quorum.describe(at.wall_ms)
    return build_describe_quorum_response(request, description, at.quorum.voters, at.listener_name)


_ROWS = (
    Decided(
        CreateTopicsRequest,
        CreateTopicsResponse,
        lambda at, request: handle_create_topics(at.image, at.config, at.rng, at.context, request),
    ),
    Decided(
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        lambda at, request: handle_delete_topics(at.image, at.config, request),
    ),
    Decided(
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        lambda at, request: handle_create_partitions(at.image, at.config, at.rng, request),
    ),
    Decided(
        AlterConfigsRequest,
        AlterConfigsResponse,
        lambda at, request: handle_alter_configs(at.image, at.config, request),
    ),
    Decided(
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
        lambda at, request: handle_incremental_alter_configs(at.image, at.config, request),
    ),
    Decided(
        ElectLeadersRequest,
        ElectLeadersResponse,
        lambda at, request: handle_elect_leaders(at.image, at.config, request),
    ),
    Decided(
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        lambda at, request: handle_alter_partition_reassignments(at.image, at.config, request),
    ),
    Decided(
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        lambda at, request: handle_list_partition_reassignments(at.image, request),
    ),
    Decided(
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
        lambda at, request: handle_update_features(
            at.image, at.voter_ids, at.kraft_version, at.upgrade_objection, at.config, request
        ),
        max_items=_FEW_ITEMS,
    ),
    Decided(
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
        lambda at, request: handle_unregister_broker(at.image, request),
    ),
    AskedOfQuorum(DescribeQuorumRequest, DescribeQuorumResponse, _describe_quorum, max_items=_FEW_ITEMS),
    AskedOfQuorum(
        AddRaftVoterRequest,
        AddRaftVoterResponse,
        lambda at, request: handle_add_raft_voter(
            at.quorum, at.cluster_id, at.listener_name, request, at.wait_ms
        ),
        max_items=_FEW_ITEMS,
    ),
    AskedOfQuorum(
        RemoveRaftVoterRequest,
        RemoveRaftVoterResponse,
        lambda at, request: handle_remove_raft_voter(at.quorum, at.cluster_id, request, at.wait_ms),
    ),
)

FORWARDED: Final[dict[int, Forwarded[Any, Any]]] = {row.request.API_KEY: row for row in _ROWS}
"""Every row, by the key of its API."""


def find_forwarded(api_key: int) -> Forwarded[Any, Any]:
    """The row of an API; UNSUPPORTED_VERSION if it is not served here."""
    row = FORWARDED.get(api_key)
    if row is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the controller does not serve API {api_key}")
    return row


def wait_ms(request: Message) -> int:
    """How long the client wants to wait for its response, within limits."""
    timeout_ms: int = getattr(request, "timeout_ms", LONGEST_WAIT_MS)
    return min(max(timeout_ms, _SHORTEST_WAIT_MS), LONGEST_WAIT_MS)
