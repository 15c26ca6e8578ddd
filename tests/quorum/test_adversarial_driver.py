"""What a driver may get wrong that the core cannot: what counts as durable after a restart, who may start."""

from __future__ import annotations

import asyncio
import random

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.quorum.state_store import QuorumStateError, QuorumStateStore

DIRECTORY = "/data/__cluster_metadata-0"


class _Killed(BaseException):
    """Not an Exception: nothing may go on after it."""


@pytest.mark.parametrize("seed", range(4))
def test_vote_that_a_killed_process_left_without_flushing_the_directory_counts_only_once_durable(
    run_quorum, seed
):
    """Killed between rename and flush, the vote reads back; the replica acts on it, so it must stay."""

    async def scenario(cluster):
        await cluster.commit(b"a")
        replica = cluster.replicas[0]
        await replica.stop()
        store = QuorumStateStore(replica.memory_disk, DIRECTORY)
        vote = ElectionState(store.read().epoch + 1, None, cluster.replicas[1].key)
        flush_dir = replica.memory_disk.flush_dir

        def killed(path):
            raise _Killed

        replica.memory_disk.flush_dir = killed
        with pytest.raises(_Killed):
            store.write(vote)
        replica.memory_disk.flush_dir = flush_dir
        for other in cluster.replicas[1:]:
            cluster.rpc.down.add(other.address)
        node = await replica.start()
        assert node.leader.epoch == vote.epoch
        await replica.crash(random.Random(seed))
        assert store.read().epoch >= vote.epoch
        cluster.rpc.down.clear()
        await replica.start()
        await cluster.commit(b"b")

    run_quorum(scenario)


def test_lone_voter_whose_disk_was_replaced_is_refused_with_both_keys(run_quorum):
    async def scenario(cluster):
        replica = cluster.replicas[0]
        voter = replica.key
        await replica.stop()
        replica.key = ReplicaKey(1, Uuid(b"x" * 16))
        with pytest.raises(QuorumStateError, match=str(voter)):
            await replica.start()
        replica.log.close()
        replica.node = None

    run_quorum(scenario, voters=1)


def test_idle_quorum_does_not_spin(run_quorum):
    """Between two fetches nothing is due: the work of an idle second is bounded by its long polls."""

    async def scenario(cluster):
        await cluster.commit(b"a")
        steps = 0
        for node in cluster.nodes:
            core = node._core

            class Counting:
                state = core.state

                def __getattr__(self, name, core=core):
                    return getattr(core, name)

                def step(self, event, now_ms, core=core):
                    nonlocal steps
                    steps += 1
                    return core.step(event, now_ms)

            node._core = Counting()
        await asyncio.sleep(0.6)  # 15 long polls of 40 ms by each of two followers
        assert steps < 3 * 15 * 6

    run_quorum(scenario)
