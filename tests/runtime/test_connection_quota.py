"""Which connections of a broker are served, wait, end and are refused."""

from functools import partial

import pytest

from pykraft.runtime.network.connection_quota import MOST_WAITING, ConnectionQuota

NO_LIMIT = 2**31 - 1


class Peer:
    """A connection that does not end at once when it is closed."""

    def __init__(self, last_received: int = 0) -> None:
        self.last_received = last_received
        self.closed = False

    def close(self) -> None:
        self.closed = True


class World:
    def __init__(self, most: int, most_per_ip: int = NO_LIMIT) -> None:
        self.quota = ConnectionQuota(most, most_per_ip)
        self.admitted: list[Peer] = []

    def enter(self, peer: Peer, address: str = "a", *, is_exempt: bool = False) -> bool:
        assert self.quota.find_objection(address, is_exempt=is_exempt) is None
        return self.quota.enter(peer, address, partial(self.admitted.append, peer), is_exempt=is_exempt)


def test_connections_wait_in_the_order_in_which_they_came() -> None:
    world = World(1)
    first, *others = (Peer() for _ in range(4))
    assert world.enter(first) and not any(world.enter(peer) for peer in others)
    world.quota.leave(others[1])
    for left, admitted in ((first, others[0]), (others[0], others[2])):
        world.quota.leave(left)
        assert world.admitted[-1] is admitted
    assert len(world.admitted) == 2
    assert not world.enter(Peer())


def test_connection_that_was_never_counted_may_leave() -> None:
    world = World(1)
    assert world.enter(Peer())
    world.quota.leave(Peer())
    assert not world.enter(Peer()), "a place was given away twice"


def test_connections_of_one_address_are_refused_beyond_its_limit_whether_served_or_waiting() -> None:
    world = World(1, 2)
    served, waiting = Peer(), Peer()
    assert world.enter(served) and not world.enter(waiting)
    for is_exempt in (False, True):
        objection = world.quota.find_objection("a", is_exempt=is_exempt)
        assert objection is not None and "max.connections.per.ip" in objection
    assert not world.enter(Peer(), "b")
    world.quota.leave(waiting)
    assert world.quota.find_objection("a", is_exempt=False) is None
    world.quota.set_limits(1, 1)
    assert world.quota.find_objection("a", is_exempt=False) is not None


def test_no_more_than_a_bounded_number_waits() -> None:
    world = World(0)
    for number in range(MOST_WAITING):
        assert not world.enter(Peer(), str(number))
    assert world.quota.find_objection("b", is_exempt=False) == (
        "max.connections is reached, and too many wait already"
    )
    assert world.enter(Peer(), "b", is_exempt=True)


def test_exempt_connection_takes_the_place_of_who_was_silent_longest() -> None:
    world = World(3)
    peers = [Peer(received) for received in (5, 3, 4)]
    assert all(world.enter(peer) for peer in peers)
    exempt = [Peer() for _ in range(5)]
    ended = []
    for peer in exempt:
        assert world.enter(peer, is_exempt=True)
        ended.append([peers.index(it) for it in peers if it.closed])
    assert ended == [[1], [1, 2], [0, 1, 2], [0, 1, 2], [0, 1, 2]]
    assert not any(peer.closed for peer in exempt) and not world.enter(Peer())
    for peer in peers:
        world.quota.leave(peer)
    assert world.admitted == [], "places that others have taken are not free again"
    for peer in exempt[:2]:
        world.quota.leave(peer)
    assert world.admitted == []
    world.quota.leave(exempt[2])
    assert len(world.admitted) == 1


@pytest.mark.parametrize("most", range(5))
def test_lower_limit_ends_the_surplus_and_a_higher_one_admits(most: int) -> None:
    world = World(4)
    peers = [Peer(received) for received in (1, 2, 3, 4)]
    assert all(world.enter(peer) for peer in peers)
    waiting = [Peer(), Peer()]
    assert not any(world.enter(peer) for peer in waiting)
    world.quota.set_limits(most, NO_LIMIT)
    assert [peer.closed for peer in peers] == [number < 4 - most for number in range(4)]
    assert world.admitted == []
    world.quota.set_limits(most + 1, NO_LIMIT)
    assert world.admitted == waiting[:1]
    world.quota.set_limits(NO_LIMIT, NO_LIMIT)
    assert world.admitted == waiting
