"""The caller of a request: what every request handler is told besides the request itself."""

from __future__ import annotations

from pykraft.lazy_dataclass import dataclass

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The caller of one request.

    ``principal`` is ``Type:name``; ``listener`` the name of the listener the connection came in on;
    ``client_address`` the numeric peer address; ``connection_id`` unique per process. ``request_id`` names a
    request that a broker forwards, the same in all its attempts (empty: it has no name); ``attempt`` is the
    number of attempts before this one, whose outcomes the broker does not know.
    """

    principal: str = ANONYMOUS
    listener: str = "PLAINTEXT"
    client_id: str = ""
    client_address: str = ""
    connection_id: int = 0
    request_id: bytes = b""
    attempt: int = 0
