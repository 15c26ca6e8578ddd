"""AssignReplicasToDirs: a broker says in which log directories its replicas are (KIP-858).

With that the controller knows which replicas are gone when a directory fails. A replica that is assigned to a
directory that does not work leaves leadership and ISR at once (:mod:`.elections`). A replica whose directory
was known and does not work cannot have brought its records along: if it is assigned to another one, its log
there counts as new, as if the broker had reported the old one as lost (:mod:`.lost_replicas`).
"""

from __future__ import annotations

from typing import Final

from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.calls.requests import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from pykraft.metadata_log.controller.cluster_control import check_broker_epoch
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.elections import Elections
from pykraft.metadata_log.controller.requested_partitions import RequestedPartitions
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.image import (
    UNKNOWN_DIRECTORIES,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from pykraft.metadata_log.records import LOST_DIRECTORY, Record

MAX_ASSIGNMENTS_PER_REQUEST: Final = 2250
"""As in Kafka; more is INVALID_REQUEST."""


def handle_assign_replicas_to_dirs(
    image: MetadataImage, config: ControllerConfig, request: AssignReplicasToDirsRequest
) -> ControllerResult[AssignReplicasToDirsResponse]:
    """Each assignment succeeds or fails alone; STALE_BROKER_EPOCH for all if another process has the id."""
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    elections = Elections(image, config)
    records: list[Record] = []
    errors = []
    requested = RequestedPartitions(image)
    for assignment in request.assignments:
        topic_id, index = assignment.topic_id, assignment.index
        error = requested.check_replica(broker.id, topic_id, index)
        if assignment.directory not in broker.log_dirs and assignment.directory != LOST_DIRECTORY:
            error = ErrorCode.INVALID_REQUEST
        errors.append(error)
        if error is ErrorCode.NONE:
            topic = image.topics_by_id[topic_id]
            partition = topic.partitions[index]
            if partition.directory(broker.id) != assignment.directory:
                record = elections.builder(topic.name).build(
                    topic_id,
                    index,
                    partition,
                    directories=_assigned(partition, broker.id, assignment.directory),
                    lost=broker.id if _starts_over(broker, partition, assignment.directory) else None,
                )
                assert record is not None, "the directory changes"
                records.append(record)
    return ControllerResult(tuple(records), AssignReplicasToDirsResponse(tuple(errors)))


def _assigned(partition: PartitionRegistration, broker_id: int, directory: Uuid) -> tuple[Uuid, ...]:
    return tuple(directory if id == broker_id else partition.directory(id) for id in partition.replicas)


def _starts_over(broker: BrokerRegistration, partition: PartitionRegistration, directory: Uuid) -> bool:
    """Whether the replica leaves a directory that does not work for one that does."""
    online = UNKNOWN_DIRECTORIES.union(broker.online_log_dirs)
    is_lost = broker.id in partition.lost
    return directory in online and partition.directory(broker.id) not in online and not is_lost
