"""Data in one direction of one connection of the proxy, and when it arrives at the other end.

Decides how a broken link treats data: what is held back and for how long. Order is always kept. Reads
clocks and chance of the loop that it is given, and does not know sockets.
"""

import asyncio
import math
import random
from collections import deque
from typing import Final, Protocol

from pykraft.jepsen_like.faults.surroundings.surroundings import WHOLE, LinkState

HELD_BYTES: Final = 1 << 20
"""How much a flow holds before it stops reading from its source. What is read at once comes on top."""
PIECE_BYTES: Final = 1 << 18
BROKEN_PIECE_BYTES: Final = 1 << 16
_LEAST_HELD_BYTES: Final = 4096
_THROTTLED_HELD_S: Final = 0.25
"""A throttled flow holds what takes this long, as the queue in front of a slow link does."""
_SEGMENT_BYTES: Final = 1448
_FIRST_RETRANSMISSION_S: Final = 0.2
_MOST_RETRANSMISSIONS: Final = 6


class End(Protocol):
    """One end of a connection: where a flow comes from, or where it goes."""

    def read_on(self, wanted: bool) -> None: ...
    def write(self, data: bytes) -> None: ...
    def write_end(self) -> None: ...
    def reset(self) -> None: ...


class Crossing(Protocol):
    """A connection that crosses a link."""

    def link_changed(self) -> None: ...


class Direction:
    """From one node to another, over all of their connections."""

    def __init__(self) -> None:
        self.state = WHOLE
        self.is_whole = True
        self.connections: dict[Crossing, None] = {}
        self._free_s = 0.0

    def set(self, state: LinkState) -> None:
        """In force when this returns."""
        self.state = state
        self.is_whole = state == WHOLE
        self._free_s = 0.0
        for connection in list(self.connections):
            connection.link_changed()

    @property
    def piece_bytes(self) -> int:
        """How much is read at once."""
        return PIECE_BYTES if self.is_whole else min(BROKEN_PIECE_BYTES, self.held_bytes)

    @property
    def held_bytes(self) -> int:
        """How much one flow may hold."""
        rate = self.state.bytes_per_s
        if rate is None:
            return HELD_BYTES
        return max(_LEAST_HELD_BYTES, min(HELD_BYTES, int(rate * _THROTTLED_HELD_S)))

    def arrival_s(self, now_s: float, size_bytes: int) -> float:
        """When arrives what is sent now; infinite if it is lost so often that TCP would give up."""
        state = self.state
        if state.bytes_per_s is not None:
            self._free_s = now_s = max(now_s, self._free_s) + size_bytes / state.bytes_per_s
        jitter_s = random.uniform(-state.jitter_ms, state.jitter_ms) / 1000
        return now_s + max(0.0, state.delay_ms / 1000 + jitter_s) + _stall_s(state.loss, size_bytes)


def _stall_s(loss: float, size_bytes: int) -> float:
    """TCP hides losses: a lost segment is sent again after a timeout, which doubles, and what follows it
    waits."""
    chance = 1 - (1 - loss) ** math.ceil(size_bytes / _SEGMENT_BYTES)
    stall_s, timeout_s = 0.0, _FIRST_RETRANSMISSION_S
    for _ in range(_MOST_RETRANSMISSIONS):
        if random.random() >= chance:
            return stall_s
        stall_s += timeout_s
        timeout_s *= 2
        chance = loss
    return math.inf


class Flow:
    """Takes data from ``source`` and gives it to ``sink``, which is told to it when it can be written to.

    While the direction is cut, all is held back, an end and a reset too, and passes when the cut ends: so
    does TCP, which repeats unacknowledged data for a quarter of an hour, even if the process that sent it has
    closed its socket or has ended. What arrives late like this is what finds bugs.
    """

    def __init__(self, direction: Direction, source: End, sink: End) -> None:
        self.direction = direction
        self.ended = False
        """Whether the end has been passed on."""
        self._source = source
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._held: deque[tuple[float, bytes]] = deque()
        self._held_bytes = 0
        self._newest_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._clogged = True
        self._source_ended = False
        self._reset_held = False
        self._is_dropped = False

    def take(self, data: bytes) -> None:
        """Data from the source; empty at its end."""
        if self._is_dropped:
            return
        self._source_ended = self._source_ended or not data
        if self.direction.is_whole and not self._held and not self._clogged:
            self._pass(data)
            return
        arrival_s = self.direction.arrival_s(self._loop.time(), len(data))
        if arrival_s == math.inf:
            self._sink.reset()
            self._source.reset()
            return
        self._newest_s = max(arrival_s, self._newest_s)
        self._held.append((self._newest_s, data))
        self._held_bytes += len(data)
        if len(self._held) == 1:
            self.release()
        else:
            self._regulate()

    def take_reset(self) -> None:
        """The source has reset the connection: what it sent and has not arrived is gone."""
        self.drop()
        self._reset_held = True
        self.release()

    def clog(self, clogged: bool) -> None:
        """Whether the sink takes nothing for now."""
        self._clogged = clogged
        if not clogged:
            self.release()

    def release(self) -> None:
        """Pass on what has arrived by now; to be called when the state of the direction has changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_s = self._loop.time()
        while self._held and self._is_open:
            arrival_s, data = self._held[0]
            if arrival_s > now_s and not self.direction.is_whole:
                self._timer = self._loop.call_at(arrival_s, self.release)
                break
            self._held.popleft()
            self._held_bytes -= len(data)
            self._pass(data)
        if self._reset_held and not self.direction.state.cut:
            self._sink.reset()
        self._regulate()

    def drop(self) -> None:
        """Forget what is held and whatever comes; the source is read on, to learn how it ends."""
        self._is_dropped = True
        self._held.clear()
        self._held_bytes = 0
        self.release()

    @property
    def _is_open(self) -> bool:
        return not self._clogged and not self.direction.state.cut

    def _pass(self, data: bytes) -> None:
        if data:
            self._sink.write(data)
        else:
            self.ended = True
            self._sink.write_end()

    def _regulate(self) -> None:
        if not self._source_ended:
            self._source.read_on(self._held_bytes < self.direction.held_bytes)
