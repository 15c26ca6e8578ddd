"""New partitions: checking a given placement or making one, and the first record of each partition."""

from __future__ import annotations

from collections.abc import Sequence

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.config import Rng
from pykraft.metadata_log.controller.placement import place_replicas
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import PartitionRecord


def place_automatically(
    image: MetadataImage, partition_count: int, replication_factor: int, rng: Rng
) -> list[tuple[int, ...]]:
    """Replica lists over the active brokers. INVALID_REPLICATION_FACTOR if they are too few."""
    racks = {broker.id: broker.rack for broker in image.brokers.values() if broker.is_active}
    return place_replicas(racks, partition_count, replication_factor, rng)


def check_assignments(
    image: MetadataImage, assignments: Sequence[Sequence[int]], replication_factor: int | None = None
) -> list[tuple[int, ...]]:
    """Given replica lists, one per partition, all of one length. INVALID_REPLICA_ASSIGNMENT if unusable."""
    placements = [tuple(broker_ids) for broker_ids in assignments]
    expected = len(placements[0]) if replication_factor is None else replication_factor
    for replicas in placements:
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
    return placements


def build_partition_record(
    image: MetadataImage, topic_id: Uuid, index: int, replicas: tuple[int, ...]
) -> PartitionRecord:
    """A new partition: empty, so every active replica is in sync; the first of them leads."""
    isr = tuple(broker_id for broker_id in replicas if image.is_active(broker_id))
    return PartitionRecord(index, topic_id, replicas, isr, leader=isr[0])


def _refuse(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
