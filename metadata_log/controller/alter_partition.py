"""AlterPartition: the leader of a partition changes its ISR (KIP-497, KIP-841, KIP-903).

The two epochs in the request identify the state that the leader saw; only a request about the current state
is accepted. A change of the ISR raises the partition epoch; it raises the leader epoch only if it completes a
reassignment. A request may name many partitions; the driver decides on some at a time.
"""

from __future__ import annotations

from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.calls.requests import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrMember,
    PartitionIsrChange,
    PartitionIsrResult,
)
from pykraft.metadata_log.controller.cluster_control import check_broker_epoch
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.elections import Elections, PartitionChangeBuilder
from pykraft.metadata_log.controller.requested_partitions import RequestedPartitions
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.image import UNKNOWN_DIRECTORIES, MetadataImage, PartitionRegistration
from pykraft.metadata_log.records import Record
from pykraft.metadata_log.replay import apply_change

MAX_PARTITIONS_PER_REQUEST: Final = 500
"""The most partitions that a broker puts into one request; more is INVALID_REQUEST."""
MAX_ISR_MEMBERS_PER_REQUEST: Final = 25_000
"""Fifty for each of them; more is INVALID_REQUEST."""


def handle_alter_partition(
    image: MetadataImage, config: ControllerConfig, request: AlterPartitionRequest
) -> ControllerResult[AlterPartitionResponse]:
    """Each partition succeeds or fails alone; STALE_BROKER_EPOCH for all if another process has the id."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    elections = Elections(image, config)
    records: list[Record] = []
    results = []
    requested = RequestedPartitions(image)
    builders: dict[Uuid, PartitionChangeBuilder] = {}
    for change in request.partitions:
        error = requested.check(change.topic_id, change.index)
        if error is ErrorCode.NONE:
            partition = image.topics_by_id[change.topic_id].partitions[change.index]
            error = _check(image, request.broker_id, partition, change)
        if error is not ErrorCode.NONE:
            results.append(PartitionIsrResult(change.topic_id, change.index, error))
            continue
        builder = builders.get(change.topic_id)
        if builder is None:
            topic = image.topics_by_id[change.topic_id]
            builder = builders[change.topic_id] = elections.builder(topic.name)
        record = builder.build(
            change.topic_id,
            change.index,
            partition,
            isr=tuple(member.broker_id for member in change.new_isr),
        )
        if record is not None:
            records.append(record)
            partition = apply_change(partition, record)
        results.append(_result(change, request.broker_id, partition))
    return ControllerResult(tuple(records), AlterPartitionResponse(tuple(results)))


def _result(change: PartitionIsrChange, sender: int, partition: PartitionRegistration) -> PartitionIsrResult:
    if partition.leader != sender:
        # The change completed a reassignment, and the sender is no longer a replica (KIP-455).
        return PartitionIsrResult(change.topic_id, change.index, ErrorCode.NEW_LEADER_ELECTED)
    return PartitionIsrResult(
        change.topic_id,
        change.index,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        elr=partition.elr,
        partition_epoch=partition.partition_epoch,
    )


def _check(
    image: MetadataImage, broker_id: int, partition: PartitionRegistration, change: PartitionIsrChange
) -> ErrorCode:
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        # The leader has seen a later state than this controller: a newer controller must be active.
        return ErrorCode.NOT_CONTROLLER
    if change.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != broker_id:
        return ErrorCode.INVALID_REQUEST
    if change.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    ids = [member.broker_id for member in change.new_isr]
    if broker_id not in ids or len(set(ids)) != len(ids) or not set(ids) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, partition, member) for member in change.new_isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(image: MetadataImage, partition: PartitionRegistration, member: IsrMember) -> bool:
    """Whether the member is registered, active, and still the process that the leader means (KIP-903), and
    the directory of its replica works.

    The leader may leave the process open (-1) only for a current ISR member, which may not have fetched from
    it yet. If that member had restarted, the partition epoch would have changed.
    """
    broker = image.brokers.get(member.broker_id)
    if broker is None or not broker.is_active:
        return False
    if partition.directory(broker.id) not in UNKNOWN_DIRECTORIES.union(broker.online_log_dirs):
        return False
    if member.broker_epoch == -1:
        return member.broker_id in partition.isr
    return member.broker_epoch == broker.epoch
