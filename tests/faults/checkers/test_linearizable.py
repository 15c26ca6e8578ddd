"""The search agrees with trying all orders, and says when it has not searched everything."""

import random
from collections.abc import Sequence
from itertools import chain, combinations, permutations

import pytest
from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.history import Report, examine, merge
from pykraft.jepsen_like.faults.checkers.linear_models import REGISTER, Read, Write, without_unread
from pykraft.jepsen_like.faults.checkers.linear_registers import check_ids, check_linearizable
from pykraft.jepsen_like.faults.checkers.linearizable import IMPOSSIBLE, Operation, Verdict, judge
from pykraft.jepsen_like.faults.history import Event

Action = Write | Read


def brute_force(operations: Sequence[Operation[Action]]) -> bool:
    """Whether any order of the answered operations, and of any of the others, explains all answers."""
    answered = [one for one in operations if one.answered_us is not None]
    unknown = [one for one in operations if one.answered_us is None]
    some = chain.from_iterable(combinations(unknown, count) for count in range(len(unknown) + 1))
    return any(
        keeps_times(order) and explains(order)
        for chosen in some
        for order in permutations([*answered, *chosen])
    )


def keeps_times(order: Sequence[Operation[Action]]) -> bool:
    return all(
        later.answered_us is None or later.answered_us >= earlier.invoked_us
        for earlier, later in combinations(order, 2)
    )


def explains(order: Sequence[Operation[Action]]) -> bool:
    state = REGISTER.initial
    for operation in order:
        after = REGISTER.step(state, operation.action)
        if after is IMPOSSIBLE:
            return False
        state = after
    return True


def draw(rng: random.Random, count: int, clients: int, values: int) -> list[Operation[Action]]:
    """A real register's operations, of each of which the answer may be another one (in half of the draws)."""
    lies = rng.choice((0.0, 0.5))
    free_us = [0] * clients
    moments = []
    for _ in range(count):
        client = rng.randrange(clients)
        invoked_us = free_us[client] + rng.randint(0, 3)
        answered_us = invoked_us + rng.randint(0, 6)
        free_us[client] = answered_us + 1
        moments.append((rng.randint(invoked_us, answered_us), rng.random(), invoked_us, answered_us))
    state: str | None = None
    operations: list[Operation[Action]] = []
    for _, _, invoked_us, answered_us in sorted(moments):
        value = str(rng.randrange(values))
        if rng.random() < 0.5:
            found = rng.choice((None, *map(str, range(values)))) if rng.random() < lies else state
            operations.append(Operation(Read(found), invoked_us, answered_us))
        elif rng.random() < 0.3:
            operations.append(Operation(Write(value), invoked_us, None))
            state = value if rng.random() < 0.5 else state
        else:
            operations.append(Operation(Write(value), invoked_us, answered_us))
            state = value
    return operations


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_have_the_verdict_of_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    verdicts = []
    for _ in range(700):
        operations = draw(rng, rng.randint(1, 6), rng.randint(1, 4), rng.randint(1, 4))
        expected = brute_force(operations)
        for given in (operations, without_unread(operations)):
            judgement = judge(given, REGISTER)
            assert judgement.verdict is (Verdict.LINEARIZABLE if expected else Verdict.VIOLATION), operations
            assert (judgement.stuck is None) is expected
        verdicts.append(expected)
    assert 100 < sum(verdicts) < 600, "both verdicts must be common"


def test_long_histories_are_judged_within_the_budget() -> None:
    rng = random.Random(5)
    found = [judge(without_unread(draw(rng, 2_000, 8, 10_000)), REGISTER) for _ in range(6)]
    assert {one.verdict for one in found} == {Verdict.LINEARIZABLE, Verdict.VIOLATION}


def operation(action: Action, invoked_us: int, answered_us: int | None) -> Operation[Action]:
    return Operation(action, invoked_us, answered_us)


def test_the_operation_that_nothing_explains_is_named() -> None:
    stale = operation(Read("a"), 40, 50)
    history = [operation(Write("a"), 0, 10), operation(Write("b"), 20, 30), stale]
    assert judge(history, REGISTER).stuck == stale


@pytest.mark.parametrize(("seen_us", "is_allowed"), [(5, False), (15, True), (1_000_000, True)])
def test_a_write_of_unknown_outcome_may_take_effect_at_any_later_time(seen_us: int, is_allowed: bool) -> None:
    history = [
        operation(Write("a"), 0, 1),
        operation(Write("late"), 10, None),
        operation(Write("b"), 11, 12),
        operation(Read("late"), seen_us, seen_us),
    ]
    verdict = judge(history, REGISTER).verdict
    assert verdict is (Verdict.LINEARIZABLE if is_allowed else Verdict.VIOLATION)


