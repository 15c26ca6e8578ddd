"""How many connections the listeners of a broker have together, and which of them wait (max.connections).

As in Kafka (ConnectionQuotas): a connection over the limit is not refused, but waits unread until another one
ends. The listener between brokers is exempt unless it is the only one: its connections are served at once,
and in their place the connections of other listeners end that have been silent longest. So do those that a
lower limit leaves over. A connection over the limit of its address is refused.

Only counts and decides; the sockets are those of :mod:`.tcp_server`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

MOST_WAITING: Final = 1024
"""As many as an operating system would keep; any other is refused."""


class QuotaConnection(Protocol):
    """``last_received``: a number that grows with everything that any connection receives."""

    last_received: int

    def close(self) -> None: ...


class ConnectionQuota:
    """The connections of all listeners of a broker."""

    def __init__(self, max_connections: int, max_connections_per_ip: int) -> None:
        self._max = max_connections
        self._max_per_ip = max_connections_per_ip
        self._served: dict[QuotaConnection, bool] = {}  # whether it is exempt
        self._waiting: dict[QuotaConnection, Callable[[], None]] = {}
        self._address_of: dict[QuotaConnection, str] = {}
        self._per_address: Counter[str] = Counter()

    def set_limits(self, max_connections: int, max_connections_per_ip: int) -> None:
        """Change the limits; those per address apply to new connections."""
        self._max, self._max_per_ip = max_connections, max_connections_per_ip
        self._end_surplus()
        self._admit_waiting()

    def find_objection(self, address: str, *, is_exempt: bool) -> str | None:
        """Why a new connection is refused; None if it is served, or waits."""
        if self._per_address[address] >= self._max_per_ip:
            return "max.connections.per.ip is reached"
        if not self._has_room(is_exempt=is_exempt) and len(self._waiting) >= MOST_WAITING:
            return "max.connections is reached, and too many wait already"
        return None

    def enter(
        self, connection: QuotaConnection, address: str, admit: Callable[[], None], *, is_exempt: bool
    ) -> bool:
        """Count a new connection. False if it has to wait: then ``admit`` is called when its turn comes."""
        self._address_of[connection] = address
        self._per_address[address] += 1
        if not self._has_room(is_exempt=is_exempt):
            self._waiting[connection] = admit
            return False
        self._served[connection] = is_exempt
        self._end_surplus()
        return True

    def leave(self, connection: QuotaConnection) -> None:
        """It has ended, or was never counted."""
        address = self._address_of.pop(connection, None)
        if address is None:
            return
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]
        self._waiting.pop(connection, None)
        self._served.pop(connection, None)
        self._admit_waiting()

    def _has_room(self, *, is_exempt: bool) -> bool:
        return is_exempt or len(self._served) < self._max

    def _admit_waiting(self) -> None:
        while self._waiting and self._has_room(is_exempt=False):
            connection = next(iter(self._waiting))
            admit = self._waiting.pop(connection)
            self._served[connection] = False
            admit()

    def _end_surplus(self) -> None:
        surplus = len(self._served) - self._max
        if surplus <= 0:
            return
        others = [connection for connection, is_exempt in self._served.items() if not is_exempt]
        others.sort(key=lambda connection: connection.last_received)
        for connection in others[:surplus]:
            del self._served[connection]  # it no longer counts, although its end comes later
            connection.close()
