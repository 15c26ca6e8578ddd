"""Carries ISR proposals of this broker's partitions to the active controller."""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.broker.controller_channel import ControllerChannel
from pykraft.broker.lifecycle import BrokerLifecycle
from pykraft.broker.ports import AlterPartitionAnswer
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.pb import controller_pb2 as pb

_TIMEOUT_MS = 3000


class ControllerAlterPartition:
    """The :class:`~pykraft.broker.ports.AlterPartitionPort` over the controller channel."""

    def __init__(self, node_id: int, lifecycle: BrokerLifecycle, channel: ControllerChannel) -> None:
        self._node_id = node_id
        self._lifecycle = lifecycle
        self._channel = channel

    async def alter_partition(
        self,
        topic_id: Uuid,
        index: int,
        leader_epoch: int,
        partition_epoch: int,
        new_isr: Sequence[tuple[int, int]],
    ) -> AlterPartitionAnswer:
        proposal = pb.AlterPartitionPartition(
            index=index,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            new_isr=[
                pb.IsrMember(broker_id=broker_id, broker_epoch=broker_epoch)
                for broker_id, broker_epoch in new_isr
            ],
        )
        response = await self._channel.call(
            "AlterPartition",
            pb.AlterPartitionRequest(
                broker_id=self._node_id,
                broker_epoch=self._lifecycle.epoch,
                topics=[pb.AlterPartitionTopic(topic_id=topic_id, partitions=[proposal])],
            ),
            pb.AlterPartitionResponse.FromString,
            _TIMEOUT_MS,
        )
        result = response.topics[0].partitions[0]
        return AlterPartitionAnswer(
            error=ErrorCode(result.error_code),
            leader=result.leader,
            leader_epoch=result.leader_epoch,
            isr=tuple(result.isr),
            elr=tuple(result.eligible_leader_replicas),
            partition_epoch=result.partition_epoch,
        )
