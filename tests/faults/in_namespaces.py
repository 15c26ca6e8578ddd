"""What the tests of the root tier run in a process of its own: ``python in_namespaces.py PART ARGUMENT …``.

Only there may namespaces be entered. Ends with an assertion error if something is not as it should be.
"""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pykraft.jepsen_like.faults.clusters.process_cluster import FAST_FAILOVER, ProcessCluster
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Plan, Target
from pykraft.jepsen_like.faults.runs.run_config import RunConfig
from pykraft.jepsen_like.faults.runs.runner import main
from pykraft.jepsen_like.faults.surroundings.namespace_links import NamespaceLinks
from pykraft.jepsen_like.faults.surroundings.namespaces import (
    Network,
    address,
    address_for_the_run,
    enter_own_namespaces,
    inside,
)
from pykraft.jepsen_like.faults.surroundings.root import Root
from pykraft.jepsen_like.faults.surroundings.surroundings import CLIENTS, WHOLE, LinkState

PORT = 7_000
ABSENCE_S = 0.3
PATIENCE_S = 60.0
CUT, RESETS = LinkState(cut=True), LinkState(cut=True, resets=True)
RATE_BYTES_PER_S = 200_000
BEYOND_BYTES = 100_000
"""What passes at once at the beginning, and what is paid for only at the end: a packet of up to 64 KiB."""
DATAGRAMS = 60

ECHO = """
import socket, sys, threading
place = sys.argv[1], int(sys.argv[2])
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(place)
def answer_datagrams():
    while True:
        data, sender = datagrams.recvfrom(1500)
        datagrams.sendto(data, sender)
def serve(connection):
    try:
        while data := connection.recv(65536):
            print(data[:10], flush=True)
            connection.sendall(data)
    except OSError:
        pass
listener = socket.create_server(place)
threading.Thread(target=answer_datagrams, daemon=True).start()
print("up", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""
CALL = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])) as connection:
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
"""


def links() -> None:
    """Cuts, resets, losses and throttles are seen by plain sockets."""
    enter_own_namespaces()
    network = Network([1, 2, 3])
    network.make()
    with ExitStack() as ending:
        ending.callback(network.remove)
        server = ending.enter_context(_echo(1))
        state = NamespaceLinks([1, 2, 3])
        _check_cuts_between_nodes(state)
        _check_one_way(state, server)
        _check_resets(state)
        _check_losses(state)
        _check_throttle(state)
    network.make()  # there is nothing left in the way
    network.remove()


def _check_cuts_between_nodes(state: NamespaceLinks) -> None:
    assert _reaches(2, 1) and _reaches(3, 1) and _reaches(CLIENTS, 1)
    state.set(2, 1, CUT)
    assert _is_cut(2, 1) and _reaches(3, 1) and _reaches(CLIENTS, 1)
    state.set(2, 1, WHOLE)
    state.set(CLIENTS, 1, CUT)
    assert _reaches(2, 1) and _is_cut(CLIENTS, 1)
    socket.create_connection((address_for_the_run(1), PORT), PATIENCE_S).close()
    state.set(CLIENTS, 1, WHOLE)
    assert _reaches(CLIENTS, 1)


def _check_one_way(state: NamespaceLinks, server: subprocess.Popen[str]) -> None:
    assert server.stdout is not None
    with socket.create_connection((address(1), PORT), PATIENCE_S) as connection:
        state.set(1, CLIENTS, CUT)
        connection.sendall(b"one way")
        assert "b'one way'\n" in iter(server.stdout.readline, "")
        connection.settimeout(ABSENCE_S)
        try:
            raise AssertionError(f"it answered {connection.recv(10)!r}")
        except TimeoutError:
            pass
        state.set(1, CLIENTS, WHOLE)
        connection.settimeout(PATIENCE_S)
        assert connection.recv(10) == b"one way"


def _check_resets(state: NamespaceLinks) -> None:
    with socket.create_connection((address(1), PORT), PATIENCE_S) as connection:
        state.set(CLIENTS, 1, RESETS)
        try:
            connection.sendall(b"x")
            raise AssertionError(f"it answered {connection.recv(1)!r}")
        except ConnectionResetError:
            pass
    try:
        socket.create_connection((address(1), PORT), PATIENCE_S)
        raise AssertionError("it could connect")
    except ConnectionRefusedError:
        pass
    state.set(CLIENTS, 1, WHOLE)


def _check_losses(state: NamespaceLinks) -> None:
    state.set(CLIENTS, 1, LinkState(loss=0.5))
    arrived = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(PATIENCE_S)
        for _ in range(DATAGRAMS):
            datagrams.sendto(b"x", (address(1), PORT))
        try:
            while arrived < DATAGRAMS and datagrams.recv(1):
                arrived += 1
                datagrams.settimeout(ABSENCE_S)
        except TimeoutError:
            pass
    assert 0 < arrived < DATAGRAMS, arrived
    state.set(CLIENTS, 1, WHOLE)


def _check_throttle(state: NamespaceLinks) -> None:
    """Only a limit from above is certain on a busy machine."""
    data = bytes(3 * RATE_BYTES_PER_S)
    state.set(1, CLIENTS, LinkState(bytes_per_s=RATE_BYTES_PER_S))
    with socket.create_connection((address(1), PORT), PATIENCE_S) as connection:
        start_s = time.monotonic()
        sending = threading.Thread(target=connection.sendall, args=(data,))
        sending.start()
        received = 0
        while received < len(data):
            received += len(connection.recv(65536))
        took_s = time.monotonic() - start_s
        sending.join()
    assert len(data) <= 1.1 * RATE_BYTES_PER_S * took_s + BEYOND_BYTES, took_s
    state.set(1, CLIENTS, WHOLE)


@contextmanager
def _echo(node_id: int) -> Iterator[subprocess.Popen[str]]:
    command = [*inside(node_id), sys.executable, "-c", ECHO, address(node_id), str(PORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdout.readline() == "up\n"
        try:
            yield server
        finally:
            server.kill()


def _is_cut(source: int, target: int) -> bool:
    return not _reaches(source, target, ABSENCE_S)


def _reaches(source: int, target: int, timeout_s: float = PATIENCE_S) -> bool:
    """Whether a new connection is answered."""
    command = [*inside(source), sys.executable, "-c", CALL, address(target), str(PORT), str(timeout_s)]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


def stand(directory: str) -> None:
    """A node whose disk is frozen, for as long as this process lives."""
    enter_own_namespaces()
    with ProcessCluster(Path(directory), 1, FAST_FAILOVER, surroundings=Root()) as cluster:
        cluster.format()
        cluster.start()
        assert not cluster.surroundings.missing, cluster.surroundings.missing
        cluster.surroundings.disks[1].freeze()
        print(cluster.nodes[1].pid, flush=True)
        sys.stdin.read()


def play(directory: str) -> None:
    """A fault run: all nodes lose power."""
    plan = Plan(1, 5.0, (), (Fault(0, "power-loss-all", Target.ALL, 1.0, 0.2),))
    config = RunConfig(
        "append-flushed", tier=Root.tier, plan=plan, time_limit_s=plan.time_limit_s, out_dir=Path(directory)
    )
    sys.exit(main(config))


PARTS: dict[str, Callable[..., None]] = {"links": links, "stand": stand, "play": play}

if __name__ == "__main__":
    PARTS[sys.argv[1]](*sys.argv[2:])
