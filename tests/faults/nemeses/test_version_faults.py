"""Nodes that run another version of the package, which must be the one that is really imported."""

import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import pykraft
from pykraft.jepsen_like.faults.clusters.other_version import (
    OtherVersion,
    OtherVersionError,
    find_other_version,
)
from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.nemeses.choice import KINDS
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.testing.processes.waits import PATIENCE_S, WaitError

HERE = Path(pykraft.__file__).parent.resolve()
EARLIER = "5bb5d6bd"
"""It knows the feature levels that clusters have today."""


@pytest.fixture
def a_copy(tmp_path: Path) -> Path:
    """This package under its name in another directory."""
    ignored = shutil.ignore_patterns(".*", "tests", "out", "build", "docs", "benchmarks", "__pycache__")
    return Path(shutil.copytree(HERE, tmp_path / "copies" / "pykraft", ignore=ignored))


def test_directory_is_what_is_imported(tmp_path: Path, a_copy: Path) -> None:
    inside = find_other_version(str(a_copy), tmp_path / "other")
    above = find_other_version(str(a_copy.parent), tmp_path / "unused")
    assert inside is not None and inside.path == tmp_path / "other"
    assert above is not None and above.path == a_copy.parent and not (tmp_path / "unused").exists()


def test_what_is_no_package_is_refused(tmp_path: Path, a_copy: Path) -> None:
    with pytest.raises(OtherVersionError, match="is not the package pykraft"):
        find_other_version(str(tmp_path), tmp_path / "other")
    (a_copy / "node" / "node.py").write_text("1 +")
    with pytest.raises(OtherVersionError, match="cannot be imported"):
        find_other_version(str(a_copy), tmp_path / "other")
    with pytest.raises(OtherVersionError, match="git"):
        find_other_version("no-such-revision", tmp_path / "another")


def test_without_a_release_nothing_is_played(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path, 3)
    for name in ("other-version", "rolling-upgrade"):
        assert "--other-version" in (KINDS[name].why_unavailable(cluster) or "")


def earlier_version(directory: Path) -> OtherVersion:
    try:
        subprocess.run(["git", "-C", HERE, "cat-file", "-e", EARLIER], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"revision {EARLIER} is not here: no git, or not the whole history")
    found = find_other_version(EARLIER, directory)
    assert found is not None
    return found


@pytest.mark.slow
def test_node_runs_an_earlier_version_on_its_files_and_returns(tmp_path: Path) -> None:
    version = earlier_version(tmp_path / "earlier")
    directory = tmp_path / "cluster"
    with ProcessCluster(directory, 3, FAST_FAILOVER, dynamic_voters=True, other_version=version) as cluster:
        cluster.format()
        cluster.start()
        cluster.create_topic("t", 1, configs={"min.insync.replicas": "2"})
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        repair = KINDS["other-version"].inflict(cluster, Fault(0, "", Target.ANY, 0.0, 1.0), [2])
        assert cluster.nodes[2].environment.items() >= version.environment.items()
        producer.produce("t", "to the earlier version", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        cluster.wait_in_sync("t", PATIENCE_S)
        repair()
        producer.produce("t", "to this version", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        cluster.wait_in_sync("t", PATIENCE_S)
        assert not cluster.nodes[2].environment
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=PATIENCE_S) == (0, 2)
        consumer.close()
        assert cluster.stop() == [], cluster.output_tails()


@pytest.mark.slow
def test_version_that_does_not_start_is_told_and_taken_back(tmp_path: Path, a_copy: Path) -> None:
    (a_copy / "node" / "node.py").write_text("raise SystemExit('nothing works')")
    version = OtherVersion("broken", a_copy.parent)
    with ProcessCluster(tmp_path / "cluster", 1, other_version=version) as cluster:
        cluster.format()
        cluster.start()
        tell = KINDS["other-version"].inflict(cluster, Fault(0, "", Target.ANY, 0.0, 1.0), [1])
        with pytest.raises(WaitError, match=r"(?s)node 1 does not start: .*nothing works"):
            tell()
        assert cluster.nodes[1].running and not cluster.nodes[1].environment
        assert cluster.stop() == [], cluster.output_tails()
