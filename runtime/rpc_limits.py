"""The resources of an RPC server that its callers may use."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from pykraft.lazy_dataclass import dataclass

_FILES_SHARE: Final = 8


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The resources of a server that clients may use.

    ``connections``: more than the nodes of a cluster, each of which has one. ``calls``: concurrent ones, of
    all connections and of one. ``request_bytes``: the largest batch of the metadata log; no node needs a
    larger request. ``served_bytes``: of all requests that are being served.
    """

    connections: int = 500
    calls: int = 2000
    calls_of_a_connection: int = 500
    request_bytes: int = 8 << 20
    served_bytes: int = 64 << 20


def limits_within(files_limit: int, servers: int) -> ServerLimits:
    """The limits of each of some servers of a process that may have ``files_limit`` files open: all their
    connections together take at most an eighth.

    gRPC knows no other limit: without this one, connections that do nothing would use up what the node needs
    to write its files.
    """
    usual = ServerLimits()
    share = files_limit // _FILES_SHARE // max(servers, 1)
    return replace(usual, connections=max(1, min(usual.connections, share)))
