"""A voter that may have lost what it acknowledged: protocol-aware recovery (Alagappan et al., FAST 2018)."""

from __future__ import annotations

import contextlib
import itertools
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from pykraft.jepsen_like.sim.quorum.invariant_history import History, InvariantViolation
from pykraft.jepsen_like.sim.quorum.recovery_invariants import RecoveringIsNotCounted
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.interface import CorruptLogError
from pykraft.log_store.log import Log, LogConfig
from pykraft.log_store.memory import MemoryDisk
from pykraft.quorum.bootstrap import format_log
from pykraft.quorum.core.effects import (
    EndRecovery,
    InstallSnapshot,
    Reply,
    ReplyWithRecords,
    Send,
    TruncateTo,
)
from pykraft.quorum.core.events import (
    LogFlushed,
    RequestFailed,
    ResponseReceived,
    SnapshotChecked,
    TimerFired,
)
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.core.messages import (
    BatchSpan,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    VoteRequest,
)
from pykraft.quorum.core.recovery import Recovery
from pykraft.quorum.core.roles import ElectionState, Follower, Leader, Unattached
from pykraft.quorum.core.voters import ReplicaKey, VoterSet
from pykraft.quorum.flushed_mark import FlushedMark, FlushedMarkFile
from pykraft.quorum.state_store import QuorumStateError, QuorumStateStore
from pykraft.quorum.storage import QuorumStorage, encode_proposal
from pykraft.runtime.clock import SystemClock

from .conftest import DIRECTORY, fetch_snapshot

MARK = f"{DIRECTORY}/flushed-offset"


def recovering(bench, end_offset=5, **changed):
    """Node 1, whose log ends at 3 in epoch 5, and was flushed up to ``end_offset``."""
    given = {"election": ElectionState(5, 2), "epoch_starts": [(4, 0)], "end_offset": 3}
    return bench(recovery=Recovery(end_offset), losses=1, **(given | changed))


def vote_request(b, **changed):
    request = VoteRequest("c", b.keys[3], b.state.local, 6, 5, 100, False)
    return replace(request, **changed)


def fetched(b, *ends, epoch=5, leader=2):
    """The leader's answer with batches that go on from our log's end."""
    spans, base = [], b.state.log.end_offset
    for end in ends:
        spans.append(BatchSpan(base, end, epoch))
        base = end
    return FetchResponse("c", b.keys[leader], ErrorCode.NONE, b.state.epoch, leader, 0, batches=tuple(spans))


# --- what it does not do ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pre_vote", [False, True])
def test_recovering_voter_grants_neither_vote_nor_pre_vote(bench, pre_vote):
    b = recovering(bench, election=ElectionState(5))
    assert b.ask(vote_request(b, pre_vote=pre_vote)).vote_granted is False
    intact = bench(election=ElectionState(5), epoch_starts=[(4, 0)], end_offset=3)
    assert intact.ask(vote_request(intact, pre_vote=pre_vote)).vote_granted is True


def test_recovering_voter_learns_of_the_epoch_that_it_does_not_vote_in(bench):
    b = recovering(bench)
    assert b.ask(vote_request(b, epoch=9)).vote_granted is False
    assert b.state.election == ElectionState(9)


@pytest.mark.parametrize("election", [ElectionState(5), ElectionState(5, 2), ElectionState(5, 1)])
def test_recovering_voter_never_stands_and_asks_around(bench, election):
    b = recovering(bench, election=election)
    asked = set()
    for _ in range(30):
        for effect in b.of(Send):
            assert isinstance(effect.request, FetchRequest) and effect.request.is_recovering
            asked.add(effect.to)
            b.step(RequestFailed(effect.correlation_id))
        b.step(TimerFired(), after_ms=10_000)
        assert isinstance(b.state.role, Unattached | Follower)
    assert asked == {2, 3}


