"""The checkers find every planted anomaly, and nothing else."""

import pytest
from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.counting import Asked, count_run, minimum_for
from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import check, examine
from pykraft.jepsen_like.faults.checkers.self_test.plants import PLANTS, clean_history, run_self_test
from pykraft.jepsen_like.faults.history import Event
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Plan, Target
from pykraft.jepsen_like.faults.runs.conclusion import what_is_asked
from tests.faults.histories import count_calls


def test_clean_history_has_no_finding() -> None:
    assert check(clean_history()) == ()


@pytest.mark.parametrize(("what", "kind", "plant"), PLANTS, ids=[what for what, _, _ in PLANTS])
def test_planted_anomaly_is_caught(what: str, kind: Anomaly, plant: object) -> None:
    assert callable(plant)
    findings = check(plant(clean_history()))
    assert kind in {finding.kind for finding in findings}
    assert all(finding.examples for finding in findings)


def test_most_planted_anomalies_are_distinguished_from_every_other_kind() -> None:
    """A checker that always reported every anomaly would pass the self-test."""
    alone = 0
    for _, kind, plant in PLANTS:
        alone += {finding.kind for finding in check(plant(clean_history()))} == {kind}
    assert alone >= 13


def test_self_test_covers_every_kind() -> None:
    assert run_self_test() == len(PLANTS)
    assert {kind for _, kind, _ in PLANTS} == set(Anomaly)


def test_unanswered_send_may_be_read_or_not() -> None:
    history = [
        Event("invoke", "p", 0, "send", "k", "a"),
        Event("invoke", "p", 1, "send", "k", "b"),
        Event("ok", "final", 2, "final", "k", records=[(0, "b")]),
        Event("ok", "final", 3, "final-end", "k", offset=1),
    ]
    assert check(history) == ()


def test_offsets_of_control_records_are_no_skip() -> None:
    history = [
        Event("invoke", "p", 0, "send", "k", "a"),
        Event("ok", "p", 0, "send", "k", "a", 0),
        Event("invoke", "p", 1, "send", "k", "b"),
        Event("ok", "p", 1, "send", "k", "b", 2),
        Event("ok", "final", 2, "final", "k", records=[(0, "a"), (2, "b")]),
        Event("ok", "final", 3, "final-end", "k", offset=4),
    ]
    assert check(history) == ()


def test_new_assignment_may_start_anywhere() -> None:
    sends = [
        Event(kind, "p", 0, "send", "k", value, offset)
        for offset, value in enumerate("abc")
        for kind in ("invoke", "ok")
    ]
    first = Event("ok", "c", 1, "poll", "k", records=[(0, "a"), (1, "b"), (2, "c")])
    again = Event("ok", "c", 3, "poll", "k", records=[(0, "a"), (1, "b")])
    assert check([*sends, first, Event("ok", "c", 2, "assign"), again]) == ()
    assert [f.kind for f in check([*sends, first, again])] == [Anomaly.NONMONOTONIC_POLL]


def test_acknowledgement_without_offset_still_guarantees_the_record() -> None:
    history = [
        Event("invoke", "p", 0, "send", "k", "a"),
        Event("ok", "p", 0, "send", "k", "a"),
        Event("ok", "final", 2, "final-end", "k", offset=0),
    ]
    assert [finding.kind for finding in check(history)] == [Anomaly.LOST_WRITE]


def test_checking_work_grows_linearly() -> None:
    short, long = clean_history(1_000), clean_history(8_000)
    small, large = count_calls(lambda: check(short)), count_calls(lambda: check(long))
    assert small > 1_000 and large < 9 * small


def _observed(op: str, key: str | None, values: list[str]) -> list[Event]:
    return [Event("info", "observer", 0, op, key, value) for value in values]


def test_spell_without_a_leader_is_one_change() -> None:
    events = _observed("leader", "k", ["1", "-1", "2", "-1", "2"]) + _observed(
        "leader", "j", ["3", "-1", "3"]
    )
    assert count_run(events, 60).tally.leader_changes == 1


def test_quiet_run_does_not_count() -> None:
    faults = [Event("ok", "nemesis", 0, "kill", value="1")] * 8
    changes = _observed("leader", "k", ["1", "2", "1"]) + _observed("controller", None, ["1", "2"])
    sends = [Event("ok", "p", 0, "send", "k", str(n), n) for n in range(20_000)]
    assert count_run([*faults, *changes, *sends], 60).counts
    verdict = count_run([*faults[1:], *changes, *sends[1:]], 60)
    assert not verdict.counts
    assert len(verdict.shortfalls) == 2


