"""What clients see of faults: hand-made histories with known answers, and properties of any history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykraft.jepsen_like.faults.history import Event, HistoryError
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Intensity, Phase, Plan, Target
from pykraft.jepsen_like.faults.timeline.analysis import Analysis, analyse_events
from pykraft.jepsen_like.faults.timeline.availability import FLOOR_US, Availability, Window, incidents
from pykraft.jepsen_like.faults.timeline.faults import PhaseSpan, faults_of
from pykraft.jepsen_like.faults.timeline.recovery import ASKS_WITHIN_US, Recovery
from pykraft.jepsen_like.faults.timeline.seconds import Percentiles, percentiles
from tests.faults.histories import fault, in_order, led, ms, sent, steadily

PLAN = Plan(
    1,
    10.0,
    (Phase(Intensity.MANY, 0.0), Phase(Intensity.NONE, 4.0)),
    (Fault(0, "kill", Target.ANY, 1.0, 1.5), Fault(1, "kill", Target.ANY, 2.0, 1.5)),
)


def analysis(*parts: Event | list[Event], plan: Plan | None = None) -> Analysis:
    events = in_order(*parts)
    return analyse_events(lambda: events, plan)


def recovery_s(*parts: Event | list[Event]) -> float | None:
    """Of the first fault."""
    return analysis(*parts).faults[0].recovery_s


def windows(*parts: Event | list[Event]) -> list[tuple[str, int, int]]:
    return [
        (window.place, window.begin_us // 1000, window.end_us // 1000) for window in analysis(*parts).windows
    ]


# --- faults and phases -------------------------------------------------------------------------------------


def test_faults_have_their_repairs_victims_and_settings() -> None:
    events = [
        *fault(3, "slow", "1,2", 200, 900, delay_ms=20),
        *fault(2, "kill", "1", 100, 800),
        *fault(4, "moves", "", 950, None),
        Event("ok", "nemesis", ms(990), "repaired", value="9", detail={"number": 9, "kind": "kill"}),
    ]
    kill, slow, moves = faults_of(events)
    assert (kill.number, kill.begin_us, kill.repaired_us, str(kill)) == (2, ms(100), ms(800), "kill 1")
    assert (slow.victims, slow.settings, slow.planned_s) == (("1", "2"), {"delay_ms": 20}, 1.5)
    assert (moves.victims, moves.repaired_us, str(moves)) == ((), None, "moves")
    assert slow.in_force(ms(0), ms(200)) and slow.in_force(ms(900), ms(999))
    assert not slow.in_force(ms(0), ms(199)) and not slow.in_force(ms(901), ms(999))
    assert moves.in_force(ms(5000), ms(5000))


@pytest.mark.parametrize(
    "detail", [None, {}, {"number": "x", "for_s": "long"}, {"number": [1], "kind": [2], "for_s": None}]
)
def test_fault_that_says_little_of_itself_is_a_fault(detail: dict[str, object] | None) -> None:
    begun = Event("ok", "nemesis", 5, "kill", detail=detail)
    (found,) = faults_of([begun, Event("ok", "nemesis", 6, "repaired", detail=detail)])
    assert (found.number, found.planned_s, found.repaired_us) == (-1, 0.0, None)


def test_phases_begin_when_the_runner_says() -> None:
    marks = [
        Event("info", "runner", ms(at_ms), op)
        for op, at_ms in (("faults-begin", 2_000), ("faults-end", 12_500), ("in-sync", 13_000))
    ]
    assert analysis(marks, steadily(2_000, 15_001, every_ms=1_000), plan=PLAN).phases == (
        PhaseSpan("start", 0, ms(2_000)),
        PhaseSpan("many", ms(2_000), ms(6_000)),
        PhaseSpan("none", ms(6_000), ms(12_000)),
        PhaseSpan("healing", ms(12_500), ms(13_000)),
        PhaseSpan("end", ms(13_000), ms(15_005)),
    )


def test_without_a_word_of_the_runner_phases_are_placed_by_the_fault_that_was_most_punctual() -> None:
    found = analysis(fault(0, "kill", "1", 4_100, 5_000), fault(1, "kill", "1", 5_020, 6_000), plan=PLAN)
    assert found.phases[1] == PhaseSpan("many", ms(3_020), ms(7_020))
    assert analysis(plan=PLAN).phases == ()


# --- unavailability ----------------------------------------------------------------------------------------


def test_waiting_from_the_last_acknowledgement_to_the_next_is_unavailability() -> None:
    stalled = sent("a", 0, 100), sent("b", 50, 2_000), sent("c", 1_900, 2_050)
    assert windows(*stalled) == [("t-0", 100, 2_000)]


def test_nobody_waits_between_an_answer_and_the_next_send() -> None:
    assert windows(sent("a", 0, 10), sent("b", 5_000, 5_010)) == []
    assert windows(sent("a", 0, 10), sent("b", 5_000, 5_700)) == [("t-0", 5_000, 5_700)]


def test_wait_below_the_floor_is_none() -> None:
    assert windows(sent("a", 0, 499.9)) == []
    assert windows(sent("a", 0, 500)) == [("t-0", 0, 500)]


def test_failure_and_unknown_outcome_are_no_answers() -> None:
    tries = [
        sent("a", 0, 400, outcome="info"),
        sent("b", 900, 1_300, outcome="fail"),
        sent("c", 1_500, 1_600),
    ]
    assert windows(*tries) == [("t-0", 0, 1_600)]


def test_wait_ends_with_the_last_try_if_nobody_tries_again() -> None:
    tries = [sent("a", 0, 700, outcome="info"), sent("b", 9_000, 9_010)]
    assert windows(*tries) == [("t-0", 0, 700)]
    assert windows(tries[0]) == [("t-0", 0, 700)]


def test_send_without_an_answer_is_waited_for_as_long_as_anybody_sends() -> None:
    assert windows(sent("a", 0, None, "t-1"), steadily(0, 3_000)) == [("t-1", 0, 2_995)]


def test_sends_with_weaker_guarantees_do_not_count() -> None:
    weak = Event("info", "w", 0, "producer", detail={"acks": 0})
    answered = [event for n in range(20) for event in sent(f"w{n}", n * 100, n * 100, process="w")]
    assert windows(weak, answered, sent("a", 0, 1_000)) == [("t-0", 0, 1_000)]


def test_share_is_of_the_partitions_that_are_asked() -> None:
    found = analysis(
        steadily(0, 3_000),
        sent("a", 100, 2_500, "t-1"),
        sent("late", 2_900, 3_100, "t-2"),
        led("t-0", "1", 4_900),
    )
    assert found.availability == [0.5, 0.5, 1.0, 1.0, None]


def test_windows_that_overlap_are_one_incident() -> None:
    found = incidents(
        tuple(Window(*one) for one in (("a", 0, 10), ("b", 5, 30), ("c", 30, 31), ("a", 40, 42)))
    )
    assert [(one.begin_us, one.end_us, one.places, one.longest.place) for one in found] == [
        (0, 31, ("a", "b", "c"), "b"),
        (40, 42, ("a",), "a"),
    ]


def test_longest_unavailability_comes_with_what_is_known_of_its_reason() -> None:
    found = analysis(
        steadily(0, 1_000),
        sent("stalled", 1_000, 5_000),
        fault(0, "kill", "1", 1_001, 3_000),
        fault(1, "pause", "2", 2_500, 4_000),
        fault(2, "pause", "3", 3_500, 3_600),
        fault(3, "kill", "1", 6_000, 7_000),
        [led("t-0", "1", 0), led("t-0", "-1", 1_500), led("t-0", "2", 2_250)],
        steadily(5_000, 8_000),
    ).longest_unavailability
    assert found is not None
    assert (found.window.begin_us, found.window.end_us) == (ms(1_000), ms(5_000))
    assert [one.number for one in found.in_force] == [0, 1, 2]
    assert found.struck == ("1", "2")
    assert (found.leaderless_us, found.leaders) == (ms(750), ("1", "-1", "2"))


def test_unavailability_without_a_fault_names_the_last_one_before() -> None:
    parts = [fault(0, "kill", "1", 100, 200), fault(1, "kill", "2", 300, 400), sent("a", 500, 1_500)]
    found = analysis(*parts).longest_unavailability
    assert found is not None and found.before is not None
    assert (found.in_force, found.before.number) == ((), 1)


def test_without_unavailability_there_is_no_longest() -> None:
    assert analysis(steadily(0, 2_000)).longest_unavailability is None


# --- recovery ----------------------------------------------------------------------------------------------


def test_recovery_ends_with_the_first_answer_to_a_later_question() -> None:
    before, stalled = steadily(0, 1_000), sent("open", 995, 3_000)
    later = sent("later", 1_200, 3_400) + sent("last", 3_100, 3_450)
    assert recovery_s(before, stalled, later, fault(0, "kill", "1", 1_000, 2_000)) == 2.4


def test_recovery_is_that_of_the_slowest_partition() -> None:
    slow = [*steadily(0, 1_000, "t-1"), *sent("x", 1_000, 4_000, "t-1")]
    assert recovery_s(steadily(0, 5_000), slow, fault(0, "kill", "1", 1_000, 2_000)) == 3.0


def test_fault_that_hurts_nobody_costs_what_an_operation_costs() -> None:
    found = analysis(steadily(0, 5_000), fault(0, "kill", "1", 2_002, 2_500))
    assert found.faults[0].recovery_s == pytest.approx(0.008)
    assert found.calm_s is not None and found.calm_s.max == pytest.approx(0.005)


def test_time_in_which_nobody_waits_does_not_count() -> None:
    rare = [sent("a", 990, 1_010), sent("b", 5_000, 5_020)]
    assert recovery_s(*rare, fault(0, "kill", "1", 1_000, 2_000)) == pytest.approx(0.030)


def test_client_that_waits_for_each_answer_is_as_late_as_its_answer() -> None:
    waits = [sent("a", 990, 3_000), sent("b", 3_001, 3_002)]
    assert recovery_s(*waits, fault(0, "pause", "1", 1_000, 2_900)) == pytest.approx(2.001)


def test_failed_tries_belong_to_the_wait() -> None:
    tries = [
        sent("a", 1_100, 1_200, outcome="fail"),
        sent("b", 2_100, 2_200, outcome="info"),
        sent("c", 3_100, 3_200),
    ]
    assert recovery_s(*tries, fault(0, "kill", "1", 1_000, 1_050)) == pytest.approx(2.1)


def test_partition_that_is_first_asked_much_later_does_not_count() -> None:
    later = 1_000 + ASKS_WITHIN_US // 1000 + 1
    slow = sent("new", later, later + 9_000, "new-0")
    assert recovery_s(steadily(0, 30_000), slow, fault(0, "kill", "1", 1_000, 1_100)) == pytest.approx(0.005)


def test_answer_before_a_long_rest_is_what_is_known_of_a_partition() -> None:
    rests = [*sent("a", 900, 1_700, "t-1"), *sent("b", 20_000, 29_000, "t-1")]
    assert recovery_s(steadily(0, 30_000), rests, fault(0, "kill", "1", 1_000, 1_100)) == pytest.approx(0.7)


def test_partition_without_an_answer_has_not_recovered() -> None:
    dead = [
        event for n in range(290) for event in sent(f"d{n}", 100 * n, 100 * n + 90, "t-1", outcome="info")
    ]
    found = analysis(steadily(0, 29_000), dead, fault(0, "kill", "1", 1_000, 1_100))
    (one,) = found.faults
    assert (one.recovery_s, one.missing, one.alone) == (None, ("t-1",), True)
    assert found.by_kind["kill"].not_recovered == 1


def test_operation_that_hangs_to_the_end_has_not_recovered() -> None:
    found = analysis(sent("hangs", 900, None), steadily(0, 3_000, "t-1"), fault(0, "kill", "1", 1_000, 1_100))
    assert found.faults[0].missing == ("t-0",)


def test_clients_that_gave_up_leave_nothing_to_judge() -> None:
    gave_up = sent("once", 1_100, 1_200, "gone-0", outcome="fail")
    found = analysis(steadily(0, 30_000), gave_up, fault(0, "kill", "1", 1_000, 1_050))
    assert found.faults[0].recovery_s == pytest.approx(0.005)


def test_fault_that_strikes_late_is_recovered_from_late() -> None:
    parts = [steadily(0, 3_000), sent("late", 3_000, 4_500), steadily(4_500, 9_000)]
    found = analysis(*parts, fault(0, "rolling-restart", "1,2,3", 1_000, 4_000))
    assert found.faults[0].recovery_s == 3.5
    assert found.faults[0].after_repair_s == pytest.approx(0.5 + 0.005)


def test_faults_that_meet_are_not_alone() -> None:
    parts = [steadily(0, 1_000), sent("stalled", 1_001, 3_000), steadily(3_000, 9_000)]
    faults = [
        fault(0, "kill", "1", 1_000, 1_100),
        fault(1, "kill", "2", 2_000, 2_100),
        fault(2, "pause", "3", 6_000, 6_500),
    ]
    found = analysis(*parts, *faults)
    assert [one.alone for one in found.faults] == [False, False, True]
    kill = found.by_kind["kill"]
    assert (kill.count, kill.alone, kill.alone_recovery_s) == (2, 0, None)
    assert found.by_kind["pause"].alone == 1


def test_fault_is_recorded_after_what_it_did() -> None:
    events = in_order(steadily(0, 1_000), sent("a", 1_000, 2_000), sent("b", 2_000, 2_010))
    late = [*events, *fault(0, "kill", "1", 1_000, 2_005)]
    assert analyse_events(lambda: late).faults[0].recovery_s == 1.0


# --- other operations --------------------------------------------------------------------------------------


def test_without_sends_other_operations_are_waited_on() -> None:
    events = [
        Event("invoke", "c", ms(0), "set", "x", "1"),
        Event("ok", "c", ms(800), "set", "x", "1"),
        Event("invoke", "c", ms(900), "read", "x"),
        Event("ok", "c", ms(1_700), "read", "x", "1"),
        Event("invoke", "c", ms(0), "poll", "t-0"),
        Event("ok", "c", ms(9_000), "poll", "t-0", records=[(0, "a")]),
    ]
    found = analysis(events)
    assert found.overview.waited_on == {"set", "read"}
    assert [window.place for window in found.windows] == ["set x", "read x"]
    assert {rates.op: rates.total_ms and rates.total_ms.max for rates in found.rates} == {
        "set": 800.0,
        "read": 800.0,
        "poll": 9_000.0,
    }


def test_transactions_are_waited_on_when_they_begin_and_end() -> None:
    events = [
        *sent("a", 0, 5_000, process="appender-1.0"),
        Event("invoke", "appender-1.0", ms(4_300), "txn-commit", value="one"),
        Event("ok", "appender-1.0", ms(5_000), "txn-commit", value="one"),
        Event("invoke", "appender-1.1", ms(5_900), "txn-init", value="appender-1"),
        Event("ok", "appender-1.1", ms(5_910), "txn-init", value="appender-1"),
    ]
    found = analysis(events, fault(0, "kill", "1", 4_400, 5_000))
    assert found.windows == (Window("appender-1", ms(4_300), ms(5_000)),)
    assert found.faults[0].recovery_s == pytest.approx(0.610)
    assert found.overview.place_name == "client"


def test_what_was_asked_for_is_an_operation_and_other_information_is_not() -> None:
    events = [
        Event("ok", "look", ms(1_500), "get", "x", "1", detail={"asked_us": ms(1_000)}),
        Event("ok", "final-0", ms(1_600), "final-end", "t-0", offset=5),
        Event("info", "p", ms(1_700), "txn-begin", value="t1"),
        Event("ok", "look", ms(1_800), "get", "x", "1", detail={"asked_us": "soon"}),
    ]
    (rates,) = analysis(events).rates
    assert (rates.op, rates.ok, rates.total_ms) == ("get", [0, 1], Percentiles(1, 500.0, 500.0, 500.0))


def test_rates_are_counted_by_the_second_of_the_outcome() -> None:
    events = [
        *sent("a", 0, 10),
        *sent("b", 900, 1_100),
        *sent("c", 1_000, 1_500, outcome="fail"),
        *sent("d", 1_000, 2_500, outcome="info"),
        *sent("e", 0, None),
    ]
    (rates,) = analysis(events).rates
    assert (rates.ok, rates.failed, rates.unknown) == ([1, 1, 0], [0, 1, 0], [0, 0, 1])
    assert [one and one.p50 for one in rates.latency_ms] == [10.0, 200.0, None]
    assert rates.count == 4


def test_sends_are_shown_by_the_guarantee_that_was_asked_for() -> None:
    weak = Event("info", "w", 0, "producer", detail={"acks": 1})
    found = analysis(weak, sent("a", 0, 10), sent("b", 0, 10, process="w"))
    assert {rates.op for rates in found.rates} == {"send", "send, acks=1"}


def test_lag_is_what_was_acknowledged_and_not_polled() -> None:
    polled = [
        Event("ok", "reader", ms(1_500), "poll", "t-0", records=[(0, "a"), (1, "b")]),
        Event("ok", "again", ms(3_500), "poll", "t-0", records=[(0, "a")]),
    ]
    events = [*sent("a", 0, 10, offset=0), *sent("z", 0, 1_600, offset=9), *sent("y", 0, 3_600, offset=11)]
    assert analysis(events, polled).lag == [None, 8, 8, 10]


def test_percentiles_are_numbers_that_were_measured() -> None:
    assert percentiles([]) is None
    assert percentiles([3.0]) == Percentiles(1, 3.0, 3.0, 3.0)
    assert percentiles(list(range(1, 101))) == Percentiles(100, 50, 99, 100)


def test_empty_history_has_an_empty_timeline() -> None:
    found = analyse_events(list)
    assert (found.faults, found.windows, found.rates, found.phases) == ((), (), (), ())
    assert (found.availability, found.lag, found.calm_s) == ([None], [None], None)


def test_history_that_claims_to_be_a_year_long_is_refused() -> None:
    with pytest.raises(HistoryError, match="no run is that long"):
        analysis([Event("ok", "p", 365 * 24 * 3_600_000_000, "send")])


# --- properties --------------------------------------------------------------------------------------------

PLACES = ("a", "b")
Operation = tuple[int, int, str, bool]
"""Invocation and end in milliseconds, place, and whether it was acknowledged."""


@st.composite
def operations(draw: st.DrawFn, *, always_ok: bool = False) -> list[Operation]:
    """No two times are the same."""
    count = draw(st.integers(1, 12))
    times = draw(st.lists(st.integers(1, 8_000), min_size=2 * count, max_size=2 * count, unique=True))
    return [
        (
            min(one, other),
            max(one, other),
            draw(st.sampled_from(PLACES)),
            always_ok or draw(st.booleans()),
        )
        for one, other in zip(times[::2], times[1::2], strict=True)
    ]


def steps(ops: list[Operation]) -> list[tuple[int, bool, int, str, bool]]:
    """Each beginning and each end: time, whether it is an end, invocation, place, acknowledged."""
    begun = [(begin, False, begin, place, ok) for begin, _, place, ok in ops]
    return sorted([*begun, *((end, True, begin, place, ok) for begin, end, place, ok in ops)])


@given(operations(always_ok=True))
def test_windows_are_the_long_stretches_with_something_open_and_no_answer(
    ops: list[Operation],
) -> None:
    availability = Availability()
    expected = []
    for place in PLACES:
        since, opened = None, 0
        for at, is_end, *_ in (step for step in steps(ops) if step[3] == place):
            if is_end and since is not None and (at - since) * 1000 >= FLOOR_US:
                expected.append((place, since, at))
            opened += -1 if is_end else 1
            since = at if is_end and opened else None if is_end else at if since is None else since
    for at, is_end, _, place, _ in steps(ops):
        if is_end:
            availability.ended(place, ms(at), acknowledged=True)
        else:
            availability.invoked(place, ms(at))
    found = [(one.place, one.begin_us // 1000, one.end_us // 1000) for one in availability.windows()]
    assert sorted(found) == sorted(expected)


@given(operations(), st.lists(st.integers(0, 9_000), min_size=1, max_size=4, unique=True))
def test_recovery_is_the_wait_until_the_first_answer_to_a_later_question(
    ops: list[Operation], moments: list[int]
) -> None:
    moments.sort()
    recovery = Recovery([ms(moment) for moment in moments])
    for at, is_end, begin, place, ok in steps(ops):
        if is_end:
            recovery.ended(place, ms(begin), ms(at), acknowledged=ok)
        else:
            recovery.invoked(place, ms(at))
    last = max(end for _, end, _, _ in ops)
    for moment, found in zip(moments, recovery.results(), strict=True):
        waits, missing = [], []
        for place in PLACES:
            busy = busy_stretches(ops, place, last)
            answers = [end for begin, end, where, ok in ops if where == place and ok and begin >= moment]
            end = min(answers, default=last)
            waited = sum(max(0, min(to, end) - max(since, moment)) for since, to, _ in busy)
            if not answers and busy and not busy[-1][2] and moment <= last:
                missing.append(place)
            elif waited:
                waits.append(waited)
        assert found.missing == missing
        assert found.waited_us == (ms(max(waits)) if waits else None)


def busy_stretches(ops: list[Operation], place: str, last: int) -> list[tuple[int, int, bool]]:
    """From, to, and whether an acknowledgement ended it, after which nothing was open."""
    found: list[tuple[int, int, bool]] = []
    since: int | None = None
    for at, is_end, *_, ok in (step for step in steps(ops) if step[3] == place):
        if since is None:
            since = at
        elif is_end and ok and not any(b < at < e for b, e, where, _ in ops if where == place):
            found.append((since, at, True))
            since = None
    return found if since is None else [*found, (since, last, False)]


@given(operations(), st.permutations(range(3)))
def test_analysis_of_any_history_is_consistent(ops: list[Operation], order: list[int]) -> None:
    parts = [
        [
            event
            for n, (begin, end, key, ok) in enumerate(ops)
            for event in sent(f"v{n}", begin, end, key, outcome="ok" if ok else "info")
        ],
        fault(0, "kill", "1", 1_000, 2_000),
        fault(1, "kill", "2", 3_000, None),
    ]
    found = analysis(*(parts[n] for n in order))
    seconds = found.overview.end_us // 1_000_000 + 1
    assert len(found.availability) == len(found.lag) == seconds
    assert all(share is None or 0 <= share <= 1 for share in found.availability)
    assert sum(rates.count for rates in found.rates) == len(ops)
    assert all(len(rates.ok) == len(rates.latency_ms) == seconds for rates in found.rates)
    assert [one.fault.number for one in found.faults] == [0, 1]
    assert all(window.length_us >= FLOOR_US for window in found.windows)
