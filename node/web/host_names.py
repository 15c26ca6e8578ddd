"""The names that an HTTP server answers to.

A page of a stranger may give its own name the address of this server and then read what is here as if it were
its own (DNS rebinding). The browser still sends that name, so a server that answers to no other names than
its own is out of reach. An IP address cannot be given a new meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from pykraft.lazy_dataclass import dataclass

LOCALHOST: Final = "localhost"
_AUTHORITY: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{1,5}))?", re.ASCII)
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
_LONGEST: Final = 253
_SCHEMES: Final = {"http": "80", "https": "443"}


@dataclass(frozen=True, slots=True)
class Authority:
    """``name:port`` of an address, in lower case; ``port`` is empty if it is not given."""

    name: str
    port: str


def parse_authority(text: str) -> Authority | None:
    """The authority in a header ``Host``. None: with a user, with characters that no name has."""
    if not text.isascii():  # some letters become others when they are put in lower case
        return None
    found = _AUTHORITY.fullmatch(text.lower())
    return None if found is None else Authority(found[1].removesuffix("."), found[2] or "")


def normal_name(name: str) -> str | None:
    """As it is compared, of a host name in whatever case, perhaps with a dot at its end; None of others."""
    given = parse_authority(name)
    if given is None or given.port or len(given.name) > _LONGEST:
        return None
    return given.name if all(map(_LABEL.fullmatch, given.name.split("."))) else None


def is_ip_address(name: str) -> bool:
    """IPv6 in brackets; both in the forms that browsers send."""
    try:
        IPv6Address(name[1:-1]) if name.startswith("[") else IPv4Address(name)
    except ValueError:
        return False
    return True


class AllowedHosts:
    """IP addresses, ``localhost``, and the ``names``, which are normal."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {LOCALHOST, *names}

    def allow(self, hosts: Sequence[str], target: str) -> bool:
        """Whether a request for ``target`` with these headers ``Host`` means this server."""
        given = [parse_authority(host) for host in hosts]
        if len(given) != 1:
            return False
        if not target.startswith("/"):  # of a proxy, in whole; or * of OPTIONS, of the server itself
            given += [parse_authority(_authority_of(target))] if target != "*" else []
        return all(one is not None and self._has(one.name) for one in given)

    def _has(self, name: str) -> bool:
        return name in self._names or is_ip_address(name)


def _authority_of(target: str) -> str:
    """The authority in the whole address that a request line to a proxy has; empty if there is none."""
    return re.split("[/?#]", target.partition("://")[2], maxsplit=1)[0]


def is_same_origin(origin: str, host: str) -> bool:
    """Whether a header ``Origin`` names the server that a header ``Host`` names, over TLS or not.

    A proxy that ends TLS in front of this server is trusted as the server is.
    """
    scheme, separator, rest = origin.lower().partition("://")
    default = _SCHEMES.get(scheme)
    from_, to = parse_authority(rest), parse_authority(host)
    if not separator or default is None or from_ is None or to is None:
        return False
    return (from_.name, from_.port or default) == (to.name, to.port or default)
