"""Processes are stopped, paused and distinguished as the nemesis needs."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.waits import WaitError, wait_until

PATIENT = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True)\nwhile True: time.sleep(0.05)"  # noqa: E501
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\nwhile True: time.sleep(0.05)"  # noqa: E501
TICKING = "import time\nwhile True: print('tick', flush=True); time.sleep(0.01)"
FAILING = "import sys; print('no space left'); sys.exit(7)"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    started: list[NodeProcess] = []

    def start(program: str) -> NodeProcess:
        node = NodeProcess(1, [sys.executable, "-c", program], tmp_path / "node-1.log")
        started.append(node)
        node.start()
        return node

    yield start
    for node in started:
        node.kill()


def _await_output(node: NodeProcess, text: str) -> None:
    wait_until(f"{text} in the output", lambda: text in node.output_tail(), 20)


def test_killed_node_ends_at_once_and_as_requested(start: object) -> None:
    assert callable(start)
    node = start(PATIENT)
    _await_output(node, "up")
    assert node.serving
    node.kill()
    assert not node.running
    assert node.unordered_exit is None


def test_node_that_ends_by_itself_is_distinguished_from_one_that_was_stopped(start: object) -> None:
    assert callable(start)
    node = start(FAILING)
    wait_until("the exit", lambda: not node.running, 20)
    assert node.unordered_exit == 7
    assert "no space left" in node.output_tail()


def test_ends_that_were_no_orderly_stops_are_counted(start: object) -> None:
    assert callable(start)
    node = start(PATIENT)
    _await_output(node, "up")
    assert node.stop(timeout_s=20)
    assert node.unclean_ends == 0
    node.start()
    node.kill()
    assert node.unclean_ends == 1
    node.start()
    assert node.unclean_ends == 1
    node.kill()
    assert node.unclean_ends == 2


def test_asked_node_ends_cleanly_even_when_paused(start: object) -> None:
    assert callable(start)
    node = start(PATIENT)
    _await_output(node, "up")
    node.pause()
    assert node.running and not node.serving
    assert node.stop(timeout_s=20)
    assert node.unordered_exit is None


def test_next_process_that_ends_by_itself_was_not_asked_to(
    start: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody starts it as soon as the one that was asked is gone."""
    assert callable(start)
    node = start(PATIENT)
    _await_output(node, "up")
    wait = node._process.wait

    def wait_and_start(timeout_s: float) -> int:
        status: int = wait(timeout_s)
        node.command = (sys.executable, "-c", FAILING)
        node.start()
        return status

    monkeypatch.setattr(node._process, "wait", wait_and_start)
    assert node.stop(timeout_s=20)
    wait_until("the next exit", lambda: not node.running, 20)
    assert node.unordered_exit == 7


def test_node_that_will_not_stop_is_killed_and_reported(start: object) -> None:
    assert callable(start)
    node = start(STUBBORN)
    _await_output(node, "up")
    assert not node.stop(timeout_s=0.2)
    assert not node.running


def test_paused_node_does_nothing_until_it_is_resumed(start: object, tmp_path: Path) -> None:
    assert callable(start)
    node = start(TICKING)
    _await_output(node, "tick")
    output = tmp_path / "node-1.log"
    state = Path(f"/proc/{node._process.pid}/stat")
    node.pause()
    if state.exists():
        wait_until("the stop", lambda: state.read_text().rpartition(")")[2].split()[0] == "T", 20)
    size = output.stat().st_size
    with pytest.raises(WaitError):
        wait_until("a tick while paused", lambda: output.stat().st_size > size, 0.2)
    node.resume()
    wait_until("a tick after resuming", lambda: output.stat().st_size > size, 20)


def test_restarted_node_appends_to_its_output(start: object) -> None:
    assert callable(start)
    node = start(PATIENT)
    _await_output(node, "up")
    node.kill()
    node.start()
    wait_until("the second start", lambda: node.output_tail().count("up") == 2, 20)


def test_free_ports_are_different_and_below_the_range_of_outgoing_connections() -> None:
    ports = free_ports(6)
    assert len(set(ports)) == 6
    assert all(15_000 <= port < 32_768 for port in ports)


def test_wait_names_what_it_waited_for() -> None:
    with pytest.raises(WaitError, match="the moon: not within 0 s"):
        wait_until("the moon", lambda: False, 0.01)


COUNTING = """
import signal, sys, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1) or print('asked', flush=True))
print('up', flush=True)
while not asked: time.sleep(0.01)
time.sleep(0.5)
sys.exit(0 if len(asked) == 1 else 1)
"""


def test_two_that_stop_a_node_ask_it_once(start: object) -> None:
    """A second SIGTERM ends a node of pykraft at once, out of order."""
    assert callable(start)
    node = start(COUNTING)
    _await_output(node, "up")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(node.stop, 20)
        _await_output(node, "asked")
        assert node.stop(20) and first.result()
    assert node.unordered_exit is None and node.unclean_ends == 0
