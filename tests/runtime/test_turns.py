"""The budget of a turn: how much work one turn does, and what comes next. The clock is a counter."""

from collections.abc import Callable

from pykraft.runtime.turns import BULK, OUTPUT, TURN_STEPS, TurnBudget


class Loop:
    """Runs callbacks in the order they were scheduled, with a clock that work advances."""

    def __init__(self) -> None:
        self.scheduled: list[Callable[[], None]] = []
        self.now_us = 0
        self.turn = 0

    def turns(self, budget: TurnBudget, limit: int = 10_000) -> None:
        while self.scheduled and self.turn < limit:
            self.turn += 1
            due, self.scheduled = self.scheduled, []
            began_us = self.now_us
            for callback in due:
                callback()
            assert self.now_us - began_us <= budget.turn_us + 1_000, "one piece of work too much at most"


def make_budget(**limits: int) -> tuple[Loop, TurnBudget]:
    loop = Loop()
    return loop, TurnBudget(lambda callback: loop.scheduled.append(callback), lambda: loop.now_us, **limits)


def test_at_most_two_connections_with_bulk_data_continue_per_turn_in_order_of_arrival() -> None:
    loop, budget = make_budget(turn_bytes=1000)
    resumed: list[int] = []
    assert budget.spend(999)
    assert not budget.spend(100_000)
    for number in range(5):
        budget.defer(lambda number=number: resumed.append(number))  # type: ignore[misc]
    turns = []
    while loop.scheduled:
        loop.scheduled.pop(0)()
        turns.append(list(resumed))
    assert turns[:3] == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert budget.spend(1)
    assert budget.waiting == 0


def test_a_turn_ends_when_its_time_is_up_and_the_others_wait() -> None:
    loop, budget = make_budget()
    done: list[int] = []

    def work() -> None:
        loop.now_us += 1_000
        done.append(loop.turn)

    for number in range(1_000):
        if number < 4:
            assert budget.has_room()
            work()
        else:
            assert not budget.has_room()
            budget.defer(work, lane="commits")
    loop.turns(budget)
    assert len(done) == 1_000
    assert max(done.count(turn) for turn in range(loop.turn)) == 4


def test_request_of_another_kind_waits_for_one_commit_and_not_for_a_thousand() -> None:
    loop, budget = make_budget()
    order: list[str] = []

    def work(kind: str) -> None:
        loop.now_us += 1_000
        order.append(kind)

    for _ in range(1_000):
        budget.defer(lambda: work("commit"), lane="commits")
    for _ in range(2):
        budget.defer(lambda: work("metadata"), lane="metadata")
    loop.turns(budget)
    assert [place for place, kind in enumerate(order) if kind == "metadata"] == [1, 3]
    assert len(order) == 1_002


def test_tasks_that_are_only_started_are_counted() -> None:
    """They run in the next turn, where no clock measures them."""
    loop, budget = make_budget()
    started: list[int] = []

    def start() -> None:
        budget.spend(steps=1)
        started.append(loop.turn)

    for _ in range(100):
        budget.defer(start, lane="commits")
    loop.turns(budget)
    assert max(started.count(turn) for turn in range(loop.turn)) == TURN_STEPS
    assert len(started) == 100


def test_answers_are_sent_before_new_requests_start_and_take_half_of_the_turn_at_most() -> None:
    loop, budget = make_budget()
    order: list[tuple[int, str]] = []

    def work(kind: str) -> None:
        loop.now_us += 500
        order.append((loop.turn, kind))

    for _ in range(100):
        budget.defer(lambda: work("request"), lane="requests")
    for _ in range(100):
        budget.defer(lambda: work("answer"), lane=OUTPUT)
    loop.turns(budget)
    first = [kind for turn, kind in order if turn == 1]
    assert first == ["answer"] * 4 + ["request"] * 4
    assert len(order) == 200


def test_no_lane_waits_for_more_than_its_share_while_answers_never_end() -> None:
    loop, budget = make_budget()
    served: dict[object, list[int]] = {lane: [] for lane in range(12)}

    def answer() -> None:
        loop.now_us += 500
        budget.defer(answer, lane=OUTPUT)

    def request(lane: object) -> None:
        loop.now_us += 500
        served[lane].append(loop.turn)
        budget.defer(lambda: request(lane), lane=lane)

    for _ in range(50):
        budget.defer(answer, lane=OUTPUT)
    for lane in served:
        budget.defer(lambda lane=lane: request(lane), lane=lane)  # type: ignore[misc]
    loop.turns(budget, limit=30)
    assert all(turns == list(range(turns[0], 31, 3)) for turns in served.values())


def test_others_get_their_share_of_a_turn_even_if_an_answer_took_all_of_it() -> None:
    """The answer is read from a slow disk. A resumed waiter asks for room first, like a connection."""
    loop, budget = make_budget()
    served: list[int] = []

    def answer() -> None:
        loop.now_us += budget.turn_us
        budget.defer(answer, lane=OUTPUT)

    def request() -> None:
        if budget.has_room():
            loop.now_us += 500
            served.append(loop.turn)
        budget.defer(request, lane="requests")

    budget.defer(answer, lane=OUTPUT)
    budget.defer(request, lane="requests")
    for loop.turn in range(10):
        loop.scheduled.pop(0)()
    assert set(served) == set(range(10))


def test_answers_use_the_part_of_a_turn_that_no_other_work_needs() -> None:
    loop, budget = make_budget()
    order: list[tuple[int, object]] = []

    def work(lane: object) -> None:
        loop.now_us += 500
        order.append((loop.turn, lane))

    for lane in (OUTPUT, BULK):
        for _ in range(20):
            budget.defer(lambda lane=lane: work(lane), lane=lane)  # type: ignore[misc]
    loop.turns(budget)
    assert [lane for turn, lane in order if turn == 1] == [OUTPUT] * 4 + [BULK] * 2 + [OUTPUT] * 2


def test_an_answer_has_time_even_if_the_turn_may_start_no_more() -> None:
    loop, budget = make_budget()
    budget.spend(steps=TURN_STEPS)
    assert not budget.has_room()
    assert budget.has_time()
    loop.now_us += budget.turn_us
    assert not budget.has_time()


def test_waiter_after_one_that_queues_again_is_not_forgotten() -> None:
    loop, budget = make_budget()
    seen: list[str] = []

    def again() -> None:
        if len(seen) < 5:
            seen.append("again")
            budget.defer(again, lane=OUTPUT)

    budget.defer(again, lane=OUTPUT)
    budget.defer(lambda: seen.append("other"), lane=OUTPUT)
    loop.turns(budget)
    assert seen == ["again", "other", *["again"] * 3]


def test_nothing_is_scheduled_while_nothing_happens() -> None:
    loop, budget = make_budget()
    assert budget.has_room()
    loop.turns(budget)
    assert not loop.scheduled
    assert loop.turn == 1
