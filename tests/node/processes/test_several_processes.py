"""What two processes must not share, and what they must not have in common: only real processes show it."""

import select
import socket
from collections.abc import Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.surroundings.surroundings import Surroundings
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.groups import (
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from pykraft.testing.processes.waits import wait_until
from tests.node.lone_node import HOST, IS_UP, UP_TIMEOUT_S, LoneNode, running

pytestmark = pytest.mark.slow

MEMBERS = 100
FAILOVER_TIMEOUT_S = 30.0


def test_directories_of_a_running_process_are_refused_to_every_other(tmp_path: Path) -> None:
    """To the second one that tries it, too: a refusal leaves the lock as it is."""
    with running(LoneNode(tmp_path / "first")) as first, ExitStack() as stack:
        for number in range(2):
            other = LoneNode(tmp_path / f"other-{number}", {"log.dirs": str(first.data)})
            stack.callback(other.process.kill)
            assert not other.start(), "two processes write to one directory"
            assert f"{first.data} is in use by another process" in other.output
        assert first.process.stop(), first.output


def test_address_of_a_running_process_is_refused_to_another(tmp_path: Path) -> None:
    with running(LoneNode(tmp_path / "first")) as first, ExitStack() as stack:
        other = LoneNode(tmp_path / "other")
        text = other.file.read_text().replace(f"PLAINTEXT://{other.address}", f"PLAINTEXT://{first.address}")
        other.file.write_text(text)
        other.format()
        stack.callback(other.process.kill)
        assert not other.start(), "the kernel deals clients out to two processes"
        assert f"cannot listen on PLAINTEXT://{first.address}: address already in use" in other.output


def test_process_gives_no_id_that_its_predecessor_has_given(tmp_path: Path) -> None:
    """Members of a group outlive the process that gave them their ids."""
    with running(LoneNode(tmp_path / "node")) as node:
        before = _ids_of_new_members(node)
        assert node.process.stop() and node.start(), node.output
        after = _ids_of_new_members(node)
    assert len(before) == len(after) == MEMBERS
    assert not before & after


def _ids_of_new_members(node: LoneNode) -> set[str]:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    with node.client() as client:

        def draw() -> str:
            answer = client.call(request, 5)
            return answer.member_id if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED else ""

        def is_coordinated() -> bool:
            client.call(FindCoordinatorRequest(key="g"), 3)
            return draw() != ""

        wait_until("the group has a coordinator", is_coordinated, 60)
        return {draw() for _ in range(MEMBERS)}


def test_nodes_find_controllers_again_that_were_killed(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, 3, FAST_FAILOVER) as cluster:
        cluster.format()
        cluster.start()
        with closing(cluster.probe("test")) as probe:
            for _ in range(2):
                killed = cluster.active_controller(probe, FAILOVER_TIMEOUT_S)
                assert killed is not None
                cluster.nodes[killed].kill()
                wait_until(
                    "another controller",
                    lambda killed=killed: cluster.active_controller(probe, 1) not in (None, killed),  # type: ignore[misc]
                    FAILOVER_TIMEOUT_S,
                )
                cluster.nodes[killed].start()
                cluster.wait_back(killed)
        cluster.create_topic("t", 1)
        assert cluster.stop() == []


class _BehindAProxy(Surroundings):
    """The environment of all nodes names an HTTP proxy."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port

    def environment(self, node_id: int) -> Mapping[str, str]:
        proxy = f"http://{HOST}:{self._port}"
        return {"http_proxy": proxy, "https_proxy": proxy, "grpc_proxy": proxy, "no_proxy": ""}


def test_nodes_do_not_call_each_other_through_the_proxy_of_their_environment(tmp_path: Path) -> None:
    with socket.socket() as proxy:
        proxy.bind((HOST, 0))
        proxy.listen()
        port = proxy.getsockname()[1]
        with ProcessCluster(tmp_path, 2, surroundings=_BehindAProxy(port)) as cluster:
            cluster.format()
            nodes = list(cluster.nodes.values())
            for node in nodes:
                node.start()

            def have_called() -> bool:
                return bool(select.select([proxy], [], [], 0)[0])

            def are_up() -> bool:
                return all(IS_UP in node.output_tail() for node in nodes)

            wait_until("nodes that are up", lambda: have_called() or are_up(), UP_TIMEOUT_S)
            assert not have_called()
            assert cluster.stop() == []
