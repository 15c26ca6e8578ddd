"""``pykraft dev --detach``, ``status``, ``logs`` and ``stop``; ``--topics``; what is refused."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykraft.jepsen_like.awaiting import PATIENCE_S, wait_until
from pykraft.kafka_client.admin import AdminClient
from pykraft.node.cli.dev_state import Home

pytestmark = pytest.mark.slow

Pykraft = Callable[..., Any]


@pytest.fixture
def dev(pykraft: Pykraft, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pykraft]:
    """``pykraft dev`` with a state directory of the test's own; what it detached is stopped at the end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    yield lambda *arguments: pykraft("dev", *arguments)
    pykraft("dev", "stop")


def test_detached_cluster_is_found_again_and_stopped(dev: Pykraft, tmp_path: Path) -> None:
    started = dev("--detach", "--port", "0", "--topics", "orders:3,audit", "--topics", "payments:2:1")
    assert started.returncode == 0, started.stderr
    assert "export PYKRAFT_BOOTSTRAP_SERVER=127.0.0.1:" in started.stdout
    state = json.loads(dev("status", "--json").stdout)["dev"]
    with AdminClient(state["bootstrap_servers"]) as admin:
        names = [topic.name for topic in admin.list_topics()]
        found = {topic.name: len(topic.partitions) for topic in admin.describe_topics(names)}
    assert found == {"orders": 3, "audit": 1, "payments": 2}
    again = dev("--detach", "--port", "0")
    assert (again.returncode, again.stdout) == (1, "") and "runs already" in again.stderr
    assert f"running since {time.strftime('%Y')}" in dev("status").stdout
    assert "orders: created" in dev("logs").stdout
    stopped = dev("stop")
    assert (stopped.returncode, stopped.stdout) == (0, "dev is stopped\n")
    assert dev("status").returncode == dev("stop").returncode == 3
    assert list((tmp_path / "tmp").iterdir()) == []
    assert "orders: created" in dev("logs", "-n", "100").stdout


def test_three_detached_nodes_keep_their_data_and_their_topics(dev: Pykraft, tmp_path: Path) -> None:
    data = tmp_path / "data"
    options = ("--nodes", "3", "--port", "0", "--data-dir", str(data), "--topics", "t:2:3", "--no-http")
    for said in ("created", "was there before"):
        started = dev("--detach", *options)
        assert started.returncode == 0, started.stderr
        assert "Console" not in started.stdout and "It is kept" in started.stdout
        nodes = json.loads(dev("status", "--json").stdout)["dev"]["nodes"]
        assert len({node["process_id"] for node in nodes}) == 3
        assert f"t: {said}" in dev("logs").stdout
        assert dev("stop").returncode == 0
    assert (data / "node-3" / "meta.properties").exists()


def test_cluster_that_was_killed_does_not_run_and_can_be_started_again(dev: Pykraft) -> None:
    assert dev("--detach", "--port", "0").returncode == 0
    state = json.loads(dev("status", "--json").stdout)["dev"]
    os.kill(state["process_id"], signal.SIGKILL)
    wait_until("its lock is free", lambda: not Home("dev").is_held, PATIENCE_S)
    assert dev("status").returncode == 3
    assert json.loads(dev("status", "--json").stdout) == {"dev": None}
    assert dev("--detach", "--port", "0").returncode == 0


def test_cluster_that_does_not_start_says_why_and_leaves_nothing(dev: Pykraft) -> None:
    refused = dev("--detach", "--port", "0", "--override", "log.segment.bytes=none")
    assert refused.returncode == 1
    assert (
        refused.stderr.startswith("Error: the cluster did not start:\n")
        and "log.segment.bytes" in refused.stderr
    )
    assert dev("status").returncode == 3


def test_topic_that_cannot_be_created_ends_the_cluster(dev: Pykraft) -> None:
    refused = dev("--port", "0", "--topics", "not/a/name:1")
    assert refused.returncode == 1
    assert "Error: topic not/a/name" in refused.stderr and "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--topics", "t:0"), "'t:0': expected NAME"),
        (("--topics", "t:1:1:1"), "expected NAME"),
        (("--topics", ":1"), "expected NAME"),
        (("--topics", "t:10001"), "more than 10,000 partitions"),
        (("--topics", "t,t:2"), "t is there twice"),
        (("--topics", "t:1:2"), "t: 2 replicas, but 1 node"),
        (("status", "--name", "../x"), "letters, digits"),
        (("stop", "--name", ""), "letters, digits"),
    ],
)
def test_bad_options_are_refused(dev: Pykraft, options: tuple[str, ...], reason: str) -> None:
    refused = dev(*options)
    assert refused.returncode == 2 and reason in refused.stderr, refused.stderr


def test_directory_with_other_files_is_refused_and_left_alone(dev: Pykraft, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    for refused in (dev("--data-dir", str(mine)), dev("--data-dir", str(mine / "thesis.txt"))):
        assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert [path.name for path in mine.iterdir()] == ["thesis.txt"]


def test_logs_can_be_followed_until_the_cluster_ends(dev: Pykraft, start_pykraft: Pykraft) -> None:
    assert dev("--detach", "--port", "0").returncode == 0
    with start_pykraft("dev", "logs", "--follow") as following:
        following.wait_for("Data: ")
        assert dev("stop").returncode == 0
        assert following.process.wait(PATIENCE_S) == 0
    assert dev("logs", "--name", "other").returncode == 1
