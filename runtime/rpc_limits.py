"""The resources of an RPC server that its callers may use."""

from __future__ import annotations

from pykraft.lazy_dataclass import dataclass


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
