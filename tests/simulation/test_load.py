"""How the records of ring 2 are checked: only exempted losses may be noticed late."""

from collections.abc import Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.jepsen_like.faults.history import MemoryHistory
from pykraft.jepsen_like.simulation.cluster.checks.data_watch import (
    COMPLETE_LEADER,
    MONOTONE,
    SAME_BELOW,
    DataWatch,
)
from pykraft.jepsen_like.simulation.cluster.clients import load as load_module
from pykraft.jepsen_like.simulation.cluster.clients.load import Load, _without_lost
from pykraft.jepsen_like.simulation.cluster.options import TRANSACTIONS
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import read_header
from pykraft.log_store.interface import LogConfig
from pykraft.metadata_log.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from pykraft.metadata_log.records import NO_LEADER, LogsLost, PartitionChangeRecord
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.partitions import append, make, state

TOPIC_ID = Uuid(b"i" * 16)
PRODUCER = {"max_in_flight": 1, "acks": -1, "idempotent": True}


class Client:
    """A workload that does nothing."""

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        work.close()


class StubLoop:
    now_s = 0.0


class StubWorld:
    """The part of a world that a workload's checks need; ``exempt``: a disk has lost its records."""

    def __init__(self) -> None:
        self.seed = 0
        self.story = None
        self.workload = None
        self.brokers: list[Any] = []
        self.transaction_faults = SimpleNamespace(step=lambda event: None)
        self.loop = StubLoop()
        self.lost: dict[str, set[tuple[int, str]]] = {}
        self.missed: dict[str, int] = {}
        self.repeated: dict[str, set[tuple[int, str]]] = {}
        data = SimpleNamespace(
            on_exempted=None,
            find_lost=lambda topic: {k: set(v) for k, v in self.lost.items()},
            find_missed=lambda topic: self.missed,
            find_repeated=lambda topic: self.repeated,
        )
        self.checker = SimpleNamespace(data=data)

    def start_client(self, name: str) -> Client:
        return Client()

    def exempt(self, topic: str = "append", lost: tuple[int, str] = (9, "another")) -> None:
        self.checker.data.on_exempted(topic, 0)
        if topic == "append":
            self.lost[f"{topic}-0"] = {lost}


def _load() -> tuple[StubWorld, Load]:
    world = StubWorld()
    return world, Load(cast(Any, world))


def _open(load: Load, name: str) -> None:
    load.history.record("info", name, "producer", detail=PRODUCER)


def _lose_sequence(load: Load, name: str) -> None:
    load.history.record("info", name, "producer-fatal", error="OUT_OF_ORDER_SEQUENCE_NUMBER: append-0")


def test_producer_whose_records_are_gone_may_learn_of_it_much_later() -> None:
    world, load = _load()
    _open(load, "p0.0")
    world.exempt()
    _lose_sequence(load, "p0.0")
    assert load.check_history()["producer-fatal info"] == 1


def test_producer_that_began_after_the_loss_keeps_its_sequence() -> None:
    world, load = _load()
    world.exempt()
    _open(load, "p0.1")
    _lose_sequence(load, "p0.1")
    with pytest.raises(InvariantViolation, match="producer-fatal"):
        load.check_history()


def test_producer_keeps_its_sequence_where_nothing_was_lost() -> None:
    world, load = _load()
    _open(load, "p0.0")
    world.exempt("t0")
    _lose_sequence(load, "p0.0")
    with pytest.raises(InvariantViolation, match="producer-fatal"):
        load.check_history()


def _find_nothing(load: Load) -> None:
    stamp = {"timestamp_ms": 5, "asked_us": 20}
    load.history.record("ok", "seeker", "offset-for-time", key="append-0", time_us=30, detail=stamp)


def _write_one(load: Load) -> None:
    record = load.history.record
    _open(load, "p0.0")
    record("invoke", "p0.0", "send", key="append-0", value="p0-0", time_us=1, detail={"timestamp_ms": 9})
    record("ok", "p0.0", "send", key="append-0", value="p0-0", time_us=10, offset=0)


def _read_it(load: Load) -> None:
    load.history.record("ok", "final-0", "assign", detail={"topic": "append", "partitions": [0]})
    load.history.record("invoke", "final-0", "final", key="append-0", time_us=40)
    load.history.record("ok", "final-0", "final", key="append-0", time_us=41, records=[(0, "p0-0")])
    load.history.record("ok", "final-0", "final-end", key="append-0", time_us=42, offset=1)


