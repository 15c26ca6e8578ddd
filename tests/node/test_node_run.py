"""Several nodes in one process: how they start and stop together."""

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from pykraft.node import run
from pykraft.node.config import ServerConfig
from pykraft.node.errors import StartError
from pykraft.node.node import Node


class FakeNode:
    """A node that starts as its test wants, and records what happens to it."""

    made: "list[FakeNode]"

    def __init__(self, config: "FakeConfig", world: None) -> None:
        self.behaviour = config.behaviour
        self.events: list[str] = []
        self.stop_error: Exception | None = None
        self.others_at_stop: list[list[str]] = []
        self.made.append(self)

    async def start(self) -> None:
        self.events.append("start")
        try:
            await self.behaviour(self)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            self.events.append("start ended")
            raise

    async def hand_over(self) -> None:
        await asyncio.sleep(0)
        if "up" in self.events:
            self.events.append("hand over")

    async def stop(self) -> None:
        self.others_at_stop = [list(node.events) for node in self.made]
        self.events.append("stop")
        if self.stop_error is not None:
            raise self.stop_error


class FakeConfig:
    def __init__(self, path: Path, behaviour: Callable[[FakeNode], Awaitable[None]]) -> None:
        self.node_id = 1
        self.is_controller = True
        self.http_listener = None
        self.all_dirs = (str(path),)
        self.metadata_log_dir = str(path)
        self.behaviour = behaviour


def as_configs(*configs: FakeConfig) -> list[ServerConfig]:
    return cast("list[ServerConfig]", list(configs))


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[FakeNode]:
    FakeNode.made = []
    monkeypatch.setattr(run, "Node", FakeNode)
    monkeypatch.setattr(run, "make_world", lambda *arguments, **options: None)
    return FakeNode.made


async def wait_for_ever(node: FakeNode) -> None:
    await asyncio.Event().wait()


async def fail(node: FakeNode) -> None:
    await asyncio.sleep(0)
    raise StartError("the port is taken")


def test_failed_start_ends_the_other_starts_before_anything_is_stopped(
    nodes: list[FakeNode], tmp_path: Path
) -> None:
    configs = as_configs(FakeConfig(tmp_path / "a", wait_for_ever), FakeConfig(tmp_path / "b", fail))
    with pytest.raises(StartError, match="the port is taken"):
        run.run_nodes(configs)
    assert nodes[0].events == ["start", "start ended", "stop"]
    assert nodes[1].events == ["start", "stop"]


def test_two_failing_starts_are_one_error(nodes: list[FakeNode], tmp_path: Path) -> None:
    configs = as_configs(*(FakeConfig(tmp_path / name, fail) for name in ("a", "b", "c")))
    with pytest.raises(StartError, match="the port is taken"):
        run.run_nodes(configs)
    assert all(node.events[-1] == "stop" for node in nodes)


def test_directory_that_cannot_be_locked_is_said_plainly(nodes: list[FakeNode], tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(StartError, match=r"node 1 does not start: .*Is a directory"):
        run.run_nodes(as_configs(FakeConfig(tmp_path, wait_for_ever)))
    assert not nodes


def test_node_that_cannot_stop_does_not_delay_the_others_and_is_an_error(
    nodes: list[FakeNode], tmp_path: Path
) -> None:
    async def come_up(node: FakeNode) -> None:
        node.events.append("up")

    def stop_at_once(ready: Sequence[Node]) -> None:
        nodes[0].stop_error = OSError("disk gone")
        os.kill(os.getpid(), signal.SIGTERM)

    configs = as_configs(*(FakeConfig(tmp_path / name, come_up) for name in ("a", "b")))
    assert run.run_nodes(configs, stop_at_once) == run.EXIT_FATAL
    assert [node.events for node in nodes] == [["start", "up", "hand over", "stop"]] * 2


def test_every_node_has_handed_over_before_any_stops(nodes: list[FakeNode], tmp_path: Path) -> None:
    async def come_up(node: FakeNode) -> None:
        node.events.append("up")

    configs = as_configs(*(FakeConfig(tmp_path / name, come_up) for name in ("a", "b", "c")))
    assert run.run_nodes(configs, lambda ready: os.kill(os.getpid(), signal.SIGTERM)) == 0
    for node in nodes:
        assert all("hand over" in events for events in node.others_at_stop)


def test_signal_during_the_start_ends_it_and_is_no_error(nodes: list[FakeNode], tmp_path: Path) -> None:
    async def be_stopped(node: FakeNode) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    configs = as_configs(FakeConfig(tmp_path / "a", be_stopped))
    assert run.run_nodes(configs, lambda ready: nodes[0].events.append("ready")) == 0
    assert nodes[0].events == ["start", "start ended", "stop"]


def test_second_signal_ends_an_orderly_stop_that_takes_too_long(
    nodes: list[FakeNode], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[object] = []
    ended = asyncio.Event()

    async def come_up(node: FakeNode) -> None:
        node.events.append("up")

    async def hang(node: FakeNode) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await ended.wait()

    def end(status: int) -> None:
        events.append(status)
        ended.set()

    monkeypatch.setattr(FakeNode, "stop", hang)
    monkeypatch.setattr(os, "_exit", end)
    configs = as_configs(FakeConfig(tmp_path / "a", come_up))
    run.run_nodes(
        configs,
        lambda ready: os.kill(os.getpid(), signal.SIGINT),
        on_abandon=lambda: events.append("abandoned"),
    )
    assert events == ["abandoned", run.EXIT_FATAL]


@pytest.mark.parametrize("when", ["before", "after"])
def test_nodes_stop_when_their_supervisor_ends(nodes: list[FakeNode], tmp_path: Path, when: str) -> None:
    async def come_up(node: FakeNode) -> None:
        node.events.append("up")

    ours, theirs = socket.socketpair()
    configs = as_configs(FakeConfig(tmp_path / "a", wait_for_ever if when == "before" else come_up))
    with ours, theirs:
        if when == "before":
            theirs.close()
        assert run.run_nodes(configs, lambda ready: theirs.close(), supervisor=ours) == 0
    assert nodes[0].events[-1] == "stop"
