"""Chooses the brokers for the replicas of new partitions: spread over brokers and racks, leaders evenly.

Brokers form one ring in which racks alternate. The leader of each next partition is the next broker of the
ring, starting at a random one, so leaderships differ by at most one. Followers are chosen by walking the ring
from the leader, an unused rack before a used one; the start of the walk shifts each time round, so that the
partitions of one leader do not all share their followers. Fenced brokers are used only if there are too few
active ones, and after them: such a replica is created when its broker is unfenced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.config import Rng

Racks = Mapping[int, str | None]


def place_replicas(
    active: Racks, partition_count: int, replication_factor: int, rng: Rng, fenced: Racks | None = None
) -> Iterator[tuple[int, ...]]:
    """Replica lists of ``partition_count`` partitions, leader first; brokers are given with their racks.

    Each is made when it is asked for; the random numbers are drawn at once. INVALID_REPLICATION_FACTOR if
    there are fewer brokers than replicas, or none that is active.
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

    def place(partition: int) -> tuple[int, ...]:
        position = (start + partition) % len(ring)
        turn = shift + partition // len(ring)
        others = _rotate(ring[position + 1 :] + ring[:position], turn)
        replicas = [ring[position]]
        _extend(replicas, others, racks, replication_factor)
        if len(replicas) < replication_factor:
            _extend(replicas, _rotate(spare_ring, start + partition), racks, replication_factor)
        return tuple(replicas)

    return map(place, range(partition_count))


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
    """Add brokers of the walk until there are ``count`` or the walk ends; the least used rack comes first.

    The walk's order decides among equally crowded racks.
    """
    used = Counter(racks[broker_id] for broker_id in replicas)
    places: dict[str | None, list[int]] = {}
    for place, broker_id in enumerate(walk):
        places.setdefault(racks[broker_id], []).append(place)
    # The next broker of each rack: how crowded the rack is, its place in the walk, which of the rack it is.
    heap = [(used[rack], ours[0], 0, ours) for rack, ours in places.items()]
    heapify(heap)
    while len(replicas) < count and heap:
        crowd, place, nth, ours = heap[0]
        replicas.append(walk[place])
        if nth + 1 < len(ours):
            heapreplace(heap, (crowd + 1, ours[nth + 1], nth + 1, ours))
        else:
            heappop(heap)