def test_a_write_takes_effect_once() -> None:
    history = [
        operation(Write("a"), 0, None),
        operation(Write("b"), 0, 100),
        *(operation(Read(value), 10 * (1 + n), 10 * (1 + n)) for n, value in enumerate("aba")),
    ]
    assert judge(history, REGISTER).verdict is Verdict.VIOLATION


def test_nothing_is_claimed_when_the_budget_is_used_up() -> None:
    overlapping = [operation(Write(str(n)), 0, 100) for n in range(12)]
    history = [*overlapping, *(operation(Read(str(n)), 200 + n, 200 + n) for n in range(2))]
    for budget in (1, 10, 1_000):
        judgement = judge(history, REGISTER, budget)
        assert judgement.verdict is Verdict.UNDECIDED
        assert judgement.configurations == budget
        assert judgement.stuck is None


def test_ids_are_given_out_once_in_any_order_and_by_each_allocator() -> None:
    given = [
        Event("ok", "c", 0, "allocate", allocator, id)
        for allocator, id in (("x", "7"), ("x", "3"), ("y", "7"))
    ]
    findings = Findings()
    check_ids([*given, Event("info", "c", 9, "allocate", "x", None)], findings)
    assert findings.result() == ()
    check_ids([*given, Event("ok", "d", 9, "allocate", "y", "7")], findings)
    assert [(one.kind, one.key, one.count) for one in findings.result()] == [(Anomaly.REPEATED_ID, "y", 1)]


# --- in histories ------------------------------------------------------------------------------------------


def written(process: str, value: str, invoked_us: int, answered_us: int, outcome: str = "ok") -> list[Event]:
    ask = Event("invoke", process, invoked_us, "commit", "g/t-0", value, int(value))
    return [ask, replace(ask, type=outcome, time_us=answered_us)]


def found(value: str | None, asked_us: int, time_us: int) -> Event:
    offset = None if value is None else int(value)
    return Event("ok", "c", time_us, "committed", "g/t-0", value, offset, detail={"asked_us": asked_us})


DECLARED = Event("info", "runner", 0, "register", "g/t-0")


def test_only_declared_registers_must_be_linearizable() -> None:
    """Members repeat commits, so that one may take effect twice."""
    history = [
        *written("a", "1", 0, 100),
        *written("b", "2", 0, 100),
        *(found(value, time_us, time_us) for value, time_us in (("1", 10), ("2", 20), ("1", 30))),
    ]
    history.sort(key=lambda event: event.time_us)
    assert examine(history).findings == ()
    kinds = {finding.kind for finding in examine([DECLARED, *history]).findings}
    assert kinds == {Anomaly.NONLINEARIZABLE}


def test_a_failed_write_never_happens_and_an_open_one_may() -> None:
    for outcome, is_allowed in (("ok", True), ("info", True), ("fail", False)):
        history = [DECLARED, *written("a", "1", 10, 20, outcome), found("1", 30, 40)]
        findings = Findings()
        check_linearizable(history, findings)
        assert (findings.result() == ()) is is_allowed, outcome
    findings = Findings()
    check_linearizable([DECLARED, written("a", "1", 10, 20)[0], found("1", 30, 40)], findings)
    assert findings.result() == ()


def test_a_register_that_could_not_be_decided_is_counted() -> None:
    history = [event for n in range(12) for event in written(f"w{n}", str(n), 0, 100)]
    history = [DECLARED, *sorted(history, key=lambda event: event.time_us), found("3", 200, 201)]
    findings = Findings()
    assert check_linearizable([*history, found("4", 202, 203)], findings, budget=50) == 1
    assert findings.result() == ()
    assert merge([Report((), undecided=1), Report((), undecided=2)]).undecided == 3


def test_where_commits_were_lost_nothing_older_is_demanded() -> None:
    lost = Event("info", "disks", 50, "exempted", key="__consumer_offsets-1")
    history = [DECLARED, *written("a", "1", 0, 10), *written("a", "2", 20, 30), lost, found("1", 60, 70)]
    assert examine(history).findings == ()
    assert {finding.kind for finding in examine([*history[:-2], history[-1]]).findings} == {
        Anomaly.NONLINEARIZABLE,
        Anomaly.LOST_CHANGE,
    }
