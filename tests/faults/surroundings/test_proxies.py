"""Links through the proxy: what each state of a link does to connections, seen from both of their ends."""

import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pytest

from pykraft.jepsen_like.faults.surroundings.proxies import ProxyError, ProxyLinks
from pykraft.jepsen_like.faults.surroundings.surroundings import WHOLE, LinkState
from pykraft.runtime.address import Address
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.keeper import start_time
from pykraft.testing.processes.listeners import LOOPBACK
from pykraft.testing.processes.waits import PATIENCE_S, wait_until

NEAR, FAR = 1, 2
CUT = LinkState(cut=True)


class Wire:
    """A link from NEAR to a listener of FAR; both ends of its connections are sockets of the test."""

    def __init__(self, links: ProxyLinks, opened: ExitStack) -> None:
        self._links, self._opened = links, opened
        self._listener = opened.enter_context(socket.create_server((LOOPBACK, 0)))
        self._listener.settimeout(PATIENCE_S)
        self.port = links.listen(NEAR, FAR, Address(LOOPBACK, self._listener.getsockname()[1]))

    def call(self) -> socket.socket:
        near = self._opened.enter_context(socket.create_connection((LOOPBACK, self.port)))
        near.settimeout(PATIENCE_S)
        return near

    def answer(self) -> socket.socket:
        far = self._opened.enter_context(self._listener.accept()[0])
        far.settimeout(PATIENCE_S)
        return far

    def connect(self) -> tuple[socket.socket, socket.socket]:
        near = self.call()
        return near, self.answer()

    def nobody_calls(self) -> bool:
        self.settle()
        self._listener.setblocking(False)
        try:
            self._listener.accept()[0].close()
        except BlockingIOError:
            return True
        finally:
            self._listener.settimeout(PATIENCE_S)
        return False

    def is_silent(self, end: socket.socket) -> bool:
        """Whether nothing arrives at this end of what was sent before."""
        self.settle()
        end.setblocking(False)
        try:
            end.recv(1)
        except BlockingIOError:
            return True
        finally:
            end.settimeout(PATIENCE_S)
        return False

    def settle(self) -> None:
        """Until the proxy has seen what was sent before: each answer is given in a later turn of its loop."""
        for _ in range(3):
            self._links.set(FAR, FAR + 1, WHOLE)


@pytest.fixture
def links(tmp_path: Path) -> Iterator[ProxyLinks]:
    with closing(ProxyLinks(tmp_path / "proxy.log")) as links:
        links.listen(FAR, FAR + 1, Address(LOOPBACK, 1))
        yield links
    assert (tmp_path / "proxy.log").read_text() == ""


@pytest.fixture
def wire(links: ProxyLinks) -> Iterator[Wire]:
    with ExitStack() as opened:
        yield Wire(links, opened)


