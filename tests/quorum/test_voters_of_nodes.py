"""Voters that change under whole nodes: driver, log, bytes on the wire, and what a restart reads back."""

from __future__ import annotations

import random
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, Voter
from pykraft.runtime.address import Address
from tests.narrowing import present
from tests.quorum.nodes import FAST, Cluster, Replica, run_quorum

from .test_snapshots import SMALL, take_snapshot

TIMEOUT_MS = 5000


def voter_of(replica: Replica) -> Voter:
    return Voter(replica.key, replica.address)


def other_than(cluster: Cluster, leader: Replica) -> Replica:
    return next(r for r in cluster.replicas if r is not leader and r.live.is_voter)


async def refusal(coroutine: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await coroutine
    return refused.value.code


def test_observer_becomes_a_voter_on_every_node_and_after_a_restart_and_a_crash() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.leader()
        *_, fourth = cluster.replicas
        await leader.live.add_voter(voter_of(fourth), TIMEOUT_MS)
        await cluster.until(lambda: all(len(r.live.voters) == 4 for r in cluster.replicas))
        assert fourth.live.is_voter
        await fourth.stop()
        await fourth.start()
        assert fourth.live.is_voter and present(fourth.live.voters.get(4)).address == fourth.address
        await fourth.crash(random.Random(1))
        await fourth.start()
        assert fourth.live.is_voter
        assert await refusal(leader.live.add_voter(voter_of(fourth), TIMEOUT_MS)) is ErrorCode.DUPLICATE_VOTER
        await cluster.commit(b"a")

    run_quorum(scenario, voters=3, observers=1)


def test_removed_leader_resigns_and_the_others_continue() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.leader()
        await leader.live.remove_voter(leader.key, TIMEOUT_MS)
        await cluster.until(lambda: cluster.leading() not in (None, leader))
        assert not leader.live.is_voter and len(present(cluster.leading()).live.voters) == 2
        await cluster.commit(b"a")
        assert leader.listener.values == [b"a"]  # an observer now
        assert leader.live.leader_address() == present(cluster.leading()).address
        assert await refusal(leader.live.remove_voter(leader.key, 1)) is ErrorCode.NOT_CONTROLLER

    run_quorum(scenario)


def test_voters_are_read_back_from_a_snapshot_when_their_records_are_gone() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.leader()
        removed = other_than(cluster, leader)
        await leader.live.remove_voter(removed.key, TIMEOUT_MS)
        await cluster.commit(b"a")
        for replica in cluster.replicas:
            snapshot = await take_snapshot(replica)
            assert replica.log.log_start_offset == snapshot.end_offset
        for replica in cluster.replicas:
            await replica.stop()
            await replica.start()
            assert removed.key.id not in replica.live.voters.ids and len(replica.live.voters) == 2
        await cluster.commit(b"b")

    run_quorum(scenario, config=SMALL)


def test_node_that_knows_no_voters_finds_them_by_bootstrap_servers_and_joins() -> None:
    async def scenario(cluster: Cluster) -> None:
        *_, fourth = cluster.replicas
        await cluster.until(lambda: fourth.live.is_voter)
        await cluster.commit(b"a")
        assert all(len(r.live.voters) == 4 for r in cluster.replicas)

    servers = tuple(Address("test", 9000 + node_id) for node_id in range(1, 5))
    config = replace(FAST, bootstrap_servers=servers, auto_join=True)
    run_quorum(scenario, voters=3, observers=1, config=config, voters_of_observers=NO_VOTERS)


def test_change_that_cannot_be_made_times_out_with_a_reason() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.leader()
        stranger = Voter(ReplicaKey(9, leader.key.directory_id), Address("test", 9099))
        with pytest.raises(KafkaError, match="no answer from 9") as refused:
            await leader.live.add_voter(stranger, 100)
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert await refusal(leader.live.remove_voter(stranger.key, 100)) is ErrorCode.VOTER_NOT_FOUND
        await leader.stop()
        cluster.rpc.down.discard(leader.address)
        await leader.start()

    run_quorum(scenario)


def test_voter_at_another_address_is_known_there_after_its_restart() -> None:
    async def scenario(cluster: Cluster) -> None:
        leader = await cluster.leader()
        moved = other_than(cluster, leader)
        await moved.stop()
        moved.address = Address("test", 9500 + moved.key.id)
        await moved.start()
        await cluster.until(
            lambda: all(
                present(r.live.voters.get(moved.key.id)).address == moved.address for r in cluster.replicas
            )
        )
        await cluster.commit(b"a")

    run_quorum(scenario)
