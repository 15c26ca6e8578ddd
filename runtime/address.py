"""The address on which a process listens: a host and a port."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final

from pykraft.lazy_dataclass import dataclass

MAX_PORT: Final = 65_535
MAX_HOST_LENGTH: Final = 255


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """``host`` is a name or a numeric address, without brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, least_port: int = 1) -> Address:
    """Parse ``host:port``, an IPv6 host in brackets. :class:`ValueError` if ``text`` has another form."""
    host, _, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"write the IPv6 address of {text!r} in brackets")
    is_port = port.isascii() and port.isdecimal() and len(port) <= len(str(MAX_PORT))
    if not host or not is_port or not least_port <= int(port) <= MAX_PORT:
        raise ValueError(f"{text!r} is not host:port")
    return Address(host, int(port))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on ``host``; other names may be of any host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
