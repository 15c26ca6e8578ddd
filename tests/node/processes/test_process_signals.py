"""Signals that reach a node only as a process: from its terminal, and through the process that started it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.node.lone_node import LoneNode, create_topic, running

pytestmark = pytest.mark.slow

UNTIL_ENDED_S = 45.0


def test_node_that_nohup_started_outlives_its_terminal(tmp_path: Path) -> None:
    ignores = ("sh", "-c", 'trap "" HUP; exec "$0" "$@"')
    with running(LoneNode(tmp_path / "node", prefix=ignores)) as node, node.client() as client:
        assert node.process.pid is not None
        os.kill(node.process.pid, signal.SIGHUP)
        for number in range(3):  # it would have noticed the signal by the second request
            create_topic(client, f"t{number}")
        assert node.process.stop(), node.output
        assert "SIGTERM: stopping" in node.output and "SIGHUP" not in node.output


def test_node_of_a_dev_cluster_stops_when_it_is_asked_itself(
    start_pykraft: Callable[..., Any], tmp_path: Path
) -> None:
    with start_pykraft("dev", "--port", "0", "--nodes", "2", "--data-dir", str(tmp_path)) as running:
        asked = int(running.wait_for("Node 2: ").rpartition(" ")[2])
        running.wait_for("Bootstrap servers:")
        os.kill(asked, signal.SIGTERM)
        running.wait_for("Node 2 ended (exit code 0); the others continue", UNTIL_ENDED_S)
        assert running.stop() == 1, running.printed