def test_former_leader_may_not_find_what_is_newer_until_it_is_healed() -> None:
    _, load = _load()
    _write_one(load)
    _find_nothing(load)
    load.finish()
    _read_it(load)
    assert load.check_history()["offset-for-time ok"] == 1
    _find_nothing(load)
    with pytest.raises(InvariantViolation, match="wrong-offset-for-time"):
        load.check_history()


@pytest.mark.parametrize("lost", [(1, "p0-0"), (0, "another")], ids=["offset", "value"])
def test_record_that_was_not_lost_with_others_must_be_there(lost: tuple[int, str]) -> None:
    world, load = _load()
    _write_one(load)
    world.exempt(lost=lost)
    load.finish()
    _read_nothing(load)
    with pytest.raises(InvariantViolation, match=r"lost-write|unseen"):
        load.check_history()


def test_record_that_was_lost_and_not_guaranteed_need_not_be_read_again() -> None:
    world, load = _load()
    _write_one(load)
    load.history.record("ok", "consumer-0", "poll", key="append-0", records=[(0, "p0-0")])
    world.exempt(lost=(0, "p0-0"))
    load.history.record("info", "consumer-0", "poll", key="append-0", offset=1, error="truncated")
    load.finish()
    _read_nothing(load)
    done = load.check_history()
    assert done["partitions of the workload that lost records"] == 1
    assert done["records lost that were not guaranteed"] == 1


@pytest.mark.parametrize("offset", [4, 5])
def test_position_may_be_lost_to_a_leader_that_lacked_what_a_later_one_has(offset: int) -> None:
    world, load = _load()
    world.missed = {"append-0": 4}
    load.history.record("info", "consumer-0", "poll", key="append-0", offset=offset, error="truncated")
    if offset > 4:
        assert load.check_history()["poll info"] == 1
    else:
        with pytest.raises(InvariantViolation, match="position-lost"):
            load.check_history()


def test_position_below_what_was_lost_is_kept() -> None:
    world, load = _load()
    world.exempt(lost=(5, "p0-5"))
    load.history.record("info", "consumer-0", "poll", key="append-0", offset=5, error="truncated")
    with pytest.raises(InvariantViolation, match="position-lost"):
        load.check_history()


def test_record_of_unknown_outcome_that_is_read_in_the_end_was_not_lost() -> None:
    world, load = _load()
    _write_one(load)
    world.exempt(lost=(0, "p0-0"))
    _read_it(load)
    assert load.check_history()["partitions of the workload that lost records"] == 0


def _read_nothing(load: Load) -> None:
    record = load.history.record
    record("ok", "final-0", "assign", detail={"topic": "append", "partitions": [0]})
    record("ok", "final-0", "final-end", key="append-0", time_us=42, offset=0)


def _watch(isr: tuple[int, ...], elr: tuple[int, ...] = ()) -> DataWatch:
    return _watch_of(isr, [], "append", elr)[0]


def _watch_of(
    isr: tuple[int, ...],
    failures: list[str],
    topic: str = "t",
    elr: tuple[int, ...] = (),
    *,
    keeps_logs: bool = False,
) -> tuple[DataWatch, Any]:
    replicas = (1, 2, 3)
    partition = SimpleNamespace(
        replicas=replicas,
        isr=isr,
        elr=elr,
        last_known_elr=(),
        leader_epoch=0,
        partition_epoch=0,
        joined=dict.fromkeys((*isr, *elr), 5),
    )
    model = SimpleNamespace(
        topics={TOPIC_ID: SimpleNamespace(name=topic, partitions=[partition])},
        ever_topics={TOPIC_ID: topic},
        brokers={id: SimpleNamespace(epoch=5) for id in replicas},
        ever_proposed={},
        features={ELIGIBLE_LEADER_REPLICAS_VERSION: 1},
    )
    watch = DataWatch(
        cast(Any, model), lambda invariant, detail: failures.append(invariant), keeps_logs=keeps_logs
    )
    return watch, model


def test_one_disk_of_the_isr_may_lose_its_tail_and_no_second_one_with_it() -> None:
    watch = _watch((1, 2, 3))
    assert watch.may_lose_tail(1)
    watch.tail_lost(1)
    assert not watch.may_lose_tail(2) and not watch.may_lose_tail(3)
    assert watch.exempted == 0


def test_last_disk_with_the_committed_records_may_not_lose_them() -> None:
    watch = _watch((1,))
    assert not watch.may_lose_tail(1)
    assert watch.may_lose_tail(2), "it is in neither the ISR nor the eligible"


def _forget_eligible(watch: DataWatch, model: Any) -> None:
    record = PartitionChangeRecord(0, TOPIC_ID, eligible_leader_replicas=())
    watch.before(record)
    model.topics[TOPIC_ID].partitions[0].elr = ()
    watch.after(record)


