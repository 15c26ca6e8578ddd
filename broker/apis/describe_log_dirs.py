"""DescribeLogDirs.

This broker's data directories, the size of their volumes, and the requested partitions (null: all) with the
size of their logs in bytes and how far a follower's log end is behind the high watermark. A directory that
has failed, or whose volume does not tell its size, is answered with KAFKA_STORAGE_ERROR. The directory of a
partition that is damaged and was set aside is listed with the same error as long as its replica is offline.
A replica that is being moved, or waits for its turn, is listed in both directories: the copy as a future
replica, with how far it is behind the replica. Whether a directory is
cordoned is told from version 5 on.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.broker.apis.services import BrokerServices
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from pykraft.kafka_protocol.request_context import RequestContext

Wanted = Mapping[str, set[int]]


async def handle(
    services: BrokerServices, context: RequestContext, request: DescribeLogDirsRequest, version: int
) -> DescribeLogDirsResponse:
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for topic in request.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
    results = [await _describe(services, log_dir, wanted) for log_dir in services.config.log_dirs]
    return DescribeLogDirsResponse(results=results + await _describe_offline(services, wanted))


async def _describe(services: BrokerServices, log_dir: str, wanted: Wanted | None) -> DescribeLogDirsResult:
    if not services.logs.dirs.is_online(log_dir):
        return _failed(services, log_dir)
    try:
        usage = await services.logs.usage(log_dir)
    except OSError:
        return _failed(services, log_dir)
    return DescribeLogDirsResult(
        log_dir=log_dir,
        topics=_topics(services, log_dir, wanted),
        is_cordoned=_is_cordoned(services, log_dir),
        total_bytes=usage.total_bytes,
        usable_bytes=usage.usable_bytes,
    )


def _failed(services: BrokerServices, log_dir: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=ErrorCode.KAFKA_STORAGE_ERROR,
        log_dir=log_dir,
        is_cordoned=_is_cordoned(services, log_dir),
    )


def _is_cordoned(services: BrokerServices, log_dir: str) -> bool:
    image = services.metadata.image
    return image.supports_cordoned_log_dirs and log_dir in services.logs.dirs.cordoned


async def _describe_offline(services: BrokerServices, wanted: Wanted | None) -> list[DescribeLogDirsResult]:
    logs, results = services.logs, []
    for (topic, index), offline in sorted(logs.offline.items()):
        if wanted is not None and index not in wanted.get(topic, ()):
            continue
        try:
            size_bytes = await logs.damaged.size_bytes(offline)
        except OSError:
            size_bytes = -1
        partition = DescribeLogDirsPartition(partition_index=index, partition_size=size_bytes, offset_lag=-1)
        results.append(
            DescribeLogDirsResult(
                error_code=ErrorCode.KAFKA_STORAGE_ERROR,
                log_dir=offline.directory or f"{offline.log_dir}/{topic}-{index}",
                topics=[DescribeLogDirsTopic(name=topic, partitions=[partition])],
            )
        )
    return results


def _topics(services: BrokerServices, log_dir: str, wanted: Wanted | None) -> list[DescribeLogDirsTopic]:
    by_name: dict[str, list[DescribeLogDirsPartition]] = {}
    for (topic, index), opened in sorted(services.logs.logs.items()):
        if opened.log_dir != log_dir or (wanted is not None and index not in wanted.get(topic, ())):
            continue
        partition = services.replicas.table.find(topic, index)
        high_watermark = opened.high_watermark if partition is None else partition.high_watermark
        by_name.setdefault(topic, []).append(
            DescribeLogDirsPartition(
                partition_index=index,
                partition_size=opened.log.size_bytes,
                offset_lag=max(0, high_watermark - opened.log.log_end_offset),
            )
        )
    for (topic, index), (size_bytes, lag) in sorted(services.logs.table.moves_to(log_dir).items()):
        if wanted is None or index in wanted.get(topic, ()):
            by_name.setdefault(topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=index, partition_size=size_bytes, offset_lag=lag, is_future_key=True
                )
            )
    return [DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in by_name.items()]
