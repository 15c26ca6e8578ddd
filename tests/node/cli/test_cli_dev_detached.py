"""``pykraft dev --detach``, ``status``, ``logs`` and ``stop``; ``--topics``; what is refused."""

import itertools
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.node.cli.dev.detached import stop_detached
from pykraft.node.cli.dev.state import TEMPORARY_FILE, DevState, Home
from pykraft.runtime.directory_lock import DirectoryLock
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

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
    assert (again.returncode, again.stdout) == (1, "") and "is already running" in again.stderr
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
    assert Path(state["data_dir"]).is_dir()
    assert dev("--detach", "--port", "0").returncode == 0
    assert not Path(state["data_dir"]).exists()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = Home("dev")
    home.make()
    return home


def hold_a_node(directory: Path) -> DirectoryLock:
    (directory / "node-1").mkdir()
    return DirectoryLock(str(directory / "node-1"))


def test_one_stop_removes_the_data_of_a_killed_cluster_when_its_nodes_have_ended(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = home.make_temporary()
    lock = hold_a_node(data)
    looks: list[bool] = []

    def end_the_node_at_the_third_look(pause_s: float) -> None:
        looks.append(data.exists() and home.is_held)
        if len(looks) == 3:
            lock.release()

    monkeypatch.setattr(time, "sleep", end_the_node_at_the_third_look)
    assert not stop_detached(home)
    assert looks == [True] * 3
    assert not data.exists() and not home.is_held


def test_cluster_that_is_killed_while_it_is_stopped_leaves_nothing(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = home.make_temporary()
    held = [home.hold(), hold_a_node(data)]
    home.write(DevState("", "", (), str(data), is_temporary=True, process_id=1, started_ms=0))
    monkeypatch.setattr(os, "kill", lambda process_id, number: None)
    monkeypatch.setattr(time, "sleep", lambda pause_s: held.pop(0).release())
    assert stop_detached(home)
    assert not data.exists() and home.read() is None


def test_nodes_that_do_not_end_are_not_waited_for_without_end(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = home.make_temporary()
    lock = hold_a_node(data)
    ticks = itertools.count(0, 20)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    monkeypatch.setattr(time, "sleep", lambda pause_s: None)
    with pytest.raises(click.ClickException, match="its nodes have not ended within 60 s"):
        stop_detached(home)
    assert data.exists() and not home.is_held
    lock.release()
    assert not stop_detached(home) and not data.exists()


def test_directory_that_is_no_temporary_one_is_left_alone(home: Home, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (home.path / TEMPORARY_FILE).write_bytes(os.fsencode(tmp_path / "mine"))
    assert not stop_detached(home)
    assert (tmp_path / "mine").is_dir() and not (home.path / TEMPORARY_FILE).exists()


def test_temporary_directory_is_known_before_there_is_one(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_killed(path: Path, mode: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "mkdir", be_killed)
        home.make_temporary()
    known = Path(os.fsdecode((home.path / TEMPORARY_FILE).read_bytes()))
    known.mkdir()  # as if the process had been killed one moment later
    assert not stop_detached(home)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize(("nodes", "then"), [("1", ("--detach", "--port", "0")), ("3", ("stop",))])
def test_cluster_that_is_killed_while_it_starts_leaves_nothing(
    dev: Pykraft, start_pykraft: Pykraft, tmp_path: Path, nodes: str, then: tuple[str, ...]
) -> None:
    temporary = tmp_path / "tmp"
    Home("dev").make()
    with start_pykraft("dev", "--port", "0", "--nodes", nodes, "--detached-as", "dev") as starting:
        wait_until("it has a directory", lambda: any(temporary.glob("*/node-1/.lock")), PATIENCE_S)
        (directory,) = temporary.iterdir()
        starting.process.kill()
        starting.process.wait()
    assert directory.is_dir()
    assert dev(*then).returncode == (3 if then == ("stop",) else 0)
    assert not directory.exists()


def test_cluster_that_does_not_start_says_why_and_leaves_nothing(dev: Pykraft) -> None:
    refused = dev("--detach", "--port", "0", "--override", "log.segment.bytes=none")
    assert refused.returncode == 1
    assert (
        refused.stderr.startswith("Error: the cluster did not start:\n")
        and "log.segment.bytes" in refused.stderr
    )
    assert dev("status").returncode == 3


def test_topic_that_cannot_be_created_ends_the_cluster(dev: Pykraft) -> None:
    refused = dev("--port", "0", "--topics", "a.b,a_b")
    assert refused.returncode == 1
    assert "Error: topic a_b" in refused.stderr and "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--topics", "t:0"), "'t:0': expected NAME"),
        (("--topics", "t:1:1:1"), "expected NAME"),
        (("--topics", ":1"), "expected NAME"),
        (("--topics", "t:10001"), "more than 10,000 partitions"),
        (("--topics", "t,t:2"), "t is there twice"),
        (("--detach", "--topics", "a b:3"), "topic name 'a b' has characters other than"),
        (("--topics", "__cluster_metadata"), "the name of the metadata log"),
        (("--topics", "t:1:2"), "t: 2 replicas, but 1 node"),
        (("status", "--name", "../x"), "letters, digits"),
        (("stop", "--name", ""), "letters, digits"),
    ],
)
def test_bad_options_are_refused(dev: Pykraft, options: tuple[str, ...], reason: str) -> None:
    refused = dev(*options)
    assert refused.returncode == 2 and reason in refused.stderr, refused.stderr


def test_host_of_another_machine_is_named(dev: Pykraft) -> None:
    refused = dev("--host", "192.0.2.1")
    assert refused.returncode == 1
    assert refused.stderr == "Error: cannot listen on 192.0.2.1: it is not an address of this machine\n"


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