@pytest.mark.parametrize(
    ("features", "logs_lost", "exempted"), [(True, False, 0), (False, False, 1), (True, True, 1)]
)
def test_records_of_an_eligible_replica_are_required_until_it_is_forgotten_with_a_reason(
    features: bool, logs_lost: bool, exempted: int
) -> None:
    watch, model = _watch_of((1,), [], "append", (2,))
    watch.tail_lost(1)
    if not features:
        model.features.clear()
    model.brokers[2].logs_lost = LogsLost.TAIL if logs_lost else LogsLost.NOTHING
    _forget_eligible(watch, model)
    assert watch.exempted == exempted


@pytest.mark.parametrize(
    ("keeps_logs", "elected", "exempted"), [(True, 1, 0), (False, 1, 2), (True, 2, 1), (False, 2, 2)]
)
def test_last_leader_holds_what_was_committed_if_no_machine_loses_any_of_its_logs(
    keeps_logs: bool, elected: int, exempted: int
) -> None:
    watch, model = _watch_of((1,), [], "append", keeps_logs=keeps_logs)
    partition = model.topics[TOPIC_ID].partitions[0]
    died = PartitionChangeRecord(0, TOPIC_ID, isr=(), leader=NO_LEADER, last_known_elr=(1,))
    watch.before(died)
    partition.isr, partition.last_known_elr = (), (1,)
    watch.after(died)
    came_back = PartitionChangeRecord(0, TOPIC_ID, isr=(elected,), leader=elected, last_known_elr=())
    watch.before(came_back)
    partition.isr, partition.last_known_elr, partition.joined = (elected,), (), {elected: 5}
    watch.after(came_back)
    assert watch.exempted == exempted


