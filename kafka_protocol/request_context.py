"""Who is asking: what every request handler is told about the caller besides the request itself."""

from __future__ import annotations

from dataclasses import dataclass

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The caller of one request.

    ``principal`` is ``Type:name``; ``listener`` the name of the listener the connection came in on;
    ``client_address`` the numeric peer address; ``connection_id`` unique per process.
    """

    principal: str = ANONYMOUS
    listener: str = "PLAINTEXT"
    client_id: str = ""
    client_address: str = ""
    connection_id: int = 0
