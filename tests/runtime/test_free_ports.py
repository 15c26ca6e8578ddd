"""Ports for clusters under test."""

import socket
import sys

import pytest

from pykraft.runtime import free_ports as module
from pykraft.runtime.free_ports import EPHEMERAL_RANGE_FILE, free_ports, give_back


def test_ports_are_different_free_and_not_those_of_outgoing_connections() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8
    if EPHEMERAL_RANGE_FILE.exists():
        assert max(ports) < int(EPHEMERAL_RANGE_FILE.read_text().split()[0])
    for port in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show that a port was drawn")
def test_port_is_drawn_once_before_it_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    (drawn,) = free_ports(1)
    candidates = range(drawn, drawn + 100)
    monkeypatch.setattr(module, "_candidates", lambda: iter(candidates))
    assert free_ports(1) != [drawn]
    candidates = range(drawn, drawn + 1)
    with pytest.raises(OSError, match="no 1 free ports"):
        free_ports(1)
    give_back([drawn])
    assert free_ports(1) == [drawn]
