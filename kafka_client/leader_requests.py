"""Requests that only leaders answer, for many partitions at once, each with a result or an error of its own.

Partitions are grouped by leader; those whose leader moved or failed are looked up and asked for again, until
the deadline. One partition's error never hides another's result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from pykraft.kafka_client.cluster import Cluster, is_passing, is_unknown
from pykraft.kafka_client.metadata import Partition, TopicPartition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

Ask = Callable[[int, list[Partition]], Awaitable[Mapping[TopicPartition, T | KafkaError]]]
"""``(leader id, its partitions)`` → the results; raises :class:`KafkaError` for the whole request."""


async def ask_leaders(
    cluster: Cluster, what: str, partitions: Collection[TopicPartition], ask: Ask[T], deadline_ms: int
) -> dict[TopicPartition, T | KafkaError]:
    """The result of every partition, or the error that is final or lasted until the deadline."""
    results: dict[TopicPartition, T | KafkaError] = {}
    pending = set(partitions)

    def settle(key: TopicPartition, result: T | KafkaError) -> None:
        results[key] = result
        if not (isinstance(result, KafkaError) and is_passing(result)):
            pending.discard(key)

    def error_of(key: TopicPartition) -> KafkaError:
        error = results[key]
        assert isinstance(error, KafkaError)
        return error

    async def attempt() -> None:
        await cluster.refresh(sorted({topic for topic, _ in pending}), deadline_ms)
        by_leader: dict[int, list[Partition]] = defaultdict(list)
        for key in sorted(pending):
            try:
                partition = cluster.known_leader(*key)
            except KafkaError as error:
                settle(key, error)
                continue
            assert partition.leader_id is not None
            by_leader[partition.leader_id].append(partition)
        for leader_id, led in sorted(by_leader.items()):
            try:
                found = await ask(leader_id, led)
            except KafkaError as error:
                found = {TopicPartition(it.topic, it.index): error for it in led}
            missing = KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer leaves the partition out"
            )
            for it in led:
                key = TopicPartition(it.topic, it.index)
                settle(key, found.get(key, missing))
        if pending:
            # What nobody knows is given up soon, and must not take the others along.
            raise min((error_of(key) for key in sorted(pending)), key=is_unknown)

    try:
        await cluster.retrying(what, attempt, deadline_ms)
    except KafkaError as error:
        for key in pending:
            known = results.get(key)
            if not (isinstance(known, KafkaError) and is_unknown(known)):
                results[key] = error
    return results
