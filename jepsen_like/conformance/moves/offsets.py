"""Moves that commit, fetch and delete offsets, and those of an administrator."""

from pykraft.jepsen_like.conformance.draw import ADMIN, Draw
from pykraft.jepsen_like.conformance.script import GroupId, blank
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
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
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

_MULTIPLE_GROUPS_VERSION = 8
_MAX_METADATA = 4096


def commit(draw: Draw, actor: int) -> None:
    """By a member, by a former member, or by nobody in particular."""
    anonymous = draw.rarely(4)
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            topic_id=draw.topic_id(name),
            partitions=[_committed(draw, index) for index in {draw.partition(name) for _ in range(2)}],
        )
        for name in dict.fromkeys(draw.topic() for _ in range(draw.some((4, 1), (2, 2), (1, 0))))
    ]
    draw.add(
        actor,
        draw.version(OffsetCommitRequest),
        OffsetCommitRequest(
            group_id=draw.group(),
            generation_id_or_member_epoch=-1 if anonymous else draw.epoch(actor),
            member_id="" if anonymous else draw.member(actor),
            group_instance_id=None if anonymous else draw.instance(actor),
            retention_time_ms=draw.some((3, -1), (1, 3_600_000)),
            topics=topics,
        ),
    )


def _committed(draw: Draw, index: int) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=draw.some((8, draw.rng.randrange(100)), (1, -1), (1, -5)),
        committed_leader_epoch=draw.some((2, -1), (1, 0), (1, 5)),
        committed_metadata=draw.some(
            (4, "note"), (2, None), (2, ""), (1, "x" * _MAX_METADATA), (1, "x" * (_MAX_METADATA + 1))
        ),
    )


def fetch(draw: Draw, actor: int) -> None:
    version = draw.version(OffsetFetchRequest)
    request = OffsetFetchRequest(require_stable=draw.rarely(3))
    names = sorted({draw.topic() for _ in range(2)})
    partitions = {name: sorted({draw.partition(name) for _ in range(2)}) for name in names}
    everything = draw.rarely(3)
    if version < _MULTIPLE_GROUPS_VERSION:
        request.group_id = draw.group()
        request.topics = (
            None
            if everything
            else [OffsetFetchRequestTopic(name=name, partition_indexes=partitions[name]) for name in names]
        )
    else:
        as_member = draw.rarely(3)
        # Not one group twice: the answers would be compared in any order.
        group_ids = dict.fromkeys(draw.group() for _ in range(draw.some((4, 1), (1, 2), (1, 0))))
        request.groups = [
            OffsetFetchRequestGroup(
                group_id=group_id,
                member_id=draw.member(actor) if as_member else None,
                member_epoch=draw.epoch(actor) if as_member else draw.some((8, -1), (1, 0), (1, 3)),
                topics=None
                if everything
                else [
                    OffsetFetchRequestTopics(
                        name=name, topic_id=draw.topic_id(name), partition_indexes=partitions[name]
                    )
                    for name in names
                ],
            )
            for group_id in group_ids
        ]
    draw.add(actor, version, request)


def delete_offsets(draw: Draw) -> None:
    if not draw.serves(OffsetDeleteRequest):
        return
    names = sorted({draw.topic() for _ in range(2)})
    request = OffsetDeleteRequest(
        group_id=draw.group(),
        topics=[
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=index)
                    for index in sorted({draw.partition(name) for _ in range(2)})
                ],
            )
            for name in names
        ],
    )
    draw.add(ADMIN, draw.version(OffsetDeleteRequest), request)


def list_groups(draw: Draw) -> None:
    states = (
        "Empty",
        "empty",
        "Stable",
        "PreparingRebalance",
        "CompletingRebalance",
        "Assigning",
        "Dead",
        "Odd",
        "",
    )
    types = ("consumer", "Classic", "odd", "share", "")
    request = ListGroupsRequest(
        states_filter=draw.rng.sample(states, draw.some((2, 0), (2, 1), (1, 2))),
        types_filter=draw.rng.sample(types, draw.some((4, 0), (1, 1), (1, 2))),
    )
    draw.add(ADMIN, draw.version(ListGroupsRequest), request)


def describe(draw: Draw) -> None:
    groups = [draw.group() for _ in range(draw.some((4, 1), (1, 2), (1, 0)))]
    with_operations = draw.rarely(3)
    if draw.rarely(3):
        consumer = ConsumerGroupDescribeRequest(
            group_ids=groups, include_authorized_operations=with_operations
        )
        draw.add(ADMIN, draw.version(ConsumerGroupDescribeRequest), consumer)
    else:
        classic = DescribeGroupsRequest(groups=groups, include_authorized_operations=with_operations)
        draw.add(ADMIN, draw.version(DescribeGroupsRequest), classic)


def delete_groups(draw: Draw) -> None:
    request = DeleteGroupsRequest(
        groups_names=[draw.group() for _ in range(draw.some((4, 1), (1, 2), (1, 0)))]
    )
    draw.add(ADMIN, draw.version(DeleteGroupsRequest), request)


def look_at_everything(draw: Draw) -> None:
    """The end of each script: the state that it has left."""
    names = [blank(GroupId("g")), blank(GroupId("other"))]
    highest = {key: versions[1] for key, versions in draw.versions.items()}
    for request in (
        DescribeGroupsRequest(groups=names, include_authorized_operations=True),
        ConsumerGroupDescribeRequest(group_ids=names, include_authorized_operations=True),
        ListGroupsRequest(),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]),
    ):
        draw.add(ADMIN, min(highest[request.API_KEY], request.MAX_VERSION), request)
