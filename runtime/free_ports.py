"""Loopback ports that nothing uses and that outgoing connections will not take either.

Asking the kernel for port 0 gives one from the range that every outgoing connection draws from, so by the
time a restarted node binds it again it may be taken. Ports are therefore drawn below that range and tried.
And other processes that draw ports must not take one while nobody listens there yet, or a node is down: a
port stays with the process that drew it until that ends or gives it back, by a name that only one socket of
the machine can have (Linux only).
"""

from __future__ import annotations

import errno
import os
import random
import socket
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

LOWEST_PORT = 15_000
EPHEMERAL_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL_START = 32_768
_NEAR = 100

_names: dict[int, int] = {}
"""The descriptors that keep the ports which this process has drawn."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """``count`` ports that were free a moment ago. :class:`OSError` if too few, or ``host`` is elsewhere."""
    ports = list(islice(filter(lambda port: _take(port, host), _candidates()), count))
    if len(ports) < count:
        raise OSError(f"no {count} free ports on {host}")
    return ports


def first_in_a_row(count: int, host: str = "127.0.0.1") -> int:
    """As :func:`free_ports`, the first of ``count`` ports of which each follows the one before."""
    for first in _candidates():
        if all(_take(port, host) for port in range(first, first + count)):
            return first
    raise OSError(f"no {count} free ports in a row on {host}")


def first_of_free_ports(host: str, first: int, count: int) -> int:
    """The first of ``count`` free ports in a row, from ``first`` on; 0 if that would be far from there. They
    are not kept from others: somebody wants just these."""
    for start in range(first, first + _NEAR):
        sockets = [_socket(host) for _ in range(count)]
        try:
            for port, item in enumerate(sockets, start):
                item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                item.bind((host, port))
            return start
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return 0  # no other port would do better, and a name is looked up each time
        finally:
            for item in sockets:
                item.close()
    return 0


def give_back(ports: Iterable[int]) -> None:
    """Others may draw these again: those who were to listen there have ended."""
    for port in ports:
        if port in _names:
            os.close(_names.pop(port))


def _take(port: int, host: str) -> bool:
    with _socket(host) as probe:
        try:
            probe.bind((host, port))
            _reserve(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)


def _reserve(port: int) -> None:
    if sys.platform != "linux":
        return
    name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        name.bind(f"\0pykraft-port-{port}")
    except OSError:
        name.close()
        raise
    _names[port] = name.detach()


def _candidates() -> Iterator[int]:
    """A different order for every process, so that two clusters started together seldom meet."""
    end = DEFAULT_EPHEMERAL_START
    if EPHEMERAL_RANGE_FILE.exists():
        end = int(EPHEMERAL_RANGE_FILE.read_text().split()[0])
    if end <= LOWEST_PORT + 1_000:
        end = DEFAULT_EPHEMERAL_START
    yield from random.Random(os.urandom(8)).sample(range(LOWEST_PORT, end), 500)
