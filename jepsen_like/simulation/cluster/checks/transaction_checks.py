"""No transaction hangs: when all clients are gone and every timeout has passed, nothing is left open.

Looks into coordinators, groups and the logs of leaders. Skips partitions whose records are not guaranteed:
the end of a transaction may be lost with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.jepsen_like.simulation.cluster.checks.group_watch import shards_of
from pykraft.transaction_coordinator.transaction import IDLE

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.view import Machine

NO_HANGING: Final = "no transaction hangs"


def find_hanging(machines: Collection[Machine], exempted: Collection[str]) -> Iterator[str]:
    """A description of each transaction, or pending offset, that is still open."""
    for machine in machines:
        if not machine.alive:
            continue
        coordinator, replicas = machine.parts.transactions, machine.parts.replicas
        for hosted in () if coordinator is None else coordinator._hosted.values():
            for name, value in sorted(hosted.shard.state.transactions.items()):
                if value.state not in IDLE:
                    yield f"{name} is {value.state.label} at its coordinator {machine.id}: {value}"
        for shard in shards_of(machine):
            key = f"{OFFSETS_TOPIC}-{shard.partition}"
            if shard.committed.pending.open and key not in exempted:
                yield f"offsets are pending at coordinator {machine.id}: {shard.committed.pending.open}"
        for partition in () if replicas is None else replicas.table:
            key = f"{partition.topic}-{partition.index}"
            if partition.is_leader and key not in exempted:
                stable, end_offset = partition.last_stable_offset, partition.high_watermark
                if stable != end_offset:
                    yield f"{partition} at {machine.id} is stable up to {stable} of {end_offset} only"
