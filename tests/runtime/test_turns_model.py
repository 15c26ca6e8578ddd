"""Seeded loads on the budget of a turn, next to a model of what one turn may do.

Work arrives in bursts, asks for room and waits in a lane if there is none; some of it takes longer than a
turn, starts tasks, or waits again. Time passes by work alone. Nothing is lost or overtaken in its lane, no
lane is passed over while others are served twice, responses come first and leave half of the turn to the
rest, and a turn ends once its time, steps or bytes are used up.
"""

from collections import Counter, deque
from collections.abc import Callable
from random import Random

import pytest

from pykraft.runtime.turns import BULK, OUTPUT, RESUMED, RESUMED_PER_TURN, TurnBudget

LANES = (OUTPUT, BULK, RESUMED, "commits", "metadata", "fetches")
COSTS_US = (0, 50, 200, 500, 1_000, 1_000, 6_000)


class Work:
    """One piece of work; ``rounds``: how often it waits again after it was done."""

    def __init__(self, world: "World", lane: str) -> None:
        rng = world.rng
        self.world = world
        self.lane = lane
        self.cost_us = rng.choice(COSTS_US)
        self.starts_task = lane != OUTPUT and rng.random() < 0.3
        self.size_bytes = rng.choice((0, 0, 100, 3_000))
        self.rounds = rng.choice((0, 0, 0, 3))
        #: How often each other lane was served since this was the first of its lane.
        self.passed: Counter[str] = Counter()

    def arrive(self) -> None:
        if self.lane != OUTPUT and self.world.budget_has_room():
            self.do()
        else:
            self.world.wait(self)

    def resume(self) -> None:
        self.world.check_resumed(self)
        self.do()

    def do(self) -> None:
        self.world.spend(self.size_bytes, steps=int(self.starts_task))
        self.world.now_us += self.cost_us
        self.world.done += 1
        if self.rounds:
            self.rounds -= 1
            self.world.expected += 1
            self.world.wait(self)


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now_us = 0
        self.scheduled: list[Callable[[], None]] = []
        self.budget = TurnBudget(self.begin_turn, lambda: self.now_us, turn_bytes=10_000)
        self.waiting: dict[str, deque[Work]] = {lane: deque() for lane in LANES}
        self.expected = self.done = 0
        self.is_open = False
        self.began_us = self.steps = self.spent_bytes = 0
        self.resumed: Counter[bool] = Counter()  # of this turn: responses, and others
        self.bulk = 0

    # -- the model of a turn ---------------------------------------------------------------------------

    def begin_turn(self, next_turn: Callable[[], None]) -> None:
        """The budget has it called in the next turn of the loop."""
        self.is_open = True
        self.began_us = self.now_us
        self.steps = self.spent_bytes = self.bulk = 0
        self.resumed.clear()

        def end() -> None:
            self.is_open = False
            next_turn()

        self.scheduled.append(end)

    @property
    def room(self) -> bool:
        in_time = self.now_us - self.began_us < self.budget.turn_us
        return not self.is_open or (in_time and self.steps < self.budget.turn_steps)

    def budget_has_room(self) -> bool:
        room = self.room
        assert self.budget.has_room() is room, "a turn is limited in time and in steps"
        return room

    def spend(self, count_bytes: int, steps: int) -> None:
        if not self.is_open:
            self.budget.has_room()
        self.spent_bytes += count_bytes
        self.steps += steps
        within = self.budget.spend(count_bytes, steps)
        assert within is (self.spent_bytes < self.budget.turn_bytes), "a turn is limited in bytes"

    def wait(self, work: Work) -> None:
        work.passed.clear()
        self.waiting[work.lane].append(work)
        self.budget.defer(work.resume, work.lane)

    def waits_beside(self, lane: str) -> bool:
        """Whether anything else than responses waits that this turn may still resume."""
        return any(
            queue and one not in (OUTPUT, lane) and (one != BULK or self.bulk < RESUMED_PER_TURN)
            for one, queue in self.waiting.items()
        )

    def check_resumed(self, work: Work) -> None:
        lane = work.lane
        assert self.waiting[lane][0] is work, "work is resumed in order"
        if lane == OUTPUT:
            if self.resumed[False]:
                assert not self.waits_beside(lane), "responses continue if nothing else waits"
            elif self.waits_beside(lane):
                used_us = self.now_us - self.began_us
                assert used_us < self.budget.turn_us // 2, "responses leave half of a turn"
        else:
            if not self.resumed[False]:
                self.began_us = max(self.began_us, self.now_us - self.budget.turn_us // 2)
                assert self.budget_has_room(), "the first that is resumed finds room"
            assert all(count <= 1 for count in work.passed.values()) or lane == BULK, "lanes take turns"
        if self.resumed[False]:
            assert self.budget_has_room(), "nothing more is resumed in a turn without room"
        self.resumed[lane == OUTPUT] += 1
        self.bulk += lane == BULK
        assert self.bulk <= RESUMED_PER_TURN
        self.waiting[lane].popleft()
        for other, queue in self.waiting.items():
            if other != lane and queue and lane != OUTPUT:
                queue[0].passed[lane] += 1

    # -- the load --------------------------------------------------------------------------------------

    def arrive(self) -> None:
        work = Work(self, self.rng.choice(LANES))
        self.expected += 1
        work.arrive()

    def turn(self) -> None:
        due, self.scheduled = self.scheduled, []
        self.rng.shuffle(due)
        for callback in due:
            callback()

    def run(self) -> None:
        for _ in range(60):
            if self.rng.random() < 0.2:
                for _ in range(self.rng.choice((5, 40))):
                    self.arrive()
            elif self.rng.random() < 0.5:
                self.arrive()
            self.turn()
            if not self.scheduled:
                self.now_us += self.rng.randrange(10_000)
        for _ in range(100_000):
            if not self.scheduled:
                break
            self.turn()
        assert self.done == self.expected, "some work was never resumed"
        assert self.budget.waiting == 0


@pytest.mark.parametrize("seed", range(40))
def test_no_work_is_lost_overtaken_or_starved_and_no_turn_does_too_much(seed: int) -> None:
    World(seed).run()
