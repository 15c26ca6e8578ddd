"""Flush before reply, asserted at the Disk port: kill -9 cannot reveal a missing fsync."""

import asyncio
import errno
import random
from collections.abc import Callable

import pytest

from pykraft.log_store.flush import FlushJob
from pykraft.log_store.interface import CorruptLogError
from pykraft.quorum import rpc
from pykraft.quorum.core import messages as m
from pykraft.quorum.core.messages import VoteRequest, VoteResponse
from pykraft.quorum.core.roles import ElectionState
from pykraft.quorum.state_store import QuorumStateError, QuorumStateStore
from pykraft.runtime.address import Address
from pykraft.runtime.rpc import RpcFailure
from tests.log_store.spy import SpyDisk
from tests.narrowing import as_type, present
from tests.quorum.nodes import Cluster, Replica

DIRECTORY = "/data/__cluster_metadata-0"
VOTE = rpc.METHODS[m.VoteRequest]
FETCH = rpc.METHODS[m.FetchRequest]


class Timeline:
    """The appends to one replica's log and the flushes of it, in order."""

    def __init__(self, replica: Replica) -> None:
        replica.disk = spy = SpyDisk(replica.memory_disk)
        self._calls = spy.calls

    @property
    def events(self) -> list[str]:
        return [call.operation for call in self._calls if call.path.endswith(".log")]


async def test_vote_file_is_durable_before_the_vote_is_answered(cluster: Cluster) -> None:
    granted = []

    def watch(replica: Replica) -> None:
        inner = cluster.rpc.handlers[replica.address][VOTE]

        async def handler(payload: bytes) -> bytes:
            answer = await inner(payload)
            response = rpc.decode_response(VOTE, answer)
            if as_type(response, VoteResponse).vote_granted and not as_type(response, VoteResponse).pre_vote:
                candidate = as_type(rpc.decode_request(VOTE, payload), VoteRequest).candidate
                on_disk = QuorumStateStore(replica.memory_disk, DIRECTORY).read()
                granted.append((on_disk.epoch, on_disk.voted) == (response.epoch, candidate))
            return answer

        cluster.rpc.handlers[replica.address][VOTE] = handler

    for replica in cluster.replicas:
        watch(replica)
    await cluster.commit(b"a")
    await (await cluster.leader()).stop()
    await cluster.commit(b"b")
    assert granted and all(granted)


