"""Whole nodes on real logs, cut off and crashed: nothing committed is lost, nothing diverges."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from pykraft.kafka_protocol.errors import KafkaError
from tests.narrowing import present
from tests.quorum.nodes import Cluster, Replica


def _check_prefixes(cluster: Cluster, received: Sequence[Sequence[bytes]]) -> Sequence[bytes]:
    """The records that listeners got, in every run of every replica, are prefixes of one sequence."""
    longest = max(received, key=len)
    for values in received:
        assert values == longest[: len(values)]
    return longest


async def test_a_leader_that_was_cut_off_truncates_its_uncommitted_records(cluster: Cluster) -> None:
    await cluster.commit(b"before")
    old = await cluster.leader()
    cluster.rpc.down.add(old.address)
    epoch = old.live.leader.epoch
    old.live.propose(epoch, [b"lost 1", b"lost 2"])
    old.live.propose(epoch, [b"lost 3"])
    others = [r for r in cluster.replicas if r is not old]
    await cluster.until(
        lambda: any(r.live.leader.leader_id == r.key.id and r.live.leader.epoch > epoch for r in others)
    )
    new = next(r for r in others if r.live.leader.leader_id == r.key.id)
    new.live.propose(new.live.leader.epoch, [b"kept"])
    await cluster.until(lambda: all(b"kept" in r.listener.values for r in others))
    cluster.rpc.down.clear()
    await cluster.commit(b"after")
    for replica in cluster.replicas:
        assert replica.listener.values == [b"before", b"kept", b"after"]


async def test_a_leader_that_is_cut_off_resigns(cluster: Cluster) -> None:
    await cluster.commit(b"a")
    old = await cluster.leader()
    epoch = old.live.leader.epoch
    cluster.rpc.down.add(old.address)
    await cluster.until(lambda: old.live.leader.leader_id is None)
    with pytest.raises(KafkaError):
        old.live.propose(epoch, [b"x"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_random_crashes_and_cuts_on_real_logs_lose_nothing(cluster: Cluster, seed: int) -> None:
    rng = random.Random(seed)
    received = []
    acknowledged = []
    number = 0

    async def propose_and_note(replica: Replica) -> None:
        nonlocal number
        number += 1
        value = b"%d" % number
        listener, node = replica.listener, replica.node
        try:
            offset = present(node).propose(present(node).leader.epoch, [value] * rng.randrange(1, 4))
        except KafkaError:
            return
        try:
            async with asyncio.timeout(0.15):
                while listener.next_offset <= offset:
                    await asyncio.sleep(0.002)
        except TimeoutError:
            return
        if listener.values[-1] == value or value in listener.values:
            acknowledged.append(value)

    for _ in range(60):
        live = [r for r in cluster.replicas if r.node is not None]
        leaders = [r for r in live if r.live.leader.leader_id == r.key.id]
        if leaders:
            await propose_and_note(rng.choice(leaders))
        else:
            await asyncio.sleep(0.05)
        match rng.randrange(6):
            case 0:
                victim = rng.choice(leaders or live)
                received.append(victim.listener.values)
                await victim.crash(rng)
                await victim.start()
            case 1:
                cluster.rpc.down.add(rng.choice(leaders or live).address)
            case 2 | 3:
                cluster.rpc.down.clear()
    cluster.rpc.down.clear()
    await cluster.commit(b"end")
    received += [replica.listener.values for replica in cluster.replicas]
    longest = _check_prefixes(cluster, received)
    assert len(acknowledged) > 5
    assert set(acknowledged) <= set(longest)
