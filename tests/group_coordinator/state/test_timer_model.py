"""The timers of groups by seed, next to a dictionary: each fires once, at the time it was last set to."""

from random import Random
from typing import Any

import pytest

from pykraft.group_coordinator.state import sessions
from pykraft.group_coordinator.state.sessions import CancelTimer, Deadlines, SetTimer, TimerKey, TimerKind

KEYS = tuple(TimerKey(kind, "g", member) for kind in TimerKind for member in ("a", "b", "c"))


@pytest.mark.parametrize("most_stale", [0, 64])
@pytest.mark.parametrize("seed", range(20))
def test_timers_fire_when_they_are_due_in_order_and_once(
    seed: int, most_stale: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``most_stale`` 0: entries are cleaned up all the time."""
    monkeypatch.setattr(sessions, "_MOST_STALE", most_stale)
    rng = Random(seed)
    deadlines = Deadlines()
    model: dict[TimerKey, tuple[int, int]] = {}
    now_ms = 0
    for number in range(600):
        key = rng.choice(KEYS)
        roll = rng.random()
        if roll < 0.6:
            delay_ms, keeps = rng.choice((1, 50, 1_000, 9_000)), rng.random() < 0.3
            deadlines.apply(SetTimer(key, delay_ms, number, keep_running=keeps), now_ms)
            if not (keeps and key in model):
                model[key] = now_ms + delay_ms, number
        elif roll < 0.7:
            deadlines.apply(CancelTimer(key), now_ms)
            model.pop(key, None)
        else:
            now_ms += rng.choice((0, 20, 500, 3_000))
            limit = rng.choice((1, 3, 100))
            fired = deadlines.pop_expired(now_ms, limit)
            due = sorted(deadline_ms for deadline_ms, _ in model.values() if deadline_ms <= now_ms)
            assert [model[one][0] for one, _ in fired] == due[:limit], "the earliest are not those that fire"
            assert all(model.pop(one)[1] == epoch for one, epoch in fired)
        assert deadlines.next_deadline_ms() == min((at for at, _ in model.values()), default=None)
        assert len(deadlines) == len(model) and all(one in deadlines for one in model)


def test_timers_that_are_cancelled_take_no_memory_until_they_are_due() -> None:
    """A thousand members come and go, and their timers are set and cancelled all the time."""
    rng = Random(1)
    deadlines = Deadlines()
    live: set[TimerKey] = set()
    for now_ms in range(50_000):
        key = TimerKey(TimerKind.SESSION, "g", f"m{rng.randrange(1_000)}")
        if key in live:
            deadlines.apply(CancelTimer(key), now_ms)
            live.remove(key)
        else:
            deadlines.apply(SetTimer(key, 10**9 - rng.randrange(10**6)), now_ms)
            live.add(key)
        assert len(deadlines) == len(live)
        assert deadlines.entries <= 3 * len(live) + 1_000


def test_timers_that_come_sooner_each_time_take_no_memory() -> None:
    deadlines = Deadlines()
    key = TimerKey(TimerKind.JOIN_PHASE, "g")
    for deadline_ms in range(100_000, 50_000, -1):
        deadlines.set(key, deadline_ms)
        assert deadlines.entries <= 200
    assert deadlines.pop_expired(50_001, 9) == [(key, 0)]


def test_many_timers_that_were_moved_are_passed_in_several_searches() -> None:
    """No search looks at all of ten thousand; none of them fires too early, too late or twice."""
    count = 10_000
    deadlines = Deadlines()
    keys = [TimerKey(TimerKind.SESSION, "g", f"m{number}") for number in range(count)]
    for delay_ms in (1_000, 5_000):
        for key in keys:
            deadlines.set(key, delay_ms)
    looked_at = CountedTimers(deadlines._timers)
    deadlines._timers = looked_at
    searches = 0
    while (next_ms := deadlines.next_deadline_ms()) == 1_000:
        assert deadlines.pop_expired(1_000, 5) == []
        searches += 1
        assert looked_at.count <= 1_000 * searches
    assert next_ms == 5_000 and searches > 10
    assert deadlines.pop_expired(4_999, count) == []
    assert sorted(deadlines.pop_expired(5_000, count)) == sorted((key, 0) for key in keys)
    assert deadlines.next_deadline_ms() is None


class CountedTimers(dict[TimerKey, Any]):
    """Counts what is looked up."""

    count = 0

    def get(self, key: TimerKey, default: Any = None) -> Any:
        self.count += 1
        return super().get(key, default)
