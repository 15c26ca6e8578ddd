"""Sends ISR proposals of this broker's partitions, reports of lost replicas, and the directories of replicas
to the active controller.
"""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.broker.membership.lifecycle import BrokerLifecycle
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.calls.requests import (
    LostReplica,
    LostReplicaResult,
    PartitionIsrChange,
    PartitionIsrResult,
    ReplicaDirectory,
)
from pykraft.metadata_log.pb import controller_pb2 as pb

_TIMEOUT_MS = 3000


class ControllerReports:
    """``AlterPartitionPort``, ``LostReplicasPort`` and ``DirectoriesPort`` over the controller channel."""

    def __init__(self, node_id: int, lifecycle: BrokerLifecycle, channel: ControllerChannel) -> None:
        self._node_id = node_id
        self._lifecycle = lifecycle
        self._channel = channel

    async def alter_partitions(self, changes: Sequence[PartitionIsrChange]) -> list[PartitionIsrResult]:
        response = await self._channel.call(
            "AlterPartition",
            self._request(changes),
            pb.AlterPartitionResponse.FromString,
            _TIMEOUT_MS,
        )
        results = {
            (Uuid(topic.topic_id), partition.index): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        return [_result(change, results.get((change.topic_id, change.index))) for change in changes]

    def _request(self, changes: Sequence[PartitionIsrChange]) -> pb.AlterPartitionRequest:
        topics: dict[Uuid, pb.AlterPartitionTopic] = {}
        for change in changes:
            topic = topics.get(change.topic_id)
            if topic is None:
                topic = topics[change.topic_id] = pb.AlterPartitionTopic(topic_id=change.topic_id)
            topic.partitions.append(
                pb.AlterPartitionPartition(
                    index=change.index,
                    leader_epoch=change.leader_epoch,
                    partition_epoch=change.partition_epoch,
                    new_isr=[
                        pb.IsrMember(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                        for member in change.new_isr
                    ],
                )
            )
        return pb.AlterPartitionRequest(
            broker_id=self._node_id, broker_epoch=self._lifecycle.epoch, topics=list(topics.values())
        )

    async def report_lost_replicas(self, replicas: Sequence[LostReplica]) -> list[LostReplicaResult]:
        response = await self._channel.call(
            "ReportLostReplicas",
            pb.ReportLostReplicasRequest(
                broker_id=self._node_id,
                broker_epoch=self._lifecycle.epoch,
                partitions=[
                    pb.LostReplica(topic_id=lost.topic_id, index=lost.index, leader_epoch=lost.leader_epoch)
                    for lost in replicas
                ],
            ),
            pb.ReportLostReplicasResponse.FromString,
            _TIMEOUT_MS,
        )
        return [
            LostReplicaResult(
                topic_id=Uuid(result.topic_id),
                index=result.index,
                error=ErrorCode(result.error_code),
                partition_epoch=result.partition_epoch,
            )
            for result in response.partitions
        ]

    async def assign_replicas_to_dirs(self, replicas: Sequence[ReplicaDirectory]) -> list[ErrorCode]:
        response = await self._channel.call(
            "AssignReplicasToDirs",
            pb.AssignReplicasToDirsRequest(
                broker_id=self._node_id,
                broker_epoch=self._lifecycle.epoch,
                assignments=[
                    pb.ReplicaDirectory(topic_id=it.topic_id, index=it.index, directory_id=it.directory)
                    for it in replicas
                ],
            ),
            pb.AssignReplicasToDirsResponse.FromString,
            _TIMEOUT_MS,
        )
        return [ErrorCode(error) for error in response.errors]


def _result(
    change: PartitionIsrChange, answered: pb.AlterPartitionPartitionResult | None
) -> PartitionIsrResult:
    if answered is None:  # its outcome is unknown
        return PartitionIsrResult(change.topic_id, change.index, ErrorCode.UNKNOWN_SERVER_ERROR)
    return PartitionIsrResult(
        change.topic_id,
        change.index,
        error=ErrorCode(answered.error_code),
        leader=answered.leader,
        leader_epoch=answered.leader_epoch,
        isr=tuple(answered.isr),
        elr=tuple(answered.eligible_leader_replicas),
        partition_epoch=answered.partition_epoch,
    )