def receive(end: socket.socket, size_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < size_bytes and (piece := end.recv(size_bytes - len(data))):
        data += piece
    return bytes(data)


def is_reset(end: socket.socket) -> bool:
    try:
        end.recv(1)
    except ConnectionResetError:
        return True
    return False


def test_whole_link_carries_both_directions_and_their_ends(wire: Wire) -> None:
    near, far = wire.connect()
    near.sendall(b"there")
    assert receive(far, 5) == b"there"
    near.shutdown(socket.SHUT_WR)
    assert far.recv(1) == b""
    far.sendall(b"back")
    far.close()
    assert receive(near, 5) == b"back"


@pytest.mark.parametrize("cut", [(NEAR, FAR), (FAR, NEAR)])
def test_cut_direction_holds_what_is_sent_until_it_is_healed(
    links: ProxyLinks, wire: Wire, cut: tuple[int, int]
) -> None:
    near, far = wire.connect()
    mute, deaf = (near, far) if cut == (NEAR, FAR) else (far, near)
    links.set(*cut, CUT)
    mute.sendall(b"held")
    deaf.sendall(b"free")
    assert receive(mute, 4) == b"free"
    assert wire.is_silent(deaf)
    links.set(*cut, WHOLE)
    assert receive(deaf, 4) == b"held"


def test_end_of_a_sender_that_closed_in_a_cut_arrives_after_its_data(links: ProxyLinks, wire: Wire) -> None:
    near, far = wire.connect()
    links.set(NEAR, FAR, CUT)
    near.sendall(b"last words")
    near.close()
    assert wire.is_silent(far)
    links.set(NEAR, FAR, WHOLE)
    assert receive(far, 20) == b"last words"


def test_response_that_was_held_until_nobody_waits_harms_nothing(links: ProxyLinks, wire: Wire) -> None:
    near, far = wire.connect()
    links.set(FAR, NEAR, CUT)
    far.sendall(b"late")
    far.shutdown(socket.SHUT_WR)
    near.close()
    assert far.recv(1) == b""
    links.set(FAR, NEAR, WHOLE)
    near, far = wire.connect()
    far.sendall(b"again")
    assert receive(near, 5) == b"again"


@pytest.mark.parametrize("cut", [(NEAR, FAR), (FAR, NEAR)])
def test_connection_is_not_made_while_either_direction_is_cut(
    links: ProxyLinks, wire: Wire, cut: tuple[int, int]
) -> None:
    links.set(*cut, CUT)
    gave_up, patient = wire.call(), wire.call()
    gave_up.sendall(b"in vain")
    gave_up.close()
    patient.sendall(b"at last")
    assert wire.nobody_calls()
    links.set(*cut, WHOLE)
    assert receive(wire.answer(), 7) == b"at last"
    assert wire.nobody_calls()


@pytest.mark.parametrize("direction", [(NEAR, FAR), (FAR, NEAR)])
def test_connections_are_reset_old_and_new_ones(
    links: ProxyLinks, wire: Wire, direction: tuple[int, int]
) -> None:
    near, far = wire.connect()
    links.set(*direction, LinkState(resets=True))
    assert is_reset(near) and is_reset(far)
    assert is_reset(wire.call())
    links.set(*direction, WHOLE)
    near, far = wire.connect()
    near.sendall(b"again")
    assert receive(far, 5) == b"again"


def test_reset_of_a_sender_drops_what_was_held_and_arrives_when_the_cut_ends(
    links: ProxyLinks, wire: Wire
) -> None:
    near, far = wire.connect()
    links.set(NEAR, FAR, CUT)
    near.sendall(b"lost")
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()
    assert wire.is_silent(far)
    links.set(NEAR, FAR, WHOLE)
    assert is_reset(far)


def test_target_that_does_not_listen_resets_the_connection(links: ProxyLinks) -> None:
    (closed,) = free_ports(1)
    port = links.listen(NEAR, FAR, Address(LOOPBACK, closed))
    with closing(socket.create_connection((LOOPBACK, port))) as near:
        near.settimeout(PATIENCE_S)
        assert is_reset(near)


@pytest.mark.parametrize(
    "state",
    [
        WHOLE,
        LinkState(delay_ms=5, jitter_ms=5),
        LinkState(loss=0.0005),
        LinkState(bytes_per_s=10e6, jitter_ms=20),
    ],
)
def test_ten_megabytes_arrive_whole_and_in_order(links: ProxyLinks, wire: Wire, state: LinkState) -> None:
    near, far = wire.connect()
    links.set(NEAR, FAR, state)
    sent = random.Random(1).randbytes(10 << 20)
    sender = threading.Thread(target=near.sendall, args=(sent,))
    sender.start()
    received = receive(far, len(sent))
    sender.join()
    assert received == sent


def test_delay_holds_for_each_direction_and_ends_with_it(links: ProxyLinks, wire: Wire) -> None:
    near, far = wire.connect()
    for direction in ((NEAR, FAR), (FAR, NEAR)):
        links.set(*direction, LinkState(delay_ms=100))
    start_s = time.monotonic()
    near.sendall(b"x")
    far.sendall(far.recv(1))
    assert near.recv(1) == b"x"
    assert time.monotonic() - start_s >= 0.2
    links.set(NEAR, FAR, LinkState(delay_ms=1000 * 2 * PATIENCE_S))
    near.sendall(b"y")
    assert wire.is_silent(far)
    links.set(NEAR, FAR, WHOLE)
    assert far.recv(1) == b"y"


def test_throttle_is_shared_by_the_connections_of_a_link(links: ProxyLinks, wire: Wire) -> None:
    ends = [wire.connect() for _ in range(2)]
    links.set(NEAR, FAR, LinkState(bytes_per_s=200_000))
    start_s = time.monotonic()
    for near, _ in ends:
        near.sendall(bytes(50_000))
    for _, far in ends:
        assert len(receive(far, 50_000)) == 50_000
    assert time.monotonic() - start_s >= 0.5


def test_every_lost_segment_ends_in_a_reset(links: ProxyLinks, wire: Wire) -> None:
    near, far = wire.connect()
    links.set(NEAR, FAR, LinkState(loss=1.0))
    near.sendall(b"x")
    assert is_reset(near) and is_reset(far)


def test_slow_receiver_holds_back_the_sender(wire: Wire) -> None:
    near, far = wire.connect()
    near.setblocking(False)
    sent_bytes = 0

    def is_full() -> bool:
        nonlocal sent_bytes
        try:
            while True:
                sent_bytes += near.send(bytes(1 << 16))
        except BlockingIOError:
            wire.settle()
        try:
            sent_bytes += near.send(b"\0")
        except BlockingIOError:
            return True
        return False

    wait_until("a full connection", is_full, PATIENCE_S)
    assert sent_bytes < 64 << 20
    near.close()
    assert len(receive(far, sent_bytes + 1)) == sent_bytes


def test_what_the_proxy_refuses_is_an_error(links: ProxyLinks, tmp_path: Path) -> None:
    with pytest.raises(ProxyError, match="nothing goes from 1 to 9"):
        links.set(1, 9, CUT)
    with pytest.raises(ProxyError, match="address already in use"):
        links.listen(1, 3, Address(LOOPBACK, 1), links.listen(1, 2, Address(LOOPBACK, 1)))


@pytest.mark.parametrize("how", [signal.SIGKILL, None], ids=["killed", "closed"])
def test_proxy_that_has_ended_is_an_error(links: ProxyLinks, how: signal.Signals | None) -> None:
    if how is None:
        links.close()
    else:
        os.kill(links.pid, how)
    for _ in range(2):
        with pytest.raises(ProxyError, match="has ended"):
            links.set(FAR, FAR + 1, CUT)


def test_proxy_ends_with_whoever_started_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _RUNNER, str(tmp_path / "proxy.log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        proxy_pid = int(runner.stdout.readline())
        assert start_time(proxy_pid) is not None
        runner.kill()
    wait_until("the end of the proxy", lambda: start_time(proxy_pid) is None, PATIENCE_S)


_RUNNER: Final = """
import sys
from pathlib import Path
from pykraft.jepsen_like.faults.surroundings.proxies import ProxyLinks
print(ProxyLinks(Path(sys.argv[1])).pid, flush=True)
sys.stdin.read()
"""
