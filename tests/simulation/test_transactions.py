"""Whole nodes under transactional clients: one short schedule, and what its checks see."""

import asyncio
import random
from itertools import combinations
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.jepsen_like.faults.history import Event
from pykraft.jepsen_like.simulation.cluster.checks.group_watch import effective_records
from pykraft.jepsen_like.simulation.cluster.checks.transaction_checks import find_hanging
from pykraft.jepsen_like.simulation.cluster.clients.crowd import MEMBERS
from pykraft.jepsen_like.simulation.cluster.clients.load import draw_workload
from pykraft.jepsen_like.simulation.cluster.options import (
    BESIDE_TRANSACTIONS,
    TRANSACTIONS,
    draw_options,
    draw_pair,
)
from pykraft.jepsen_like.simulation.cluster.ring import run_schedule
from pykraft.jepsen_like.simulation.cluster.transaction_faults import TransactionFaults
from pykraft.jepsen_like.simulation.schedule import Schedule
from pykraft.jepsen_like.simulation.story import Story
from pykraft.kafka_protocol.markers import ABORT, COMMIT
from pykraft.kafka_protocol.record_codec import Record, RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import BatchHeader, read_header
from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from pykraft.transaction_coordinator.transaction import TransactionState
from tests.broker.peers.test_marker_sender import HERE, PEER, Place

Batch = tuple[BatchHeader, list[Record]]


def batch(offset: int, value: str, producer_id: int = -1) -> Batch:
    data = encode_batch(
        [RecordInput(b"key", value.encode())],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )
    header = read_header(data)
    return header, list(decode_batch(data, header))


