"""The portable tier where its shim cannot work: it stands, and says what it lacks."""

from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.kinds import links
from pykraft.jepsen_like.faults.surroundings import shim
from pykraft.jepsen_like.faults.surroundings.portable import Portable


def test_without_a_compiler_nodes_are_reached_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shim, "why_unavailable", lambda: "no C compiler (cc)")
    surroundings = Portable()
    cluster = ProcessCluster(tmp_path, 3, surroundings=surroundings)
    surroundings.open(tmp_path, cluster.listeners)
    assert surroundings.links is None
    assert any("no C compiler" in what for what in surroundings.missing)
    assert surroundings.advertised(1, cluster.listeners[1].broker) == cluster.listeners[1].broker
    assert not surroundings.environment(1)
    assert all(kind.why_unavailable(cluster) for kind in links.KINDS)
    surroundings.close()


def test_clients_find_a_broker_where_they_did_before_it_was_opened(tmp_path: Path) -> None:
    if reason := shim.why_unavailable():
        pytest.skip(f"no shim: {reason}")
    surroundings = Portable()
    cluster = ProcessCluster(tmp_path, 2, surroundings=surroundings)
    before = cluster.bootstrap_servers
    try:
        surroundings.open(tmp_path, cluster.listeners)
        assert cluster.bootstrap_servers == before
        assert str(cluster.listeners[1].broker) not in before
        assert "LD_PRELOAD" in surroundings.environment(1)
        assert surroundings.links is not None
    finally:
        surroundings.close()
        surroundings.close()
