"""ReportLostReplicas: a broker reports that logs of its own are damaged.

A replica without its log must not lead, and no record counts as stored by it, before it has copied everything
again: it leaves ISR and ELR (:mod:`.elections`), whether it leads or follows. The new leader epoch
invalidates what it fetched with the old log: fetches under way, and proposals of the leader that are based on
them. The broker starts over only when it has applied that record.

A report may arrive twice, the second time when the replica has long been copied again and perhaps leads. It
is then invalid like those fetches, because its leader epoch is the one before the loss. The leader epoch is
the right test: every change that makes a replica start over raises it, while an ISR change, which does not,
raises the partition epoch alone. A report that is refused because of an election in between is sent again.
"""

from __future__ import annotations

from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.metadata_log.controller.calls.requests import (
    LostReplica,
    LostReplicaResult,
    ReportLostReplicasRequest,
    ReportLostReplicasResponse,
)
from pykraft.metadata_log.controller.cluster_control import check_broker_epoch
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.elections import Elections
from pykraft.metadata_log.controller.requested_partitions import RequestedPartitions
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.image import MetadataImage, PartitionRegistration
from pykraft.metadata_log.records import Record

MAX_LOST_PER_REQUEST: Final = 2250
"""Brokers report fewer at a time; more is INVALID_REQUEST."""


def handle_report_lost_replicas(
    image: MetadataImage, config: ControllerConfig, request: ReportLostReplicasRequest
) -> ControllerResult[ReportLostReplicasResponse]:
    """Each partition succeeds or fails alone; STALE_BROKER_EPOCH for all if another process has the id."""
    broker_id = check_broker_epoch(image, request.broker_id, request.broker_epoch).id
    elections = Elections(image, config)
    records: list[Record] = []
    results = []
    requested = RequestedPartitions(image)
    for lost in request.partitions:
        topic_id, index = lost.topic_id, lost.index
        error = requested.check_replica(broker_id, topic_id, index)
        if error is ErrorCode.NONE:
            topic = image.topics_by_id[topic_id]
            partition = topic.partitions[index]
            error = _check_epoch(partition, lost)
        if error is not ErrorCode.NONE:
            results.append(LostReplicaResult(topic_id, index, error))
            continue
        record = elections.builder(topic.name).build(topic_id, index, partition, lost=broker_id)
        assert record is not None, "a loss always raises the epochs"
        records.append(record)
        results.append(LostReplicaResult(topic_id, index, partition_epoch=partition.partition_epoch + 1))
    return ControllerResult(tuple(records), ReportLostReplicasResponse(tuple(results)))


def _check_epoch(partition: PartitionRegistration, lost: LostReplica) -> ErrorCode:
    if lost.leader_epoch is None:
        # A needless copy is better than a lost replica of an earlier version that leads until its upgrade.
        return ErrorCode.NONE
    if lost.leader_epoch > partition.leader_epoch:
        # The broker has seen a later state than this controller: a newer controller must be active.
        return ErrorCode.NOT_CONTROLLER
    return ErrorCode.NONE if lost.leader_epoch == partition.leader_epoch else ErrorCode.FENCED_LEADER_EPOCH