def marker(offset: int, producer_id: int, kind: int) -> Batch:
    data = encode_batch(
        [RecordInput(b"\0\0" + kind.to_bytes(2, "big"), b"\0\0\0\0\0\0")],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    header = read_header(data)
    return header, list(decode_batch(data, header))


def values(*batches: Batch) -> list[bytes | None]:
    return [record.value for record in effective_records(batches)]


def test_offsets_of_a_transaction_count_from_its_marker_on() -> None:
    assert values(batch(0, "one", 7), batch(1, "other"), marker(2, 7, ABORT)) == [b"other"]
    assert values(batch(0, "one", 7)) == []
    assert values(batch(0, "other"), batch(1, "one", 7), marker(2, 7, COMMIT)) == [b"other", b"one"]


def test_of_two_commits_the_last_record_counts_and_not_the_last_marker() -> None:
    late = values(batch(0, "early", 7), batch(1, "late", 8), marker(2, 8, COMMIT), marker(3, 7, COMMIT))
    assert late == [b"late"]


def test_schedule_of_transactions_commits_aborts_and_processes() -> None:
    counts = run_schedule(Schedule(1, 8_000, workload=TRANSACTIONS, faults=())).counts
    assert counts["txn-commit ok"] > 20
    assert counts["txn-abort ok"] > 0
    assert counts["txn-offset info"] > 0
    assert counts["final-end ok"] == 9
    assert "schedules whose transactions were not guaranteed" not in counts


def test_workload_that_is_asked_for_is_run_and_others_are_drawn_as_before() -> None:
    assert draw_workload(3, TRANSACTIONS)[0] == TRANSACTIONS
    assert draw_workload(3, "moves")[0] == "moves"
    assert draw_options(3, TRANSACTIONS).features["transaction.version"] == 2
    assert "transaction.version" not in draw_options(3).features
    kinds = [draw_workload(seed)[0] for seed in range(200)]
    assert 4 <= kinds.count(TRANSACTIONS) <= 32


def test_successive_schedules_of_transactions_have_every_pair_of_features() -> None:
    drawn = {frozenset(draw_pair(seed)): draw_options(seed, TRANSACTIONS) for seed in range(10)}
    assert set(drawn) == set(map(frozenset, combinations(BESIDE_TRANSACTIONS, 2)))
    for pair, options in drawn.items():
        for feature in pair:
            chosen = BESIDE_TRANSACTIONS[feature]
            assert {name: getattr(options, name) for name in chosen} == chosen
        assert options.crowd == ("a crowd" in pair)
        assert (options.log_dirs > 1) == ("moves between directories" in pair)


@pytest.mark.slow
def test_coordinator_dies_with_very_many_transactions_that_are_decided() -> None:
    story = Story()
    run_schedule(Schedule(3, 25_000, workload=TRANSACTIONS, faults=()), story)
    died = [line for line in story.lines() if "is to die now, with" in line]
    assert len(died) == 1 and f"with {MEMBERS} transactions" in died[0]
    assert any("move to /data" in line and "done" in line for line in story.lines())


def faulty(place: Place) -> TransactionFaults:
    """Through which all markers of a coordinator pass."""
    faults = TransactionFaults(cast(Any, None), cast(Any, None), random.Random(1))
    sender: Any = place.sender
    send = type(sender)._exchange
    sender._exchange = lambda node_id, due: faults.exchange(send, sender, node_id, due)
    return faults


@pytest.mark.loop(new=VirtualLoop)
async def test_markers_that_were_lost_and_those_whose_answers_were_are_sent_again() -> None:
    place = Place(4)
    place.lead([HERE, PEER, HERE, PEER])
    faults = faulty(place)
    faults.loses = 1.0
    writing = place.write(7, [0, 1, 2, 3])
    await asyncio.sleep(2)
    assert not writing.done() and len(place.requests) > 2, "some have arrived"
    faults.loses = 0.0
    await writing


@pytest.mark.loop(new=VirtualLoop)
async def test_markers_of_a_crowd_are_held_until_the_faults_are_over() -> None:
    place = Place(1)
    place.lead([HERE])
    faults = faulty(place)
    faults.holds = "other"
    await place.write(7, [0])
    faults.holds = "t"
    writing = place.write(8, [0])
    await asyncio.sleep(2)
    assert not writing.done() and len(place.requests) == 1
    faults.end()
    await writing


def test_command_names_the_workload() -> None:
    assert Schedule(3, workload=TRANSACTIONS).command("cluster").endswith("--seed 3 --workload transactions")


# --- what hangs ---------------------------------------------------------------------------------------------


def machine(state: TransactionState, pending: dict[str, object], stable: int) -> Any:
    value = SimpleNamespace(state=state)
    shard = SimpleNamespace(state=SimpleNamespace(transactions={"id": value}))
    of_group = SimpleNamespace(
        loaded=True,
        partition=0,
        committed=SimpleNamespace(pending=SimpleNamespace(open=pending)),
    )
    partition = SimpleNamespace(
        topic="txn-a", index=0, is_leader=True, last_stable_offset=stable, high_watermark=5
    )
    parts = SimpleNamespace(
        transactions=SimpleNamespace(_hosted={0: SimpleNamespace(shard=shard)}),
        groups=SimpleNamespace(_hosted={0: SimpleNamespace(shard=of_group)}),
        replicas=SimpleNamespace(table=[partition]),
    )
    return SimpleNamespace(id=1, alive=True, parts=parts)


def test_what_is_over_does_not_hang() -> None:
    assert list(find_hanging([machine(TransactionState.COMPLETE_ABORT, {}, 5)], ())) == []


def test_open_transactions_pending_offsets_and_unstable_records_hang() -> None:
    one = machine(TransactionState.PREPARE_COMMIT, {"group": object()}, 3)
    assert len(list(find_hanging([one], ()))) == 3
    exempted = {"txn-a-0", f"{OFFSETS_TOPIC}-0"}
    assert len(list(find_hanging([one], exempted))) == 1


# --- faults between two steps -------------------------------------------------------------------------------


class StubNode:
    id, alive, killed = 4, True, 0

    def kill(self, *, power_loss: bool) -> None:
        assert not power_loss
        self.killed += 1

    def start(self) -> None:
        """It would start again."""


def test_leader_dies_at_a_step_of_a_client_and_only_while_the_fault_lasts() -> None:
    node = StubNode()
    partition = SimpleNamespace(leader=node.id)
    topics = {
        1: SimpleNamespace(name="txn-a", partitions=[partition]),
        2: SimpleNamespace(name="__transaction_state", partitions=[partition] * 3),
    }
    world = SimpleNamespace(
        nodes={node.id: node},
        later=lambda after_ms, callback, *args: callback(*args),
        log_event=lambda who, what: None,
    )
    model = SimpleNamespace(topics=topics)
    faults = TransactionFaults(cast("Any", world), cast("Any", model), random.Random(1))

    undo = faults.begin("killed between two steps", 1, random.Random(1))
    assert undo is not None
    steps = [
        Event(kind, "a.0", 0, op, "txn-a-0", "a.0#1")
        for op in ("send", "txn-offset", "txn-commit", "txn-abort", "txn-init")
        for kind in ("invoke", "ok", "info")
    ]
    for _ in range(20):
        for event in steps:
            faults.step(event)
    assert node.killed == 1
    undo()
    again = faults.begin("killed between two steps", 2, random.Random(2))
    assert again is not None
    again()
    for _ in range(20):
        for event in steps:
            faults.step(event)
    assert node.killed == 1


@pytest.mark.parametrize("kind", ["markers lost", "markers repeated late"])
def test_markers_pass_again_when_their_fault_has_ended(kind: str) -> None:
    faults = TransactionFaults(cast("Any", None), cast("Any", None), random.Random(1))

    undo = faults.begin(kind, 1, random.Random(1))
    assert faults.loses or faults.repeats
    assert undo is not None
    undo()
    assert not (faults.loses or faults.repeats)