class StubReplica:
    """A replica's log of one batch, whose high watermark has just passed it."""

    index = 0
    topic = "append"
    topic_id = TOPIC_ID
    high_watermark = 1
    isr = SimpleNamespace(committed=(1,))

    def __init__(self, leader_epoch: int, batch_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.is_leader = True
        self.followers: dict[int, object] = {}
        data = encode_batch([RecordInput(None, b"%d" % batch_epoch, (), 0)], leader_epoch=batch_epoch)
        header = read_header(data)
        self.log = SimpleNamespace(
            log_start_offset=0,
            disk=MemoryDisk(),
            config=LogConfig(),
            iter_headers=lambda *range: [header],
            iter_batches=lambda *range: [(header, data)],
        )


def test_former_leader_need_not_hold_what_was_committed_after_its_own_records_were_exempted() -> None:
    watch, failed = _watch((1,)), []
    watch._fail = lambda invariant, detail: failed.append(invariant)
    watch._model.topics[TOPIC_ID].partitions[0].leader_epoch = 1
    machines = [cast(Any, SimpleNamespace(id=id, starts=1, serves=True)) for id in (1, 2)]
    watch.moved(machines[0], cast(Any, StubReplica(1, 1)))
    watch.moved(machines[1], cast(Any, StubReplica(0, 0)))
    assert failed == []
    watch.moved(machines[1], cast(Any, StubReplica(1, 0)))
    assert failed == [SAME_BELOW]


def test_new_reference_begins_where_a_leader_without_all_records_begins_and_is_required_again() -> None:
    failures: list[str] = []
    watch, model = _watch_of((1, 2), failures)
    old, new, shorter = make(1), make(1), make(1)
    machine = cast(Any, SimpleNamespace(id=1, starts=1, serves=True))
    for epoch, partition in enumerate((old, new, shorter)):
        partition.apply(state(1, epoch=epoch, version=epoch, isr=(1,)), 0)
    for value in (b"kept", b"lost"):
        append(old, value)
    append(new, b"kept")
    watch.moved(machine, old)
    assert watch.find_lost("t") == {}
    model.brokers[1].epoch = model.brokers[2].epoch = 6
    watch.tail_lost(1)
    watch.tail_lost(2)
    assert watch.find_lost("t") == {"t-0": {(0, "kept"), (1, "lost")}}, "there is no new reference yet"
    watch.leads(machine, old)
    assert watch.find_missed("t") == {}
    watch.leads(machine, new)
    watch.leads(machine, old)
    assert watch.find_missed("t") == {"t-0": 1}, "even if a later leader has it again"
    known = model.topics[TOPIC_ID].partitions[0]
    known.leader_epoch = 1
    watch.moved(machine, new)
    assert watch.find_lost("t") == {"t-0": {(1, "lost")}}
    assert failures == []
    known.leader_epoch = 2
    watch.leads(machine, shorter)
    assert failures == [COMPLETE_LEADER]


def test_what_a_former_leader_commits_below_the_end_of_the_new_log_is_not_guaranteed() -> None:
    failures: list[str] = []
    watch, model = _watch_of((1,), failures)
    known = model.topics[TOPIC_ID].partitions[0]
    old, new = make(1), make(1)
    first, second = (cast(Any, SimpleNamespace(id=id, starts=1, serves=True)) for id in (1, 2))
    old.apply(state(1, isr=(1,)), 0)
    new.apply(state(1, epoch=1, version=1, isr=(1,)), 0)
    append(old, b"lost")
    watch.moved(first, old)
    watch.copy_lost(1, TOPIC_ID, 0)
    known.leader_epoch = 1
    for value in (b"a", b"b", b"c"):
        append(new, value)
    watch.moved(second, new)
    watch._copies_lost.clear()
    append(old, b"late")
    watch.moved(first, old)
    assert watch.find_lost("t") == {"t-0": {(0, "lost"), (1, "late")}}
    assert failures == []


def test_unread_damage_may_stay_in_a_replica_that_is_in_sync_again() -> None:
    failures: list[str] = []
    watch, _ = _watch_of((1, 2), failures)
    watch._model.topics[TOPIC_ID].partitions[0].leader_epoch = 1
    machines = [cast(Any, SimpleNamespace(id=id, starts=1, serves=True)) for id in (1, 2, 3)]
    watch.moved(machines[0], cast(Any, StubReplica(1, 1)))
    watch.copy_lost(2, TOPIC_ID, 0)
    watch._copies_lost.clear()
    watch.moved(machines[1], cast(Any, StubReplica(1, 0)))
    assert failures == []
    watch.moved(machines[2], cast(Any, StubReplica(1, 0)))
    assert failures == [SAME_BELOW]


def test_no_copy_is_held_against_one_that_had_been_damaged() -> None:
    failures: list[str] = []
    watch, _ = _watch_of((1, 2), failures)
    machines = [cast(Any, SimpleNamespace(id=id, starts=1, serves=True)) for id in (1, 2)]
    watch._copies_damaged.add((1, TOPIC_ID, 0))
    watch.moved(machines[0], cast(Any, StubReplica(0, 1)))
    watch.moved(machines[1], cast(Any, StubReplica(0, 0)))
    assert failures == []


def test_replicas_of_a_compacted_log_hold_the_same_records_in_other_batches() -> None:
    failures: list[str] = []
    watch, _ = _watch_of((1, 2), failures)
    machines = [cast(Any, SimpleNamespace(id=id, starts=1, serves=True)) for id in (1, 2, 3)]
    leader, same, other = StubReplica(0, 0), StubReplica(0, 0), StubReplica(0, 1)
    for replica in (leader, same, other):
        replica.log.config = LogConfig(cleanup_policy=frozenset({"compact"}))
    ((header, data),) = same.log.iter_batches()
    same.log.iter_batches = lambda *range: [(replace(header, base_timestamp=-1), data)]
    watch.moved(machines[0], cast(Any, leader))
    watch.moved(machines[1], cast(Any, same))
    assert failures == []
    watch.moved(machines[2], cast(Any, other))
    assert failures == [SAME_BELOW]


def test_batch_that_has_rotted_is_not_among_the_lost_records() -> None:
    watch, _ = _watch_of((1,), [])
    replica = StubReplica(0, 0)
    ((header, data),) = replica.log.iter_batches()
    replica.log.iter_batches = lambda *range: [(header, data[:-1] + b"?")]
    watch.moved(cast(Any, SimpleNamespace(id=1, starts=1, serves=True)), cast(Any, replica))
    watch.copy_lost(1, TOPIC_ID, 0)
    assert watch.find_lost("append") == {}


def test_high_watermark_of_a_leader_falls_only_in_a_process_that_serves_nobody() -> None:
    failures: list[str] = []
    watch, _ = _watch_of((1, 2), failures)
    machine = cast(Any, SimpleNamespace(id=1, starts=1, serves=True))
    replica = cast(Any, StubReplica(0, 0))
    watch.moved(machine, replica)
    replica.high_watermark = 0
    machine.serves = False
    watch.moved(machine, replica)
    assert failures == []
    machine.serves = True
    watch.moved(machine, replica)
    assert failures == [MONOTONE]


def test_reader_of_lost_records_skips_nothing_where_the_final_log_holds_the_same() -> None:
    record = MemoryHistory(lambda: 0)

    def poll(*records: tuple[int, str]) -> None:
        record.record("ok", "consumer-0", "poll", key="append-0", records=list(records))

    poll((0, "kept"), (1, "lost"), (2, "in both"))
    poll((3, "in both, too"))
    record.record("info", "consumer-0", "poll", key="append-0", offset=4, error="truncated")
    record.record("ok", "consumer-0", "assign")
    poll((0, "kept"), (1, "final"))
    events = _without_lost(record.events, {"append-0": {(1, "lost")}})
    given = [event.records for event in events if event.op == "poll" and event.type == "ok"]
    assert given == [[(0, "kept")], [], [(0, "kept"), (1, "final")]]


def test_record_that_a_leader_commits_while_its_directory_fails_is_known() -> None:
    """It is acknowledged; if it is lost with the others, that is exempted, too."""
    watch, _ = _watch_of((1,), [])
    disk = MemoryDisk()
    leader = make(1, disk=disk)
    leader.apply(state(1, isr=(1,)), 0)
    append(leader, b"committed")
    disk.break_directory("t-0")
    watch.moved(cast(Any, SimpleNamespace(id=1, starts=1, serves=True)), leader)
    assert disk.is_broken("t-0")
    watch.copy_lost(1, TOPIC_ID, 0)
    assert watch.find_lost("t") == {"t-0": {(0, "committed")}}


@pytest.mark.parametrize(("began_anew_at", "repeats"), [(0, False), (1, False), (2, True), (3, True)])
def test_record_is_repeated_only_by_a_leader_that_began_anew_behind_its_producer(
    began_anew_at: int, repeats: bool
) -> None:
    failures: list[str] = []
    watch, model = _watch_of((1, 2), failures, "append")
    first, second = (cast(Any, SimpleNamespace(id=id, starts=1, serves=True)) for id in (1, 2))
    old, new = make(1), make(1)
    old.apply(state(1, isr=(1,)), 0)
    for sequence, value in enumerate((b"a", b"deleted")):
        append(old, value, producer_id=7, producer_epoch=0, base_sequence=sequence)
    append(old, b"b")
    watch.moved(first, old)
    if began_anew_at:
        new.restart_at(began_anew_at)
        watch.began_anew(second, new)
    new.restart_at(3)
    model.topics[TOPIC_ID].partitions[0].leader_epoch = 1
    new.apply(state(1, epoch=1, version=1, isr=(1,)), 0)
    watch.leads(second, new)
    append(new, b"deleted", producer_id=7, producer_epoch=0, base_sequence=1)
    watch.moved(second, new)
    assert watch.find_repeated("append") == ({"append-0": {(3, "deleted")}} if repeats else {})
    assert failures == []


def _poll_twice(load: Load) -> None:
    load.history.record("info", "p1.0", "producer", detail=PRODUCER)
    load.history.record("invoke", "p1.0", "send", key="append-0", value="p1-1")
    load.history.record("info", "p1.0", "send", key="append-0", value="p1-1")
    for reader, offset in (("consumer-1", 4), ("consumer-1", 9), ("final-0", 9)):
        op = "poll" if reader == "consumer-1" else "final"
        records = [(offset, "p1-1")]
        load.history.record("ok", reader, op, key="append-0", records=records)


@pytest.mark.parametrize("repeated", [None, (4, "p1-1"), (9, "another")])
def test_value_that_is_read_twice_is_a_duplicate(repeated: tuple[int, str] | None) -> None:
    world, load = _load()
    world.repeated = {} if repeated is None else {"append-0": {repeated}}
    _poll_twice(load)
    with pytest.raises(InvariantViolation, match="duplicate"):
        load.check_history()


def test_value_that_was_deleted_and_then_repeated_is_no_duplicate() -> None:
    world, load = _load()
    world.repeated = {"append-0": {(9, "p1-1")}}
    _poll_twice(load)
    load.check_history()


@pytest.mark.parametrize(
    ("kind", "is_exempted", "hanging", "is_excused"),
    [
        (TRANSACTIONS, True, ["t-0 is stable up to 3 of 5 only"], True),
        (TRANSACTIONS, True, [], False),
        (TRANSACTIONS, False, ["t-0 is stable up to 3 of 5 only"], False),
        ("groups", True, ["t-0 is stable up to 3 of 5 only"], False),
    ],
)
def test_workload_need_not_end_if_the_end_of_a_transaction_was_lost_with_reason(
    monkeypatch: pytest.MonkeyPatch, kind: str, is_exempted: bool, hanging: list[str], is_excused: bool
) -> None:
    world, load = _load()
    load.kind = kind
    if is_exempted:
        world.exempt()
    monkeypatch.setattr(load_module, "find_hanging", lambda brokers, exempted: iter(hanging))
    assert load.hangs_after_a_loss is is_excused