def test_run_need_not_come_to_more_than_it_was_asked_for() -> None:
    def plan(*faults: tuple[str, Target]) -> Asked:
        planned = [Fault(number, kind, target, 1.0, 1.0) for number, (kind, target) in enumerate(faults)]
        return what_is_asked(Plan(1, 60.0, (), tuple(planned)))

    sends = [Event("ok", "p", 0, "send", "k", str(n), n) for n in range(20_000)]
    cut = Event("ok", "nemesis", 0, "cut-pair", value="1,2")
    one_cut = plan(("cut-pair", Target.ANY))
    assert count_run([cut, *sends], 60, asked=one_cut).counts
    assert count_run(sends, 60, asked=one_cut).shortfalls == ("0 faults, at least 1 needed",)
    assert count_run(sends, 60, asked=plan()).counts, "no faults were asked for"
    assert not count_run(sends[1:], 60, asked=plan()).counts
    killed = count_run(sends, 60, asked=plan(("kill", Target.ANY), ("kill-all", Target.ALL))).minimum
    assert (killed.faults, killed.leader_changes, killed.controller_changes) == (1, 1, 1)
    many = plan(*[("kill", Target.CONTROLLER)] * 50)
    assert count_run(sends, 60, asked=many).minimum == count_run(sends, 60).minimum


def test_simulated_schedule_is_judged_by_its_own_checks() -> None:
    run = Event("info", "runner", 0, "run", detail={"workload": "append", "violations": []})
    assert count_run([run], 60).counts


def test_run_does_not_count_if_a_register_could_not_be_decided() -> None:
    verdict = count_run([], 60, undecided=2)
    assert "2 registers could not be decided" in verdict.shortfalls
    assert not any("registers" in shortfall for shortfall in count_run([], 60).shortfalls)


def test_minimums_scale_with_the_length_but_never_to_zero() -> None:
    assert minimum_for(60).faults == 8
    assert minimum_for(30).acknowledged == 10_000
    assert minimum_for(5).controller_changes == 1
    assert minimum_for(120).leader_changes == 4


@pytest.mark.parametrize(
    ("workload", "op", "needed"),
    [
        ("append", "send", 20_000),
        ("groups", "send", 20_000),
        ("unheard-of", "send", 20_000),
        ("transactions", "send", 800),
        ("registers", "commit", 3_000),
        ("registers", "look", 3_000),
        ("compacted", "put", 3_000),
    ],
)
def test_what_must_have_been_acknowledged_depends_on_the_workload(
    workload: str, op: str, needed: int
) -> None:
    run = Event("info", "runner", 0, "run", detail={"workload": workload})
    operations = [Event("ok", "p", 0, op, "k", str(n), n) for n in range(needed)]
    failed = Event("info", "p", 0, op, "k", "unknown")
    verdict = count_run([run, *operations, failed], 60)
    assert verdict.tally.acknowledged == verdict.minimum.acknowledged == needed
    assert dict(verdict.sends_by_status) == {"ok": needed, "info": 1}
    assert len(verdict.shortfalls) == 3, "no faults and no changes"
    assert len(count_run([run, *operations[1:]], 60).shortfalls) == 4


def _written_again(max_in_flight: int, second_epoch: int) -> list[Event]:
    """One value at offsets 0 and 1, in batches of producer 7 and of two producer epochs."""
    batches = [[0, 0, 3, 11, 7, 0, 0], [1, 1, 4, 12, 7, second_epoch, 0]]
    return [
        Event("info", "p", 0, "producer", detail={"max_in_flight": max_in_flight}),
        Event("invoke", "p", 1, "send", "k", "a"),
        Event("ok", "p", 2, "send", "k", "a", 1),
        Event("ok", "final", 3, "final", "k", records=[(0, "a"), (1, "a")]),
        Event("ok", "final", 4, "final-end", "k", offset=2),
        Event(
            "ok", "replica-1", 5, "replica", "k", records=[(0, "a"), (1, "a")], detail={"batches": batches}
        ),
    ]


def test_value_that_a_pipelining_client_wrote_again_is_counted_separately() -> None:
    report = examine(_written_again(max_in_flight=5, second_epoch=1))
    assert report.findings == ()
    assert report.client_resends == 1


def test_value_that_a_client_wrote_again_after_it_had_skipped_a_sequence_is_counted_separately() -> None:
    skipped = Event("info", "p", 6, "skipped-sequence")
    report = examine([*_written_again(max_in_flight=1, second_epoch=1), skipped])
    assert (report.findings, report.client_resends) == ((), 1)
    report = examine([*_written_again(max_in_flight=1, second_epoch=0), skipped])
    assert Anomaly.DUPLICATE in {finding.kind for finding in report.findings}


@pytest.mark.parametrize(("max_in_flight", "second_epoch"), [(1, 1), (5, 0)])
def test_duplicate_without_that_excuse_is_found(max_in_flight: int, second_epoch: int) -> None:
    report = examine(_written_again(max_in_flight, second_epoch))
    assert {finding.kind for finding in report.findings} == {Anomaly.DUPLICATE, Anomaly.MOVED_OFFSET}
    assert report.client_resends == 0


