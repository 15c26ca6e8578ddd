"""Real nodes behind breakable links: what a cluster does while they are broken, and that it comes back."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, Repair
from pykraft.jepsen_like.faults.nemeses.kinds import bad_links, links
from pykraft.jepsen_like.faults.surroundings.portable import Portable
from pykraft.jepsen_like.faults.surroundings.shim import why_unavailable
from pykraft.kafka_client.cluster_probe import ClusterProbe
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_unavailable() is not None, reason=f"no shim: {why_unavailable()}"),
]

TOPIC = "t"
KINDS = {kind.name: kind for kind in (*links.KINDS, *bad_links.KINDS)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    directory = tmp_path_factory.mktemp("links") / "cluster"
    with ProcessCluster(directory, 3, FAST_FAILOVER, surroundings=Portable()) as cluster:
        cluster.format()
        cluster.start()
        cluster.create_topic(TOPIC, 3)
        yield cluster
        assert cluster.stop() == []
        assert (directory / "proxy.log").read_text() == ""
        assert "Traceback" not in cluster.output_tails(1 << 20)


@pytest.fixture
def probe(cluster: ProcessCluster) -> Iterator[ClusterProbe]:
    with closing(cluster.probe("test")) as probe:
        yield probe
        cluster.wait_in_sync(TOPIC, PATIENCE_S)


def inflict(cluster: ProcessCluster, kind: Kind, victim: int | None, **settings: float) -> Repair:
    drawn = {**kind.settings(random.Random(1)), **settings}
    victims = list(cluster.members) if victim is None else [victim]
    return kind.inflict(cluster, Fault(0, kind.name, Target.ANY, 0.0, 1.0, 0.3, False, drawn), victims)


def leads_nothing(cluster: ProcessCluster, probe: ClusterProbe, node_id: int) -> Callable[[], bool]:
    """Whether the others agree that this node leads no partition and is in sync with none."""

    def leads_nothing() -> bool:
        views = [probe.topic(other, TOPIC) for other in cluster.members if other != node_id]
        return all(
            view is not None and all(node_id not in (p.leader, *p.isr) for p in view.partitions.values())
            for view in views
        )

    return leads_nothing


def leader_of_first(probe: ClusterProbe, cluster: ProcessCluster) -> int:
    view = probe.topic(cluster.members[0], TOPIC, timeout_ms=10_000)
    assert view is not None
    return view.partitions[0].leader


@pytest.mark.parametrize(
    ("name", "settings"), [("cut-node", {}), ("cut-one-way", {"hears": 1}), ("cut-one-way", {"hears": 0})]
)
def test_node_that_is_not_heard_loses_its_leaderships_and_returns_in_sync(
    cluster: ProcessCluster, probe: ClusterProbe, name: str, settings: dict[str, float]
) -> None:
    victim = leader_of_first(probe, cluster)
    repair = inflict(cluster, KINDS[name], victim, **settings)
    try:
        wait_until("other leaders", leads_nothing(cluster, probe, victim), PATIENCE_S)
    finally:
        repair()


def test_node_without_clients_keeps_its_leaderships(cluster: ProcessCluster, probe: ClusterProbe) -> None:
    victim = leader_of_first(probe, cluster)
    cut_off = ClusterProbe({victim: cluster.surroundings.advertised(victim, cluster.addresses[victim])})
    with closing(cut_off):
        assert cut_off.topic(victim, TOPIC, timeout_ms=10_000) is not None
        repair = inflict(cluster, KINDS["cut-clients"], victim)
        try:
            assert cut_off.topic(victim, TOPIC) is None
            assert leader_of_first(probe, cluster) == victim
        finally:
            repair()
        wait_until("clients again", lambda: cut_off.topic(victim, TOPIC) is not None, PATIENCE_S)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_is_repaired(cluster: ProcessCluster, probe: ClusterProbe, kind: Kind) -> None:
    if reason := kind.why_unavailable(cluster):
        pytest.skip(reason)
    repair = inflict(cluster, kind, None if Target.ALL in kind.targets else 1)
    repair()