def test_recovering_voter_does_not_succeed_a_leader_that_says_goodbye(bench):
    b = recovering(bench)
    b.ask(EndQuorumEpochRequest("c", b.keys[2], b.keys[1], 5, (b.keys[1], b.keys[3])))
    b.step(TimerFired(), after_ms=10_000)
    assert not [effect for effect in b.of(Send) if isinstance(effect.request, VoteRequest)]


def test_recovering_voter_that_knows_itself_alone_does_not_elect_itself(bench):
    b = recovering(bench, voters=1, election=ElectionState(5))
    b.step(TimerFired(), after_ms=10_000)
    assert isinstance(b.state.role, Unattached)


# --- how it ends -----------------------------------------------------------------------------------------


def test_recovery_ends_when_all_that_had_been_flushed_is_flushed_again(bench):
    b = recovering(bench)
    b.answer(fetched(b, 4))
    b.flush()
    assert b.of(EndRecovery) == [] and b.of(Send)[0].request.is_recovering
    b.answer(fetched(b, 5, 6))
    assert b.of(EndRecovery) == [], "not flushed"
    b.step(LogFlushed(6, b.state.log.generation))
    assert [type(effect) for effect in b.effects] == [EndRecovery, Send]
    assert b.of(EndRecovery) == [EndRecovery(6)]
    request = b.of(Send)[0].request
    assert (request.is_recovering, request.losses, request.fetch_offset) == (False, 1, 6)


def test_recovery_ends_when_the_leader_has_nothing_more(bench):
    b = recovering(bench, end_offset=None)
    b.answer(fetched(b, 4))
    b.flush()
    assert b.state.recovery is not None
    b.answer(fetched(b))
    assert b.of(EndRecovery) == [EndRecovery(4)]
    b.ask_first()
    assert {effect.request.pre_vote for effect in b.of(Send)} == {True}, "it stands again"


@pytest.mark.parametrize(
    "changed",
    [
        {"replica": 3},
        {"epoch": 4},
        {"error": ErrorCode.NOT_LEADER_OR_FOLLOWER},
        {"snapshot_id": SnapshotId(9, 5)},
    ],
)
def test_only_the_leader_says_that_there_is_nothing_more(bench, changed):
    b = recovering(bench)
    if "replica" in changed:
        changed = {"replica": b.keys[changed["replica"]]}
    (asked,) = b.of(Send)
    b.step(ResponseReceived(asked.correlation_id, replace(fetched(b), **changed)))
    assert b.state.recovery is not None


def test_recovery_ends_with_a_snapshot_that_reaches_so_far(bench):
    for end_offset, ends in ((4, False), (5, True)):
        b = recovering(bench)
        snapshot_id = SnapshotId(end_offset, 5)
        b.answer(replace(fetched(b), snapshot_id=snapshot_id))
        b.answer(
            FetchSnapshotResponse(
                "c", b.keys[2], ErrorCode.NONE, 5, 2, snapshot_id, 0, size_bytes=1, checksum=1, data=b"x"
            )
        )
        b.step(SnapshotChecked(1, True))
        assert (b.of(EndRecovery) != []) is ends


# --- what its leader makes of it -------------------------------------------------------------------------


def leader_of_three(bench):
    b = bench(voters=3)
    b.lead()
    return b


def test_leader_counts_nothing_for_a_recovering_voter_and_takes_back_what_it_counted(bench):
    b = leader_of_three(bench)
    b.fetch(2, 1, 1)
    assert b.state.high_watermark == 1
    progress = b.state.role.progress[2]
    assert progress.end_offset == 1
    b.fetch(2, 1, 1, is_recovering=True, losses=1)
    assert progress.end_offset == 0 and progress.last_fetch_ms == b.now_ms
    b.fetch(2, 1, 1, losses=0)
    assert progress.end_offset == 0, "a late fetch of before the loss"
    b.fetch(2, 1, 1, losses=1)
    assert progress.end_offset == 1 and b.state.high_watermark == 1


