"""The timers of groups by seed, next to a dictionary: each fires once, at the time it was last set to."""

from __future__ import annotations

from random import Random

import pytest

from pykraft.group_coordinator.sessions import CancelTimer, Deadlines, SetTimer, TimerKey, TimerKind

KEYS = tuple(TimerKey(kind, "g", member) for kind in TimerKind for member in ("a", "b", "c"))


@pytest.mark.parametrize("seed", range(20))
def test_timers_fire_when_they_are_due_in_order_and_once(seed: int) -> None:
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
