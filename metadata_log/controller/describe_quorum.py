"""DescribeQuorum: the quorum's own view of its voters and observers, in Kafka's words."""

from __future__ import annotations

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import ZERO_UUID
from pykraft.kafka_protocol.messages.cluster import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from pykraft.metadata_log.controller.topics.topic_names import METADATA_TOPIC_NAME
from pykraft.quorum.core.voters import VoterSet
from pykraft.quorum.listener import QuorumDescription, ReplicaProgress


def build_describe_quorum_response(
    request: DescribeQuorumRequest, description: QuorumDescription, voters: VoterSet, listener_name: str
) -> DescribeQuorumResponse:
    """Only partition 0 of the metadata log has a quorum. As in Kafka, a request that does not name exactly
    this partition gets UNKNOWN_TOPIC_OR_PARTITION for each that it names.
    """
    named = [(topic.topic_name, [it.partition_index for it in topic.partitions]) for topic in request.topics]
    is_known = named == [(METADATA_TOPIC_NAME, [0])]
    topics = [
        DescribeQuorumResponseTopicData(
            topic_name=topic.topic_name,
            partitions=[
                _describe(description, voters) if is_known else _unknown(partition.partition_index)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    nodes = [
        Node(
            node_id=voter.key.id,
            listeners=[Listener(name=listener_name, host=voter.address.host, port=voter.address.port)],
        )
        for voter in voters
    ]
    return DescribeQuorumResponse(error_message=None, topics=topics, nodes=nodes)


def _describe(description: QuorumDescription, voters: VoterSet) -> DescribeQuorumResponsePartitionData:
    current_voters = [_state(replica) for replica in description.voters]
    if voters.kraft_version == 0:
        for state in current_voters:  # such voters have an id only
            state.replica_directory_id = ZERO_UUID
    return DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_message=None,
        leader_id=-1 if description.leader_id is None else description.leader_id,
        leader_epoch=description.leader_epoch,
        high_watermark=description.high_watermark,
        current_voters=current_voters,
        observers=[_state(replica) for replica in description.observers],
    )


def _unknown(index: int) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="only partition 0 of the metadata log, named alone, has a quorum",
        leader_id=-1,
        leader_epoch=-1,
        high_watermark=-1,
    )


def _state(replica: ReplicaProgress) -> ReplicaState:
    return ReplicaState(
        replica_id=replica.key.id,
        replica_directory_id=replica.key.directory_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_timestamp=replica.last_fetch_ms,
        last_caught_up_timestamp=replica.last_caught_up_ms,
    )
