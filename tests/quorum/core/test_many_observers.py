"""A leader remembers its observers, but neither forever nor without bound."""

from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.progress import FetchProgress
from pykraft.quorum.core.roles import MOST_OBSERVERS, OBSERVER_SESSION_MS, Leader
from pykraft.quorum.core.voters import ReplicaKey


def admit(leader: Leader, number: int, now_ms: int) -> ReplicaKey:
    key = ReplicaKey(number, Uuid(number.to_bytes(16, "big")))
    leader.forget_silent_observers(now_ms)
    leader.observers[key] = FetchProgress(key, 0, now_ms, 0)
    return key


def test_silent_observer_is_removed_after_its_session() -> None:
    leader = Leader(0, 0, {}, {})
    silent = admit(leader, 1, now_ms=0)
    admit(leader, 2, now_ms=OBSERVER_SESSION_MS - 1)
    assert silent in leader.observers
    admit(leader, 3, now_ms=OBSERVER_SESSION_MS)
    assert silent not in leader.observers and len(leader.observers) == 2


def test_new_observers_beyond_the_limit_replace_the_longest_silent_one() -> None:
    leader = Leader(0, 0, {}, {})
    faithful = admit(leader, 1, now_ms=0)
    for number in range(2, 3 * MOST_OBSERVERS):
        leader.observers[faithful].record_contact(number)
        admit(leader, number, now_ms=number)
    assert len(leader.observers) == MOST_OBSERVERS
    assert faithful in leader.observers