async def test_follower_flushes_its_log_before_a_fetch_acknowledges(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = await cluster.leader()
    follower = next(r for r in cluster.replicas if r is not leader)
    await follower.stop()
    timeline = Timeline(follower)
    flushed_at = {}  # log end at each flush
    await follower.start()
    send = cluster.rpc.send
    acknowledged = []

    def watching(
        to: Address,
        method: str,
        payload: bytes,
        deadline_ms: int,
        on_reply: Callable[[bytes | RpcFailure], None],
        sender: Address | None,
    ) -> None:
        if method == FETCH:
            request = as_type(rpc.decode_request(method, payload), m.FetchRequest)
            if request.replica == follower.key:
                acknowledged.append((len(timeline.events), request.fetch_offset))
        send(to, method, payload, deadline_ms, on_reply, sender)

    monkeypatch.setattr(cluster.rpc, "send", watching)
    for i in range(20):
        await cluster.commit(b"%d" % i)
    appends = flushes = 0
    for position, operation in enumerate(timeline.events):
        appends += operation == "append"
        flushes += operation == "flush"
        if operation == "flush":
            flushed_at[position] = appends
    assert appends > 5 and flushes > 5
    offsets = sorted({offset for _, offset in acknowledged})
    assert len(offsets) > 5
    for position, _ in acknowledged:
        before = timeline.events[:position]
        if "append" in before:
            assert "flush" in before[len(before) - before[::-1].index("append") - 1 :]


async def test_timer_is_set_anew_only_for_what_is_due_sooner(cluster: Cluster) -> None:
    node, now_ms = (await cluster.leader()).live, asyncio.get_running_loop().time() * 1000
    node._timer = None
    due_s = []
    for wait_ms in (5_000, 10, 20):
        node._arm_timer(round(now_ms) + wait_ms)
        due_s.append(present(node._timer).when() - now_ms / 1000)
    assert [round(one, 2) for one in due_s] == [5.0, 0.01, 0.01]


async def test_node_that_takes_no_part_any_more_stops_at_once(cluster: Cluster) -> None:
    node, now_s = (await cluster.leader()).live, asyncio.get_running_loop().time
    node._halt()  # as after a fatal error
    halted_s = now_s()
    await node.stop()
    assert now_s() - halted_s < cluster.config.election_timeout_ms / 2000, "it can tell nobody any more"


@pytest.mark.world(voters=1)
async def test_leader_does_not_count_its_own_records_before_they_are_flushed(cluster: Cluster) -> None:
    replica = cluster.replicas[0]
    await cluster.commit(b"a")
    await replica.stop()
    timeline = Timeline(replica)
    await replica.start()
    await cluster.commit(b"b")
    node = replica.live
    high_watermark = node.high_watermark
    appended_at = len(timeline.events)
    node.propose(node.leader.epoch, [b"c"])
    assert timeline.events[appended_at:] == ["append"]
    assert node.high_watermark == high_watermark
    await cluster.until(lambda: node.high_watermark > high_watermark)
    assert "flush" in timeline.events[appended_at:]


@pytest.mark.world(voters=1)
async def test_flush_does_not_cover_records_appended_while_it_ran(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.commit(b"a")
    node = cluster.replicas[0].live
    end = node.high_watermark
    flushed = []
    flush = node._storage.flush

    def spy(job: FlushJob) -> None:
        flushed.append((job.end_offset, node.high_watermark))
        flush(job)

    monkeypatch.setattr(node._storage, "flush", spy)
    for value in (b"b", b"c"):
        node.propose(node.leader.epoch, [value])
    await cluster.until(lambda: node.high_watermark == end + 2)
    assert flushed == [(end + 1, end), (end + 2, end + 1)]


async def test_a_failed_flush_halts_the_replica_and_is_reported_once(cluster: Cluster) -> None:
    leader = await cluster.leader()
    leader.memory_disk.inject("flush", errno.EIO, path_part=".log")
    leader.live.propose(leader.live.leader.epoch, [b"lost?"])
    fatal, leader.fatal = leader.fatal, []
    await cluster.until(lambda: fatal)
    assert isinstance(fatal[0], OSError) and len(fatal) == 1
    cluster.rpc.down.add(leader.address)
    leader.node = None
    await cluster.commit(b"after")  # the others continue


async def test_a_vote_that_cannot_be_written_is_not_answered(cluster: Cluster) -> None:
    await cluster.commit(b"a")
    victim = next(r for r in cluster.replicas if r is not cluster.leading())
    victim.memory_disk.inject("write_atomic", errno.ENOSPC, path_part="quorum-state")
    request = m.VoteRequest(
        "test-cluster", cluster.replicas[0].key, victim.key, epoch=99, last_epoch=98, last_offset=10_000
    )
    if request.candidate == victim.key:
        request = m.VoteRequest(
            "test-cluster",
            cluster.replicas[1].key,
            victim.key,
            epoch=99,
            last_epoch=98,
            last_offset=10_000,
        )
    fatal, victim.fatal = victim.fatal, []
    answer = await cluster.rpc.handlers[victim.address][VOTE](rpc.encode_request(request))
    assert not as_type(rpc.decode_response(VOTE, answer), VoteResponse).vote_granted
    assert isinstance(fatal[0], OSError)


@pytest.mark.parametrize("content", [b"", b"{}", b"\0" * 60, b'{"leaderId":1', b'{"data_version":9}'])
@pytest.mark.world(voters=1)
async def test_a_corrupt_quorum_state_refuses_to_start_and_names_the_file(
    cluster: Cluster, content: bytes
) -> None:
    replica = cluster.replicas[0]
    await replica.stop()
    replica.memory_disk.write_atomic("/data/__cluster_metadata-0/quorum-state", content)
    with pytest.raises(QuorumStateError, match="__cluster_metadata-0/quorum-state"):
        await replica.start()
    replica.log.close()
    replica.node = None


@pytest.mark.world(voters=1)
async def test_a_voter_with_a_log_but_no_quorum_state_refuses_to_start(cluster: Cluster) -> None:
    await cluster.commit(b"a")
    replica = cluster.replicas[0]
    await replica.stop()
    replica.memory_disk.remove("/data/__cluster_metadata-0/quorum-state")
    with pytest.raises(QuorumStateError, match="epoch"):
        await replica.start()
    replica.log.close()
    replica.node = None


@pytest.mark.world(voters=1)
async def test_a_log_corrupt_in_the_middle_refuses_to_start_and_names_the_position(cluster: Cluster) -> None:
    for i in range(20):
        await cluster.commit(b"value %d" % i)
    replica = cluster.replicas[0]
    await replica.stop()
    log = "/data/__cluster_metadata-0/00000000000000000000.log"
    replica.memory_disk.flip_bit(log, 300)
    with pytest.raises(CorruptLogError, match=r"00000000000000000000\.log.*position"):
        await replica.start()
    replica.node = None


async def test_a_torn_tail_is_truncated_and_fetched_again(cluster: Cluster) -> None:
    rng = random.Random(11)
    for i in range(10):
        await cluster.commit(b"%d" % i)
    follower = next(r for r in cluster.replicas if r is not cluster.leading())
    leader = await cluster.leader()
    leader.live.propose(leader.live.leader.epoch, [b"last"] * 3)
    await follower.crash(rng)
    await follower.start()
    await cluster.commit(b"end")
    assert follower.listener.values == [*(b"%d" % i for i in range(10)), *[b"last"] * 3, b"end"]


async def test_restart_reads_back_epoch_leader_and_vote(cluster: Cluster) -> None:
    await cluster.commit(b"a")
    leader = await cluster.leader()
    for replica in cluster.replicas:
        state = QuorumStateStore(replica.memory_disk, DIRECTORY).read()
        assert state.epoch == leader.live.leader.epoch
        assert state.leader_id == leader.key.id


DIRECTORY = "/data/__cluster_metadata-0"


class _Killed(BaseException):
    """Not an Exception: no code may continue after it."""


@pytest.mark.parametrize("seed", range(4))
async def test_vote_of_a_killed_process_whose_directory_was_not_flushed_counts_only_once_durable(
    cluster: Cluster, seed: int
) -> None:
    """Killed between rename and flush, the vote reads back; the replica acts on it, so it must stay."""
    await cluster.commit(b"a")
    replica = cluster.replicas[0]
    await replica.stop()
    store = QuorumStateStore(replica.memory_disk, DIRECTORY)
    vote = ElectionState(store.read().epoch + 1, None, cluster.replicas[1].key)

    def killed(path: str) -> None:
        raise _Killed

    with pytest.MonkeyPatch.context() as patch, pytest.raises(_Killed):
        patch.setattr(replica.memory_disk, "flush_dir", killed)
        store.write(vote)
    for other in cluster.replicas[1:]:
        cluster.rpc.down.add(other.address)
    node = await replica.start()
    assert node.leader.epoch == vote.epoch
    await replica.crash(random.Random(seed))
    assert store.read().epoch >= vote.epoch
    cluster.rpc.down.clear()
    await replica.start()
    await cluster.commit(b"b")
