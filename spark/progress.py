"""How far a query is: its offsets as those of a consumer group, and its lag by the progress Spark reports.

Both are for people and tools only. Spark's checkpoint says where a query goes on, so a broker that cannot
store offsets just now must not stop it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from pykraft.kafka_client.admin.group_offsets import alter_group_offsets
from pykraft.kafka_client.cluster import Cluster
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.spark.stream_offsets import Offsets, from_json

log: Final = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 5_000
"""The query waits meanwhile."""


async def publish(cluster: Cluster, group_id: str, offsets: Offsets) -> None:
    """Commit offsets for a group without members; what fails is a warning, and part of the next call."""
    commits = {partition: OffsetAndMetadata(offset) for partition, offset in offsets.items()}
    deadline_ms = cluster.deadline(_TIMEOUT_MS)
    try:
        answers = await alter_group_offsets(cluster, group_id, commits, deadline_ms)
    except KafkaError as error:
        log.warning("the offsets of this query are not published to group %s: %s", group_id, error)
        return
    for partition, refused in answers.items():
        if refused is not None:
            log.warning("the offset of %s is not published to group %s: %s", partition, group_id, refused)


def offsets_behind_latest(source: Mapping[str, Any]) -> dict[str, str]:
    """The lag in ``sources[i]`` of a query's progress (``StreamingQueryProgress``, as JSON), by the names of
    Spark's own Kafka source: ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest``,
    ``avgOffsetsBehindLatest``; over partitions. Empty before the first offsets are known.
    """
    end, latest = source.get("endOffset"), source.get("latestOffset")
    if not end or not latest:
        return {}
    reached = from_json(end)
    behind = [
        max(0, offset - reached[partition])
        for partition, offset in from_json(latest).items()
        if partition in reached
    ]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }
