"""AlterReplicaLogDirs (KIP-113).

Each partition is answered alone, as soon as its move has begun: DescribeLogDirs shows it as a future replica
until it is done (:mod:`pykraft.broker.replicas.placement.log_moves`). A directory that this broker does not
have is LOG_DIR_NOT_FOUND, one that has failed KAFKA_STORAGE_ERROR. A partition without a replica here is
REPLICA_NOT_AVAILABLE, but the directory is remembered: if the replica is created later, it is created there.
A move to the directory where the replica is cancels the move that is under way. A directory that is cordoned
(``cordoned.log.dirs``) takes no replica: INVALID_REPLICA_ASSIGNMENT.
"""

from __future__ import annotations

from collections.abc import Generator

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.logs.future_log import MAX_NAME_BYTES, future_name
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.kafka_protocol.codec.schema import EncodedElements
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.cluster import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from pykraft.kafka_protocol.request_context import RequestContext

MOST_REMEMBERED = 10_000
"""Directories of replicas that may be created later: a client that names many must not fill the memory."""


def handle(
    services: BrokerServices, context: RequestContext, request: AlterReplicaLogDirsRequest, version: int
) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    results: dict[str, EncodedElements] = {}
    for directory in request.dirs:
        yield
        for topic in directory.topics:
            yield
            partitions = results.setdefault(topic.name, EncodedElements())
            for index in topic.partitions:
                error = _move(services, topic.name, index, directory.path)
                result = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                partitions.append(AlterReplicaLogDirsResponse.encode_part(result, version))
                yield
    response = AlterReplicaLogDirsResponse()
    for name, partitions in results.items():
        if partitions:
            response.results.append(AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions))
            yield
    return response


def _move(services: BrokerServices, topic: str, index: int, path: str) -> ErrorCode:
    logs, key = services.logs, (topic, index)
    if len(future_name(topic, index, "0" * 32).encode()) > MAX_NAME_BYTES:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if path not in logs.dirs.paths:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if not logs.dirs.is_online(path) or key in logs.offline or key in logs.unavailable:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if path in logs.dirs.cordoned and not _is_there(services, key, path):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if key not in logs.logs or services.replicas.table.find(topic, index) is None:
        if key in logs.wanted_dirs or len(logs.wanted_dirs) < MOST_REMEMBERED:
            logs.wanted_dirs[key] = path
        return ErrorCode.REPLICA_NOT_AVAILABLE
    services.moves.move(key, path)
    return ErrorCode.NONE


def _is_there(services: BrokerServices, key: TopicPartition, path: str) -> bool:
    """Whether a replica is in this directory: then a move of it to another one can be cancelled."""
    opened = services.logs.logs.get(key)
    return opened is not None and opened.log_dir == path