def test_word_of_a_loss_that_was_not_the_voters_own_holds_nothing_up_for_ever(bench):
    b = leader_of_three(bench)
    b.fetch(2, 1, 1, is_recovering=True, losses=(1 << 31) - 1)
    for _ in range(70):
        b.fetch(2, 1, 1)
        b.step(TimerFired(), after_ms=1000)
    assert b.state.role.progress[2].end_offset == 1 and b.state.high_watermark == 1


def test_invariant_tells_a_recovering_voter_from_the_disk_that_it_had_before(bench):
    """The checker knows of losses by node id: a stranger that has lost something was never counted."""
    b = leader_of_three(bench)
    b.fetch(2, 1, 1, losses=1)
    history = History()
    history.lost_batches[2], history.losses[2] = [], 1
    view = SimpleNamespace(id=2, key=ReplicaKey(2, Uuid(b"other disk......")), core_state=b.state)
    history.replicas = [view]
    RecoveringIsNotCounted().after_step(view, history)
    view.key = b.keys[2]
    with pytest.raises(InvariantViolation, match="counts 1 for 2"):
        RecoveringIsNotCounted().after_step(view, history)


def test_leader_commits_nothing_on_the_word_of_a_recovering_voter(bench):
    b = leader_of_three(bench)
    b.fetch(2, 1, 1, is_recovering=True, losses=1)
    assert b.state.high_watermark == 0
    b.fetch(3, 1, 1)
    assert b.state.high_watermark == 1


def test_fetches_of_a_recovering_voter_keep_its_leader_in_office(bench):
    b = leader_of_three(bench)
    for _ in range(10):
        b.fetch(2, 1, 1, is_recovering=True, losses=1)
        b.step(TimerFired(), after_ms=1000)
    assert isinstance(b.state.role, Leader)


def test_recovering_without_a_loss_is_refused(bench):
    b = leader_of_three(bench)
    assert b.fetch(2, 1, 1, is_recovering=True).error is ErrorCode.INVALID_REQUEST
    assert b.fetch(2, 1, 1, losses=-1).error is ErrorCode.INVALID_REQUEST


# --- what a start makes of the disk ----------------------------------------------------------------------


def disk_with(epochs):
    """A voter's disk: a batch of two records for each epoch, all flushed and marked."""
    disk = MemoryDisk()
    format_log(disk, DIRECTORY, now_ms=0)
    QuorumStateStore(disk, DIRECTORY).write(ElectionState(max(epochs), 2))
    log, storage = read_back(disk)
    for epoch in epochs:
        base = log.log_end_offset
        storage._append(encode_proposal([b"one", b"two"], base, epoch, 0), base, base + 2)
        flush(log, storage)
    log.close()
    return disk


def read_back(disk, **options):
    log = Log.open(disk, DIRECTORY, LogConfig(), now_ms=0)
    storage = QuorumStorage(log, QuorumStateStore(disk, DIRECTORY), SystemClock(), **options)
    storage.recover()
    storage.compare_with_mark()
    storage.write_mark()
    return log, storage


def flush(log, storage):
    job = log.prepare_flush()
    storage.flush(job)
    log.complete_flush(job)


