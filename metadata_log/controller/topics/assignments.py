"""The replicas of new partitions: placed automatically, or given by the client and checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.config import Rng
from pykraft.metadata_log.controller.topics.placement import place_replicas
from pykraft.metadata_log.image import MetadataImage


def place_automatically(
    image: MetadataImage, partition_count: int, replication_factor: int, rng: Rng
) -> Iterator[tuple[int, ...]]:
    """Replica lists over the active brokers, and over fenced ones if there are too few active brokers.

    Brokers that are shutting down get no replica, nor those that have cordoned all of their log directories
    (KIP-1066). INVALID_REPLICATION_FACTOR if there are too few brokers.
    """
    here = [broker for broker in image.brokers.values() if not broker.in_controlled_shutdown]
    brokers = [broker for broker in here if not broker.is_cordoned]
    if not any(broker.is_active for broker in brokers) and any(broker.is_active for broker in here):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "every active broker has cordoned all of its log directories (cordoned.log.dirs)",
        )
    active = {broker.id: broker.rack for broker in brokers if not broker.fenced}
    fenced = {broker.id: broker.rack for broker in brokers if broker.fenced}
    return place_replicas(active, partition_count, replication_factor, rng, fenced)


def check_assignments(
    image: MetadataImage, assignments: Sequence[Sequence[int]], replication_factor: int | None = None
) -> Iterator[tuple[int, ...]]:
    """The given replica lists, one per partition, of equal length; each is checked when it is asked for.

    INVALID_REPLICA_ASSIGNMENT if one is unusable.
    """
    longest = max(map(len, assignments))
    if longest > len(image.brokers):
        raise _refuse(f"{longest} brokers are assigned, and {len(image.brokers)} are registered")
    expected = len(assignments[0]) if replication_factor is None else replication_factor
    for replicas in map(tuple, assignments):
        if not replicas:
            raise _refuse("a partition is assigned no broker")
        if len(set(replicas)) != len(replicas):
            raise _refuse(f"{list(replicas)} names a broker twice")
        if len(replicas) != expected:
            raise _refuse(f"{list(replicas)} has {len(replicas)} replicas where others have {expected}")
        unknown = [broker_id for broker_id in replicas if broker_id not in image.brokers]
        if unknown:
            raise _refuse(f"broker {unknown[0]} is not registered")
        if not any(image.is_active(broker_id) for broker_id in replicas):
            raise _refuse(f"every broker of {list(replicas)} is fenced or shutting down")
        yield replicas


def _refuse(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
