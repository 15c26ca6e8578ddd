"""A script of raw requests about groups, for any broker: members of every kind, then an administrator.

The answers are plain values in which ids that a broker chooses are masked, so that those of two brokers can
be compared.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from pykraft.kafka_protocol.codec.schema import Message, Request
from pykraft.kafka_protocol.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    encode_assignment,
    encode_subscription,
)
from pykraft.kafka_protocol.headers import encode_request
from pykraft.kafka_protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from pykraft.kafka_protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from pykraft.kafka_protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from pykraft.runtime.address import Address
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from pykraft.testing.processes.wire_client import WireClient, decode_answer

SUBSCRIBED: Final = encode_subscription(ConsumerProtocolSubscription(topics=["t"]), 1)
ASSIGNED: Final = encode_assignment(
    ConsumerProtocolAssignment(
        assigned_partitions=[AssignmentTopicPartition(topic="t", partitions=[1, 0])], user_data=b""
    )
)
MEMBERS: Final = {
    "classic": ("consumer", SUBSCRIBED),
    "connect": ("connect", b"any bytes"),
    "opaque": ("consumer", b"\0"),
    "static": ("consumer", SUBSCRIBED),
    "left": ("consumer", SUBSCRIBED),
}
"""Classic groups of one member each: their protocol types, and what the member joins with."""

NAMES: Final = (*MEMBERS, "consumer", "emptied", "pending", "simple", "nobody")
_MASKED: Final = frozenset(
    {"member_id", "topic_id", "authorized_operations", "group_epoch", "assignment_epoch", "member_epoch"}
)
"""What brokers choose: the first epoch of a group is 1 here and 2 in Kafka."""

Topics = Sequence[tuple[str, Sequence[int]]]
M = TypeVar("M", bound=Message)


class GroupScript:
    """Its groups all exist once :meth:`prepare` has returned."""

    def __init__(self, address: Address) -> None:
        self._client = WireClient(address)
        self._address = address

    @property
    def bootstrap_servers(self) -> str:
        return f"{self._address.host}:{self._address.port}"

    def close(self) -> None:
        self._client.close()

    def call(self, request: Request[M], version: int) -> M:
        return self._client.call(request, version)

    def prepare(self) -> None:
        topics = [
            CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in (("t", 2), ("u", 2))
        ]
        self.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
        wait_until("the topics and the coordinator are there", self._ready, PATIENCE_S)
        self.commit("simple", [("t", (0, 1)), ("u", (0,))])
        joined = self._join()
        epoch = self._beat("consumer", 0).member_epoch
        self._beat("emptied", 0)
        self._beat("emptied", -1)
        self.commit("emptied", [("t", (0,))])
        for group_id, (member, generation) in joined.items():
            self.commit(group_id, [("t", (0,)), ("u", (0,))], member, generation)
        self.commit("consumer", [("t", (0,)), ("u", (0,))], "member-of-consumer", epoch)
        leave = LeaveGroupRequest(group_id="left", members=[MemberIdentity(member_id=joined["left"][0])])
        assert self.call(leave, 4).error_code == 0
        pending = self.call(_join_request("pending", "consumer", SUBSCRIBED), 5)
        assert pending.error_code == 79, "the member has an id, and has yet to join"

    def commit(self, group_id: str, topics: Topics, member_id: str = "", generation: int = -1) -> None:
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=i, committed_offset=i + 1, committed_metadata=""
                        )
                        for i in indexes
                    ],
                )
                for name, indexes in topics
            ],
        )
        answer = self.call(request, 9)
        assert {p.error_code for t in answer.topics for p in t.partitions} == {0}, answer

    def delete_offsets(self, group_id: str, topics: Topics) -> object:
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in indexes]
                )
                for name, indexes in topics
            ],
        )
        return _masked(self.call(request, 0))

    def offsets(self, group_id: str) -> dict[tuple[str, int], int]:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        (group,) = self.call(request, 9).groups
        return {(t.name, p.partition_index): p.committed_offset for t in group.topics for p in t.partitions}

    def list_groups(self, version: int, states: Sequence[str] = (), types: Sequence[str] = ()) -> object:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        answer = self.call(request, version)
        return sorted((_masked(group) for group in answer.groups), key=str), answer.error_code

    def describe_classic(self, version: int, names: Sequence[str] = (*NAMES, "")) -> object:
        answer = self.call(DescribeGroupsRequest(groups=list(names)), version)
        return sorted((_masked(group) for group in answer.groups), key=str)

    def describe_consumer(self, names: Sequence[str] = (*NAMES, "")) -> object:
        request = ConsumerGroupDescribeRequest(group_ids=list(names))
        answer = self.call(request, 1)
        return sorted((_masked(group) for group in answer.groups), key=str)

    def delete_groups(self, names: Sequence[str]) -> object:
        answer = self.call(DeleteGroupsRequest(groups_names=list(names)), 2)
        return sorted((result.group_id, result.error_code) for result in answer.results)

    def _ready(self) -> bool:
        wanted = [MetadataRequestTopic(name=name) for name in ("t", "u")]
        found = self.call(MetadataRequest(topics=wanted), 9)
        if any(topic.error_code or not topic.partitions for topic in found.topics):
            return False
        asked = FindCoordinatorRequest(coordinator_keys=list(NAMES))
        answer = self.call(asked, 4)
        if any(coordinator.error_code for coordinator in answer.coordinators):
            return False
        described = self.call(DescribeGroupsRequest(groups=list(NAMES)), 5)
        return not any(group.error_code for group in described.groups)

    def _join(self) -> dict[str, tuple[str, int]]:
        """One member for each classic group, all at the same time: member id and generation."""
        clients = {group_id: WireClient(self._address) for group_id in MEMBERS}
        joined = {}
        for group_id, (protocol_type, metadata) in MEMBERS.items():
            request = _join_request(group_id, protocol_type, metadata)
            request.group_instance_id = "instance" if group_id == "static" else None
            clients[group_id].send_frame(encode_request(request, _join_version(group_id), 7, "test"))
        for group_id, client in clients.items():
            frame = client.receive()
            assert frame is not None
            answer = decode_answer(JoinGroupResponse, _join_version(group_id), frame)
            assert answer.error_code == 0
            joined[group_id] = (answer.member_id, answer.generation_id)
            sync = SyncGroupRequest(
                group_id=group_id,
                generation_id=answer.generation_id,
                member_id=answer.member_id,
                assignments=[SyncGroupRequestAssignment(member_id=answer.member_id, assignment=ASSIGNED)],
            )
            assert client.call(sync, 3).error_code == 0
            client.close()
        return joined

    def _beat(self, group_id: str, epoch: int) -> ConsumerGroupHeartbeatResponse:
        member_id = f"member-of-{group_id}"
        request = ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch)
        if epoch == 0:
            request.rebalance_timeout_ms, request.topic_partitions = 60_000, []
            request.subscribed_topic_names = ["t"]
        answer = self.call(request, 1)
        assert answer.error_code == 0, answer
        return answer


def _join_version(group_id: str) -> int:
    """The first with instance ids for the group that has one, else the last that needs no second join."""
    return 5 if group_id == "static" else 3


def _join_request(group_id: str, protocol_type: str, metadata: bytes) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=600_000,
        rebalance_timeout_ms=60_000,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def _masked(value: Any) -> Any:
    """A message as plain values, without what a broker chooses by itself."""
    if isinstance(value, list):
        return [_masked(item) for item in value]
    if not hasattr(value, "__slots__") or isinstance(value, int):
        return value
    return {name: _masked(getattr(value, name)) for name in value.__slots__ if name not in _MASKED}
