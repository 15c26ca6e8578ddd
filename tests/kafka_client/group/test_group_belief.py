"""Under any network faults, no two members of a group believe that they own the same partition."""

import asyncio
import random

import pytest

from pykraft.kafka_protocol.codec.schema import Message
from tests.kafka_client.group_world import GroupWorld, Kind
from tests.kafka_client.scripted import ScriptedCluster
from tests.kafka_client.virtual_cluster import run_virtual

PROTOCOLS: dict[str, list[Kind]] = {
    "consumer": [("consumer", None)],
    "range": [("classic", "range")],
    "cooperative": [("classic", "cooperative-sticky")],
}
FAULTS = ("lost", "unanswered", "broken", "late", "slow")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kinds", list(PROTOCOLS))
def test_no_partition_has_two_owners_and_the_group_is_stable_when_the_network_heals(
    scripted: ScriptedCluster, kinds: str, seed: int
) -> None:
    rng = random.Random(f"{kinds}-{seed}")

    async def main() -> None:
        world = GroupWorld(scripted)
        await world.start()
        loss = rng.choice([0.0, 0.05, 0.2])
        cut: dict[int | str | None, str] = {}

        def fault(broker_id: int, request: Message) -> str | None:
            """``cut`` holds the ids of brokers and members that are cut off."""
            how = cut.get(broker_id) or cut.get(getattr(request, "member_id", None))
            if how:
                return how
            return rng.choice(FAULTS) if rng.random() < loss else None

        world.fault = fault
        for _ in range(rng.randrange(1, 4)):
            world.join(*rng.choice(PROTOCOLS[kinds]))
        end = world.loop.time() + 60
        while world.loop.time() < end:
            world.check()
            await asyncio.sleep(rng.random() * 3)
            what = rng.random()
            members = list(world.seats)
            if what < 0.15 and len(members) < 5:
                world.join(*rng.choice(PROTOCOLS[kinds]))
            elif what < 0.22 and len(members) > 1:
                world.abandon(rng.choice(members))
            elif what < 0.3 and len(members) > 1:
                await world.leave(rng.choice(members))
            elif what < 0.4:
                world.move_coordinator(rng.randrange(1, 4))
            elif what < 0.5:
                cut[world.coordinator] = "lost"
            elif what < 0.75 and members:
                cut[rng.choice(members).identity.member_id or None] = rng.choice(("lost", "unanswered"))
            elif what < 0.9:
                cut.clear()
        world.fault = lambda broker_id, request: None
        await world.until(world.is_shared)
        assert all(member.fatal is None for member in world.seats)
        await world.stop()

    run_virtual(main())
