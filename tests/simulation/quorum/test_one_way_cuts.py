"""Lasting cuts in one direction: no pattern of them disturbs a quorum or stops its progress."""

import itertools

import pytest

from pykraft.jepsen_like.simulation.quorum.cluster import SimCluster
from pykraft.jepsen_like.simulation.quorum.directed.elections import elect
from pykraft.jepsen_like.simulation.quorum.options import ClusterOptions
from pykraft.quorum.core.roles import Follower
from tests.narrowing import as_type

PAIRS = list(itertools.permutations((1, 2, 3), 2))
SETTLED_MS = 3_000


def _cluster(seed: int = 21) -> SimCluster:
    cluster = SimCluster(seed, ClusterOptions(voters=3, max_delay_ms=2, max_flush_ms=1))
    cluster.start_all()
    elect(cluster, cluster.replicas[1])
    cluster.start_client()
    return cluster


def _run(cluster: SimCluster, duration_ms: int) -> None:
    cluster.run_until(lambda: False, cluster.scheduler.now_ms + duration_ms)


@pytest.mark.parametrize("number", range(1, 64))
def test_two_connected_voters_make_progress_whatever_else_is_cut(number: int) -> None:
    """Every set of one-way cuts among three voters, applied to an active leader and never healed."""
    cuts = [pair for bit, pair in enumerate(PAIRS) if number >> bit & 1]
    cluster = _cluster()
    for sender, receiver in cuts:
        cluster.links.cut([sender], [receiver])
    _run(cluster, SETTLED_MS)
    epochs = {r.id: r.core.state.epoch for r in cluster.replicas.values()}
    acknowledged = len(cluster.checker.history.acknowledged)
    _run(cluster, SETTLED_MS)
    assert {r.id: r.core.state.epoch for r in cluster.replicas.values()} == epochs, "an epoch still rises"
    if any((a, b) not in cuts and (b, a) not in cuts for a, b in ((1, 2), (1, 3), (2, 3))):
        assert len(cluster.checker.history.acknowledged) > acknowledged + 50


@pytest.mark.parametrize("isolated", [2, 3])
def test_voter_that_can_send_but_not_receive_does_not_disturb_the_leader(isolated: int) -> None:
    cluster = _cluster()
    cluster.links.cut([1, 2, 3], [isolated])
    _run(cluster, 10_000)
    assert cluster.elections == 1 and cluster.leader() is cluster.replicas[1]
    assert all(r.core.state.epoch == 1 for r in cluster.replicas.values())


def test_paused_follower_does_not_depose_the_leader_when_it_resumes() -> None:
    cluster = _cluster()
    for _ in range(5):
        cluster.pause(cluster.replicas[3], 900)
        _run(cluster, 1_500)
        assert cluster.replicas[3].core.state.leader_id == 1
    assert cluster.elections == 1


@pytest.mark.parametrize("seed", range(30))
def test_dead_leader_is_replaced_within_its_followers_fetch_timeout_and_two_round_trips(seed: int) -> None:
    """If two replicas start an election at once, a back-off is added."""
    cluster = SimCluster(seed, ClusterOptions(voters=3, max_delay_ms=2, max_flush_ms=1))
    cluster.start_all()
    elect(cluster, cluster.replicas[1])
    _run(cluster, 300 + seed)
    cluster.replicas[1].crash()
    died_ms = cluster.scheduler.now_ms
    deadline_ms = min(
        as_type(r.core.state.role, Follower).fetch_deadline_ms
        for r in (cluster.replicas[2], cluster.replicas[3])
    )
    cluster.run_until(lambda: cluster.leader() is not None, died_ms + 1_000)
    leader = cluster.leader()
    assert leader is not None
    split_ms = 0 if leader.core.state.epoch == 2 else 100
    assert cluster.scheduler.now_ms <= deadline_ms + 2 * 2 * 2 + 2 + split_ms
