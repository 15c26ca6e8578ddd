"""Which brokers hold the replicas of new partitions: spread over brokers and racks, leaders evenly.

Brokers form one ring in which racks alternate. The leader of each next partition is the next broker of the
ring, starting at a random one, so leaderships differ by at most one. Followers are picked walking the ring
from the leader, a fresh rack before a used one; the walk's start shifts each time round, so that the
partitions of one leader do not all share their followers.
"""

from __future__ import annotations

from collections.abc import Mapping

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.config import Rng


def place_replicas(
    racks: Mapping[int, str | None], partition_count: int, replication_factor: int, rng: Rng
) -> list[tuple[int, ...]]:
    """Replica lists of ``partition_count`` partitions, leader first, over the usable brokers in ``racks``.

    INVALID_REPLICATION_FACTOR if there are fewer brokers than replicas.
    """
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} needs more than the {len(racks)} usable brokers",
        )
    ring = _build_ring(racks)
    start, shift = rng.randrange(len(ring)), rng.randrange(max(1, len(ring) - 1))
    placements = []
    for partition in range(partition_count):
        position = start + partition
        turn = shift + partition // len(ring)
        placements.append(_pick(ring, racks, position % len(ring), turn, replication_factor))
    return placements


def _build_ring(racks: Mapping[int, str | None]) -> list[int]:
    by_rack: dict[str, list[int]] = {}
    for broker_id in sorted(racks):
        by_rack.setdefault(racks[broker_id] or "", []).append(broker_id)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(len(column) for column in columns)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _pick(
    ring: list[int], racks: Mapping[int, str | None], leader_at: int, turn: int, count: int
) -> tuple[int, ...]:
    others = len(ring) - 1
    walk = [ring[(leader_at + 1 + (turn + step) % others) % len(ring)] for step in range(others)]
    chosen = [ring[leader_at]]
    used = {racks[chosen[0]]: 1}
    while len(chosen) < count:
        # min() keeps the first of equals: the walk's order decides among equally crowded racks.
        follower = min(walk, key=lambda broker_id: used.get(racks[broker_id], 0))
        walk.remove(follower)
        chosen.append(follower)
        used[racks[follower]] = used.get(racks[follower], 0) + 1
    return tuple(chosen)
