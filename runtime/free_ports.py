"""Loopback ports that nothing uses and that outgoing connections will not take either.

Asking the kernel for port 0 gives one from the range that every outgoing connection draws from, so by the
time a restarted node binds it again it may be taken. Ports are therefore drawn below that range and tried.
And other processes that draw ports must not take one while nobody listens there yet, or a node is down: a
port stays with the process that drew it until that ends, by a name that only one socket of the machine can
have (Linux only).
"""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

LOWEST_PORT = 15_000
EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL_START = 32_768


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """``count`` different ports that could be bound a moment ago. :class:`OSError` when none can be found."""
    ports = list(islice((port for port in _candidates() if _take(port, host)), count))
    if len(ports) < count:
        raise OSError(f"no {count} free ports on {host}")
    return ports


def first_in_a_row(count: int, host: str = "127.0.0.1") -> int:
    """As :func:`free_ports`, the first of ``count`` ports of which each follows the one before."""
    for first in _candidates():
        if all(_take(port, host) for port in range(first, first + count)):
            return first
    raise OSError(f"no {count} free ports in a row on {host}")


def _take(port: int, host: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, port))
            _reserve(port)
        except OSError:
            return False
    return True


def _reserve(port: int) -> None:
    if sys.platform != "linux":
        return
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0pykraft-port-{port}")
    except OSError:
        name.close()
        raise
    name.detach()  # open until the process ends


def _candidates() -> Iterator[int]:
    """A different order for every process, so that two clusters started together seldom meet."""
    end = DEFAULT_EPHEMERAL_START
    if EPHEMERAL_RANGE_FILE.exists():
        end = int(EPHEMERAL_RANGE_FILE.read_text().split()[0])
    if end <= LOWEST_PORT + 1_000:
        end = DEFAULT_EPHEMERAL_START
    yield from random.Random(os.urandom(8)).sample(range(LOWEST_PORT, end), 500)