def _deleted(asked: int, low_watermark: int | None, start: int) -> list[Event]:
    """Four records, of which the last read finds those from ``start`` on."""
    sends = [
        Event(kind, "p", 9, "send", "k", f"p-{n}", n if kind == "ok" else None, detail={"timestamp_ms": n})
        for n in range(4)
        for kind in ("invoke", "ok")
    ]
    answer = [] if low_watermark is None else [low_watermark]
    return [
        *sends,
        Event("ok", "c", 1, "poll", "k", records=[(n, f"p-{n}") for n in range(4)]),
        Event("ok", "seeker", 1, "offset-for-time", "k", None, 0, detail={"timestamp_ms": 0, "asked_us": 0}),
        Event("invoke", "deleter", 2, "delete-records", "k", str(asked)),
        *(Event("ok", "deleter", 3, "delete-records", "k", str(asked), low) for low in answer),
        Event("info", "c", 3, "poll", "k", offset=1, error="out of range"),
        Event("ok", "final", 4, "final-start", "k", offset=start),
        Event("ok", "final", 4, "final", "k", records=[(n, f"p-{n}") for n in range(start, 4)]),
        Event("ok", "final", 5, "final-end", "k", offset=4),
    ]


@pytest.mark.parametrize(
    ("asked", "low_watermark", "start"), [(2, 2, 2), (2, None, 2), (-1, 3, 3), (-1, 4, 4), (-1, None, 3)]
)
def test_records_that_were_to_be_deleted_need_not_be_there(
    asked: int, low_watermark: int | None, start: int
) -> None:
    assert check(_deleted(asked, low_watermark, start)) == ()


@pytest.mark.parametrize(("asked", "low_watermark", "start"), [(2, 2, 3), (2, None, 3)])
def test_more_than_was_to_be_deleted_is_lost(asked: int, low_watermark: int | None, start: int) -> None:
    kinds = {finding.kind for finding in check(_deleted(asked, low_watermark, start))}
    assert kinds == {Anomaly.LOST_WRITE}


def test_what_is_sent_after_everything_was_deleted_stays() -> None:
    answered = _deleted(-1, 2, 4)
    late = [event for event in answered if event.value == "p-3"]
    history = [event for event in answered if event.value != "p-3" and event.op != "poll"]
    place = next(n for n, event in enumerate(history) if event.op == "final-start")
    kinds = {finding.kind for finding in check([*history[:place], *late, *history[place:]])}
    assert kinds == {Anomaly.UNSEEN}, "nothing was read"


def test_position_may_have_met_a_deletion_that_was_lost_later() -> None:
    """The last read begins before the position: the leader that deleted more is gone."""
    assert check(_deleted(2, None, 1)) == ()


def test_position_above_the_log_start_is_not_lost_by_a_deletion() -> None:
    history = [
        replace(event, offset=3) if event.op == "poll" and event.type == "info" else event
        for event in _deleted(2, 2, 2)
    ]
    assert {finding.kind for finding in check(history)} == {Anomaly.POSITION_LOST}


@pytest.mark.parametrize(
    ("asked", "found", "is_right"), [(2, 2, True), (1, 2, False), (3, 3, True), (-1, 3, True), (2, 3, False)]
)
def test_look_up_may_have_met_a_deletion_that_was_lost_later(asked: int, found: int, is_right: bool) -> None:
    """The last read begins before the record that was found: the leader that deleted more is gone."""
    late = Event(
        "ok", "seeker", 4, "offset-for-time", "k", None, found, detail={"timestamp_ms": 0, "asked_us": 4}
    )
    history = [event for event in _deleted(asked, None, 1) if event.error is None]
    kinds = {finding.kind for finding in check([*history[:-3], late, *history[-3:]])}
    assert kinds == (set() if is_right else {Anomaly.WRONG_OFFSET_FOR_TIME})


def _generations(*, is_assigned: bool) -> list[Event]:
    """A classic member joins in generation 3, and in 2 at the next coordinator."""
    detail = {"group": "g", "protocol": "classic", "topics": ("t",)}
    heartbeats = [
        Event("ok", "m", time, "heartbeat", detail={"member_id": "m-1", "epoch": epoch})
        for time, epoch in ((1, 1), (3, 3), (5, 2))
    ]
    assigned = Event("info", "m", 4, "assigned", detail={"partitions": ["t-0"]})
    history = [Event("info", "m", 0, "member", detail=detail), *heartbeats, *[assigned] * is_assigned]
    return sorted(history, key=lambda event: event.time_us)


def test_generation_without_an_assignment_may_be_forgotten_by_the_next_coordinator() -> None:
    assert check(_generations(is_assigned=False)) == ()
    found = check(_generations(is_assigned=True))
    assert {finding.kind for finding in found} == {Anomaly.EPOCH_WENT_BACK}
