"""Chooses the brokers for the replicas of new partitions: spread over brokers and racks, leaders evenly.

Brokers form one ring in which racks alternate. The leader of each next partition is the next broker of the
ring, starting at a random one, so leaderships differ by at most one. Followers are chosen by walking the ring
from the leader, an unused rack before a used one; the start of the walk shifts each time round, so that the
partitions of one leader do not all share their followers. Fenced brokers are used only if there are too few
active ones, and after them: such a replica is created when its broker is unfenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.config import Rng

Racks = Mapping[int, str | None]


def place_replicas(
    active: Racks, partition_count: int, replication_factor: int, rng: Rng, fenced: Racks | None = None
) -> list[tuple[int, ...]]:
    """Replica lists of ``partition_count`` partitions, leader first; brokers are given with their racks.

    INVALID_REPLICATION_FACTOR if there are fewer brokers than replicas, or none that is active.
    """
    spare = fenced or {}
    if not active:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is active")
    if replication_factor > len(active) + len(spare):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the {len(active) + len(spare)} brokers",
        )
    racks = {**spare, **active}
    ring, spare_ring = _build_ring(active), _build_ring(spare)
    start, shift = rng.randrange(len(ring)), rng.randrange(max(1, len(ring) - 1))
    placements = []
    for partition in range(partition_count):
        position = (start + partition) % len(ring)
        turn = shift + partition // len(ring)
        others = _rotate(ring[position + 1 :] + ring[:position], turn)
        replicas = [ring[position]]
        _extend(replicas, others, racks, replication_factor)
        if len(replicas) < replication_factor:
            _extend(replicas, _rotate(spare_ring, start + partition), racks, replication_factor)
        placements.append(tuple(replicas))
    return placements


def _build_ring(racks: Racks) -> list[int]:
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id] or "", []).append(broker_id)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max((len(column) for column in columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _rotate(brokers: Sequence[int], steps: int) -> list[int]:
    at = steps % len(brokers) if brokers else 0
    return [*brokers[at:], *brokers[:at]]


def _extend(replicas: list[int], walk: list[int], racks: Racks, count: int) -> None:
    """Add brokers of the walk until there are ``count`` or the walk ends; the least used rack comes first."""
    used: dict[str | None, int] = {}
    _count_racks(used, (racks[broker_id] for broker_id in replicas))
    while len(replicas) < count and walk:
        # min() keeps the first of equals: the walk's order decides among equally crowded racks.
        follower = min(walk, key=lambda broker_id: used.get(racks[broker_id], 0))
        walk.remove(follower)
        replicas.append(follower)
        _count_racks(used, (racks[follower],))


def _count_racks(used: dict[str | None, int], racks: Iterable[str | None]) -> None:
    for rack in racks:
        used[rack] = used.get(rack, 0) + 1
