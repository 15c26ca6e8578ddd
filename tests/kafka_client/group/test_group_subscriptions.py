"""A subscription that changes while the member waits for an answer counts, whichever answer it is."""

import asyncio

import pytest

from pykraft.kafka_protocol.api_keys import ApiKey
from tests.kafka_client.group_world import GroupWorld, Kind
from tests.kafka_client.scripted import ScriptedCluster, when_asked
from tests.kafka_client.virtual_cluster import run_virtual

CLASSIC = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT)
KINDS: dict[str, tuple[Kind, tuple[ApiKey, ...]]] = {
    "consumer": (("consumer", None), (ApiKey.CONSUMER_GROUP_HEARTBEAT,)),
    "range": (("classic", "range"), CLASSIC),
    "cooperative": (("classic", "cooperative-sticky"), CLASSIC),
}
CASES = [
    pytest.param(kind, api, nth, id=f"{name}-{api.name}-{nth}")
    for name, (kind, apis) in KINDS.items()
    for api in (*apis, ApiKey.METADATA, ApiKey.FIND_COORDINATOR)
    for nth in (1, 2, 5)
]


@pytest.mark.parametrize(("kind", "api", "nth"), CASES)
@pytest.mark.parametrize("topic", ["t", "nothing"])
def test_a_subscription_during_any_request_is_not_forgotten(
    scripted: ScriptedCluster, kind: Kind, api: ApiKey, nth: int, topic: str
) -> None:
    async def main() -> None:
        world = GroupWorld(scripted)
        await world.start()
        subscribed = "t" if topic == "nothing" else "nothing"

        def subscribe(_: object) -> None:
            nonlocal subscribed
            subscribed = topic
            member.subscribe([topic])

        when_asked(scripted, api, subscribe, nth)
        # In the classic protocol its leader looks for partitions, in the other a member repeats everything.
        age_ms = 1_500 if kind[0] == "classic" else 300_000
        member = world.join(*kind, topics=(subscribed,), metadata_max_age_ms=age_ms)
        await asyncio.sleep(2)
        world.join(*kind, topics=("another",))
        world.move_coordinator(2)
        await asyncio.sleep(13)
        assert subscribed == topic or nth == 5 or api not in (*CLASSIC, ApiKey.CONSUMER_GROUP_HEARTBEAT)
        assert len(member.owned) == (6 if subscribed == "t" else 0)
        assert member.fatal is None
        await world.stop()

    run_virtual(main())


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS.values()], ids=KINDS)
@pytest.mark.parametrize("topic", ["t", "nothing"])
def test_a_subscription_while_partitions_are_revoked_is_not_forgotten(
    scripted: ScriptedCluster, kind: Kind, topic: str
) -> None:
    async def main() -> None:
        world = GroupWorld(scripted)
        await world.start()
        member = world.join(*kind)
        await world.until(world.is_shared)

        async def subscribe_again() -> None:
            world.seats[member].while_revoking = None
            await asyncio.sleep(1)
            member.subscribe([topic])
            await asyncio.sleep(1)

        world.seats[member].while_revoking = subscribe_again
        member.subscribe(["nothing" if topic == "t" else "another"])
        await asyncio.sleep(15)
        assert len(member.owned) == (6 if topic == "t" else 0)
        await world.stop()

    run_virtual(main())


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS.values()], ids=KINDS)
def test_once_a_subscription_is_in_force_a_member_asks_no_more_often_than_before(
    scripted: ScriptedCluster, kind: Kind
) -> None:
    async def main() -> None:
        world = GroupWorld(scripted)
        await world.start()
        member = world.join(*kind)
        await world.until(world.is_shared)
        for topics in (["nothing"], ["t", "nothing"], ["t"]):
            member.subscribe(topics)
            await asyncio.sleep(3)
            before = asked()
            await asyncio.sleep(10)
            assert 9 <= asked() - before <= 11
        await world.stop()

    def asked() -> int:
        return sum(
            len(scripted.requests(api))
            for api in (*CLASSIC, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.METADATA, ApiKey.FIND_COORDINATOR)
        )

    run_virtual(main())