def test_every_flipped_bit_of_the_last_batch_is_noticed():
    segment = f"{DIRECTORY}/{0:020}.log"
    for epochs in ([5], [5, 5], [3, 7]):
        size = len(disk_with(epochs).read(segment))
        last = size * (len(epochs) - 1) // len(epochs)
        for bit in range(8 * last, 8 * size):
            disk = disk_with(epochs)
            disk.flip_bit(segment, bit // 8, bit % 8)
            log, storage = read_back(disk)
            assert storage.recovery == Recovery(2 * len(epochs)), bit
            assert log.log_end_offset == 2 * (len(epochs) - 1) and storage.losses == 1


def test_flipped_bits_before_the_last_batch_are_noticed_or_refuse_the_start():
    segment = f"{DIRECTORY}/{0:020}.log"
    size = len(disk_with([5, 5, 5]).read(segment))
    refused = 0
    for bit in range(8 * size // 3, 16 * size // 3):
        disk = disk_with([5, 5, 5])
        disk.flip_bit(segment, bit // 8, bit % 8)
        try:
            _, storage = read_back(disk)
        except CorruptLogError:
            refused += 1
            continue
        assert storage.recovery == Recovery(6), bit
    assert refused > 0


def test_cut_file_and_missing_segment_are_noticed():
    segment = f"{DIRECTORY}/{0:020}.log"
    size = len(disk_with([5, 5]).read(segment))
    for kept in range(size):
        disk = disk_with([5, 5])
        disk.open(segment).truncate(kept)
        assert read_back(disk)[1].recovery == Recovery(4), kept
    disk = disk_with([5, 5])
    disk.remove(segment)
    assert read_back(disk)[1].recovery == Recovery(4)


def test_power_loss_in_the_middle_of_a_write_is_no_loss():
    for seed in range(100):
        disk, rng = disk_with([5, 5]), random.Random(seed)
        log, storage = read_back(disk)
        storage._append(encode_proposal([b"three"], 4, 5, 0), 4, 5)
        disk.crash(rng, zero_tails=True)
        log, storage = read_back(disk)
        assert storage.recovery is None and log.log_end_offset == 4


def test_what_nobody_counts_on_is_not_kept():
    disk = disk_with([5])
    log, storage = read_back(disk)
    storage._append(encode_proposal([b"three"], 2, 5, 0), 2, 3)
    log.flush()  # and killed before the mark was written
    assert read_back(disk)[0].log_end_offset == 2


def test_recovery_outlives_restarts_and_second_losses():
    disk = disk_with([5, 5, 5])
    disk.open(f"{DIRECTORY}/{0:020}.log").truncate(100)
    for _ in range(3):
        log, storage = read_back(disk)
        assert storage.recovery == Recovery(6) and storage.losses == 1
    storage._append(encode_proposal([b"other"] * 4, 2, 5, 0), 2, 6)
    flush(log, storage)
    assert read_back(disk)[1].recovery == Recovery(6), "its leader has yet to say so"
    log, storage = read_back(disk)
    storage.apply(EndRecovery(6))
    log, storage = read_back(disk)
    assert storage.recovery is None and storage.losses == 1
    disk.open(f"{DIRECTORY}/{0:020}.log").truncate(100)
    assert read_back(disk)[1].losses == 2


def test_damaged_mark_is_a_loss_of_unknown_length():
    disk = disk_with([5])
    disk.flip_bit(MARK, len(disk.read(MARK)) - 10)
    assert read_back(disk)[1].recovery == Recovery(None)


def test_loss_of_a_damaged_mark_is_newer_than_all_that_a_leader_has_heard_of():
    disk = disk_with([5, 5])
    for _ in range(3):
        disk.open(f"{DIRECTORY}/{0:020}.log").truncate(100)
        log, storage = read_back(disk)
        storage.apply(EndRecovery(log.log_end_offset))
        storage._append(encode_proposal([b"again"] * 4, 2, 5, 0), 2, 6)
        flush(log, storage)
        log.close()
    assert storage.losses == 3
    disk.flip_bit(MARK, len(disk.read(MARK)) - 10)
    _, storage = read_back(disk)
    assert storage.recovery == Recovery(None) and storage.losses > 3
    assert read_back(disk)[1].losses == storage.losses


def test_lost_vote_is_noticed_though_the_records_of_its_epoch_are_lost_with_it():
    disk = disk_with([3, 7])
    disk.open(f"{DIRECTORY}/{0:020}.log").truncate(100)
    for election in (None, ElectionState(3)):
        disk.remove(f"{DIRECTORY}/quorum-state")
        if election is not None:
            QuorumStateStore(disk, DIRECTORY).write(election)
        with pytest.raises(QuorumStateError, match="a vote may have been forgotten"):
            read_back(disk)
        QuorumStateStore(disk, DIRECTORY).write(ElectionState(7))
    assert read_back(disk)[1].recovery == Recovery(4)


def test_leader_whose_disk_rots_never_says_that_there_is_nothing_more():
    """An empty answer ends a recovery."""
    segment, header_bytes = f"{DIRECTORY}/{0:020}.log", 12  # base offset and length
    for byte, bit in itertools.product(range(header_bytes), range(8)):
        disk = disk_with([5, 5])
        log, storage = read_back(disk)
        assert log.read(2, 1 << 20) is not None  # the place where this ends is remembered
        position = len(disk.read(segment))
        storage._append(encode_proposal([b"three"], 4, 5, 0), 4, 5)
        flush(log, storage)
        disk.flip_bit(segment, position + byte, bit)
        response = FetchResponse("c", ReplicaKey(2), ErrorCode.NONE, 5, 2, 5)
        with contextlib.suppress(CorruptLogError):
            assert storage.with_records(ReplyWithRecords(1, response, 4, 5, 1 << 20)).payload, (byte, bit)


def test_log_without_a_mark_is_taken_as_it_is():
    """It was written before there were marks; or an operator has decided to go on."""
    disk = disk_with([5, 5])
    disk.remove(MARK)
    log, storage = read_back(disk)
    assert storage.recovery is None and log.log_end_offset == 4
    assert FlushedMarkFile(disk, DIRECTORY).read() == FlushedMark(4, 5)


def lose_everything_but(disk, *kept):
    for name in disk.list(DIRECTORY):
        if name not in kept:
            disk.remove(f"{DIRECTORY}/{name}")


@pytest.mark.parametrize("kept", [(), ("quorum-state",), (f"{0:020}.log", "quorum-state")])
def test_log_that_is_gone_with_its_mark_is_not_taken_for_a_new_one(kept):
    """A voter that began anew would elect a leader without what it had acknowledged, or vote twice."""
    disk = disk_with([5, 5])
    lose_everything_but(disk, *kept)
    for name in set(kept) - {"quorum-state"}:
        disk.open(f"{DIRECTORY}/{name}").truncate(20)
    for _ in range(2):
        with pytest.raises(QuorumStateError, match=f"{MARK} is missing"):
            read_back(disk)


def test_lost_snapshot_that_was_fetched_is_noticed():
    disk = disk_with([5])
    log, storage = read_back(disk)
    snapshot_id = SnapshotId(9, 7)
    QuorumStateStore(disk, DIRECTORY).write(ElectionState(7, 2))
    fetch_snapshot(storage, snapshot_id, [b"state"], None, itertools.repeat(100))
    storage.apply(InstallSnapshot(snapshot_id))
    storage._append(encode_proposal([b"behind"], 9, 7, 0), 9, 10)
    flush(log, storage)
    storage.apply(TruncateTo(9))
    assert FlushedMarkFile(disk, DIRECTORY).read() == FlushedMark(9, 7)
    log.close()
    lose_everything_but(disk, "quorum-state", "flushed-offset")
    QuorumStateStore(disk, DIRECTORY).write(ElectionState(6))
    with pytest.raises(QuorumStateError, match="a vote may have been forgotten"):
        read_back(disk)
    QuorumStateStore(disk, DIRECTORY).write(ElectionState(7, 2))
    assert read_back(disk)[1].recovery == Recovery(9)


def test_observer_whose_log_is_gone_fetches_it_again():
    disk = disk_with([5, 5])
    lose_everything_but(disk)
    log, storage = read_back(disk, keeps_mark=False)
    assert log.log_end_offset == 0 and storage.recovery is None


# --- whole nodes -----------------------------------------------------------------------------------------


async def stop_and_damage(replica):
    await replica.stop()
    disk = replica.memory_disk
    segment = f"{DIRECTORY}/{0:020}.log"
    disk.flip_bit(segment, len(disk.read(segment)) - 1)


def test_damaged_voter_says_so_fetches_what_it_lost_and_takes_part_again(run_quorum, caplog):
    async def scenario(cluster):
        await cluster.commit(b"a")
        leader = await cluster.leader()
        replica = next(r for r in cluster.replicas if r is not leader)
        await stop_and_damage(replica)
        await replica.start()
        assert replica.node._core.state.recovery is not None
        assert "CRC does not match" in caplog.text and "neither votes nor counts" in caplog.text
        assert MARK in caplog.text, "the way out"
        await cluster.until(lambda: replica.node._core.state.recovery is None)
        assert "taking part from now on" in caplog.text
        await leader.stop()
        await cluster.commit(b"b")

    run_quorum(scenario)


def test_nobody_is_elected_by_whom_has_forgotten(run_quorum):
    """A record is on a leader and a follower; the leader is gone, the follower's disk has lost the record."""

    async def scenario(cluster):
        leader = await cluster.leader()
        first, second = (r for r in cluster.replicas if r is not leader)
        await second.stop()
        await cluster.commit(b"a")
        await leader.stop()
        await stop_and_damage(first)
        await first.start()
        await second.start()
        loop_time = cluster.now_s() + 5
        await cluster.until(lambda: cluster.now_s() > loop_time)
        assert first.node.leader.leader_id is None and second.node.leader.leader_id is None
        await leader.start()
        await cluster.commit(b"b")
        assert all(b"a" in replica.listener.values for replica in cluster.replicas)

    run_quorum(scenario)


def test_cluster_that_loses_power_everywhere_elects_again(run_quorum):
    async def scenario(cluster):
        rng = random.Random(7)
        for number in range(12):
            leader = await cluster.leader()
            leader.node.propose(leader.node.leader.epoch, [b"in flight %d" % number] * 3)
            for replica in cluster.replicas:
                await replica.crash(rng)
            for replica in cluster.replicas[: 2 + number % 2]:
                await replica.start()
                assert replica.node._core.state.recovery is None
            await cluster.commit(b"%d" % number)
            for replica in cluster.replicas:
                if replica.node is None:
                    await replica.start()

    run_quorum(scenario)


def test_single_voter_that_has_lost_records_does_not_start_until_somebody_decides(run_quorum):
    async def scenario(cluster):
        (replica,) = cluster.replicas
        await cluster.commit(b"a")
        await stop_and_damage(replica)
        for _ in range(2):
            with pytest.raises(QuorumStateError, match=MARK):
                await replica.start()
            replica.log.close()
        replica.memory_disk.remove(MARK)
        await replica.start()
        await cluster.commit(b"b")
        assert replica.listener.values == [b"b"]

    run_quorum(scenario, voters=1)


def test_voter_that_lost_the_record_of_the_others_fetches_it_from_them(run_quorum, caplog):
    """What is left of its log says that it is alone: were it to go on alone, there would be two leaders."""

    async def scenario(cluster):
        await cluster.commit(b"a")
        leader = await cluster.leader()
        first = next(r for r in cluster.replicas if r is not leader)
        await first.stop()
        first.memory_disk.open(f"{DIRECTORY}/{0:020}.log").truncate(0)
        everybody = cluster.voters
        cluster.voters = VoterSet([everybody.get(first.key.id)])  # as it was formatted
        state = QuorumStateStore(first.memory_disk, DIRECTORY)
        known = state.read()
        state.write(replace(known, leader_id=None, voted=None))
        with pytest.raises(QuorumStateError, match=r"If there are others, .*bootstrap\.servers"):
            await first.start()
        first.log.close()
        state.write(known)
        await first.start()
        await cluster.until(lambda: first.node._core.state.recovery is None)
        await cluster.commit(b"b")
        assert first.listener.values == [b"a", b"b"] and first.node.voters.ids == everybody.ids

    run_quorum(scenario)


def test_answers_leave_only_after_the_end_of_the_recovery_is_durable(bench):
    b = recovering(bench, election=ElectionState(5, 2))
    b.answer(fetched(b))
    kinds = [type(effect) for effect in b.effects]
    assert kinds.index(EndRecovery) < kinds.index(Send) and Reply not in kinds
