"""Any number of group members played by one thread, each with a connection of its own and a real heartbeat.

The thread stands for the clients: its processor time (:meth:`Fleet.cpu_s`) is theirs, not the broker's.
"""

import heapq
import itertools
import selectors
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from comparison.group_members import NOT_YET, Ask, Life
from comparison.many import Peer

from pykraft.testing.processes.wire_client import decode_answer, frame_of

_RETRY_S = 0.05


class Shares:
    """The partitions that members own, updated with every change."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._owners: Counter[int] = Counter()
        self._owned_once = 0
        self._sizes: Counter[int] = Counter()

    def enter(self) -> None:
        self._sizes[0] += 1

    def change(self, old: frozenset[int], new: frozenset[int]) -> None:
        for index in old - new:
            self._count(index, -1)
        for index in new - old:
            self._count(index, 1)
        self._sizes[len(old)] -= 1
        self._sizes[len(new)] += 1

    def leave(self, last: frozenset[int]) -> None:
        self.change(last, frozenset())
        self._sizes[0] -= 1

    def are_final(self) -> bool:
        """Every partition has one owner, and the shares of all members are even."""
        if self._owned_once != self._partitions:
            return False
        sizes = +self._sizes
        members = sizes.total()
        return all(self._partitions // members <= size <= -(-self._partitions // members) for size in sizes)

    def _count(self, index: int, by: int) -> None:
        self._owned_once -= self._owners[index] == 1
        self._owners[index] += by
        self._owned_once += self._owners[index] == 1


class Seat:
    """A member and its connection."""

    def __init__(self, life: Life, peer: Peer) -> None:
        self.life = life
        self.peer = peer
        self.owned: frozenset[int] = frozenset()
        self.asked: Ask | None = None
        """What waits for its answer."""
        self.due_s = 0.0
        """When its next heartbeat, or what is asked again, is due; 0 if that is not known yet."""
        self.beats = 0
        self.steps = life.steps()
        self.is_leaving = False


class Fleet:
    """Members of one group. ``failures`` counts answers that a member asks again for, by their error."""

    def __init__(self, port: int, partitions: int) -> None:
        self.shares = Shares(partitions)
        self.seats: list[Seat] = []
        self.failures: Counter[str] = Counter()
        self.requests = 0
        self._port = port
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, Seat]] = []
        self._order = itertools.count()
        self._leaving = 0

    def close(self) -> None:
        self._selector.close()
        for seat in self.seats:
            seat.peer.socket.close()

    @staticmethod
    def cpu_s() -> float:
        return time.thread_time()

    def connect(self, lives: Iterable[Life]) -> list[Seat]:
        """Members that are connected and have said nothing yet."""
        seats = []
        for life in lives:
            seat = Seat(life, Peer(len(self.seats), self._port))
            self._selector.register(seat.peer.socket, selectors.EVENT_READ, seat)
            seats.append(seat)
        return seats

    def join(self, seats: Iterable[Seat]) -> None:
        """Send the first request of each."""
        for seat in seats:
            self.seats.append(seat)
            self.shares.enter()
            self._go_on(seat, next(seat.steps))

    def leave(self, seat: Seat) -> None:
        """Send its last request; its answer is not waited for."""
        assert seat.asked is None
        self._forget(seat)
        seat.is_leaving = True
        self._leaving += 1
        self._send(seat, seat.life.goodbye())

    def dissolve(self) -> None:
        """Let all leave, so that nothing of the group happens later; whoever waits for an answer stays."""
        for seat in list(self.seats):
            if seat.asked is None:
                self.leave(seat)
        self.run_until(lambda: not self._leaving, 60, "all members to leave")

    def crash(self, seat: Seat) -> float:
        """Let the member fall silent right after a heartbeat; returns when that was answered."""
        self.beat_now(seat)
        beats = seat.beats
        self.run_until(lambda: seat.beats > beats, 30, "a heartbeat of the member that crashes")
        now_s = time.monotonic()
        self._forget(seat)
        self._hang_up(seat)
        return now_s

    def spread(self) -> None:
        """Distribute the heartbeats over their interval, as those of members that came one by one."""
        now_s = time.monotonic()
        idle = [seat for seat in self.seats if seat.asked is None]
        for place, seat in enumerate(idle):
            self._wait_until(seat, min(seat.due_s, now_s + seat.life.interval_s * place / len(idle)))

    def beat_now(self, seat: Seat) -> None:
        if seat.asked is None:
            self._wait_until(seat, time.monotonic())

    def run_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._turn(end)

    def run_until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> float:
        """When it became true. TimeoutError if it does not."""
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"timed out waiting for {what}; failed requests: {dict(self.failures)}")
            self._turn(end)
        return time.monotonic()

    def _turn(self, end: float) -> None:
        now_s = time.monotonic()
        while self._due and self._due[0][0] <= now_s:
            due_s, _, seat = heapq.heappop(self._due)
            if seat.due_s == due_s:
                self._wake(seat)
        until_s = min(end, self._due[0][0] if self._due else end)
        for key, _ in self._selector.select(max(0.0, until_s - time.monotonic())):
            seat = key.data
            frame = seat.peer.read()
            if frame is not None:
                self._take(seat, frame)

    def _wake(self, seat: Seat) -> None:
        seat.due_s = 0.0
        if seat.asked is not None:
            self._send(seat, seat.asked)
        else:
            self._go_on(seat, next(seat.steps))

    def _take(self, seat: Seat, frame: bytes) -> None:
        assert seat.asked is not None
        answer = decode_answer(seat.asked.request.RESPONSE, seat.asked.version, frame)
        if seat.is_leaving:
            self._leaving -= 1
            self._hang_up(seat)
        elif answer.error_code in NOT_YET:
            self.failures[str(answer.error_code)] += 1
            self._wait_until(seat, time.monotonic() + _RETRY_S)
        else:
            seat.asked = None
            self._go_on(seat, seat.steps.send(answer))

    def _go_on(self, seat: Seat, step: Ask | None) -> None:
        if seat.owned is not seat.life.owned:
            self.shares.change(seat.owned, seat.life.owned)
            seat.owned = seat.life.owned
        if step is None:
            seat.beats += 1
            self._wait_until(seat, time.monotonic() + seat.life.interval_s)
        else:
            self._send(seat, step)

    def _send(self, seat: Seat, ask: Ask) -> None:
        seat.asked = ask
        self.requests += 1
        seat.peer.send(frame_of(ask.request, ask.version))

    def _wait_until(self, seat: Seat, due_s: float) -> None:
        seat.due_s = due_s
        heapq.heappush(self._due, (due_s, next(self._order), seat))

    def _forget(self, seat: Seat) -> None:
        seat.due_s = 0.0
        self.seats.remove(seat)
        self.shares.leave(seat.owned)

    def _hang_up(self, seat: Seat) -> None:
        self._selector.unregister(seat.peer.socket)
        seat.peer.socket.close()
        seat.steps.close()


def frames_of(asks: Iterable[Any]) -> list[bytes]:
    return [frame_of(ask.request, ask.version) for ask in asks]
