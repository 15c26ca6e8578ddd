"""DescribeLogDirs.

This broker's data directories, the size of their volumes, and the requested partitions (null: all) with the
size of their logs and how far a follower's log end is behind the high watermark. KAFKA_STORAGE_ERROR answers
for a directory that has failed, or whose volume does not tell its size, and for that of a partition that was
set aside as damaged, as long as its replica is offline. A replica that is being moved, or waits for its turn,
is listed in both directories: the copy as a future replica, with its lag. Version 5 tells which directories
are cordoned.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.kafka_protocol.codec.schema import EncodedElements
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.cluster import (
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
            await services.slices.pause()
    results = [await _describe(services, log_dir, wanted, version) for log_dir in services.config.log_dirs]
    return DescribeLogDirsResponse(results=results + await _describe_offline(services, wanted))


async def _describe(
    services: BrokerServices, log_dir: str, wanted: Wanted | None, version: int
) -> DescribeLogDirsResult:
    if not services.logs.dirs.is_online(log_dir):
        return _failed(services, log_dir)
    try:
        usage = await services.logs.usage(log_dir)
    except OSError:
        return _failed(services, log_dir)
    return DescribeLogDirsResult(
        log_dir=log_dir,
        topics=await services.slices.result(_topics(services, log_dir, wanted, version)),
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
        await services.slices.pause()
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


def _topics(
    services: BrokerServices, log_dir: str, wanted: Wanted | None, version: int
) -> Generator[None, None, list[DescribeLogDirsTopic]]:
    by_name: dict[str, EncodedElements] = {}
    for topic, index in _keys(services, wanted):
        yield
        opened = services.logs.logs.get((topic, index))
        if opened is None or opened.log_dir != log_dir:
            continue
        partition = services.replicas.table.find(topic, index)
        high_watermark = opened.high_watermark if partition is None else partition.high_watermark
        described = DescribeLogDirsPartition(
            partition_index=index,
            partition_size=opened.log.size_bytes,
            offset_lag=max(0, high_watermark - opened.log.log_end_offset),
        )
        encoded = DescribeLogDirsResponse.encode_part(described, version)
        by_name.setdefault(topic, EncodedElements()).append(encoded)
    for (topic, index), (size_bytes, lag) in sorted(services.logs.table.moves_to(log_dir).items()):
        yield
        if wanted is None or index in wanted.get(topic, ()):
            described = DescribeLogDirsPartition(
                partition_index=index, partition_size=size_bytes, offset_lag=lag, is_future_key=True
            )
            encoded = DescribeLogDirsResponse.encode_part(described, version)
            by_name.setdefault(topic, EncodedElements()).append(encoded)
    return [DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in by_name.items()]


def _keys(services: BrokerServices, wanted: Wanted | None) -> Iterable[TopicPartition]:
    """The partitions of the logs to describe; logs may be opened and deleted meanwhile."""
    if wanted is None:
        return list(services.logs.logs)
    return ((topic, index) for topic, indexes in wanted.items() for index in indexes)
