"""Snapshots under hostile timing: what is fetched, checked and installed while everything else goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pykraft.quorum import storage
from pykraft.quorum.core.voters import NO_VOTERS, ReplicaKey, Voter, VoterSet
from pykraft.quorum.snapshots import SnapshotStore, snapshot_name
from pykraft.runtime.rpc import RpcAddress

from .conftest import DIRECTORY, FAST, Cluster, Replica, run_virtually
from .test_snapshots import PIECES, follower_of, leave_behind, take_snapshot


def test_check_of_a_snapshot_that_another_one_replaced_meanwhile_hurts_nobody(run_quorum):
    """The leader has deleted it, its successor is being fetched, and the thread has yet to read it back."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.commit(b"a")
        replica: Replica = await follower_of(cluster)
        first = await leave_behind(cluster, replica)
        begun, read_back = [], []
        prepare, inner = storage.QuorumStorage.prepare_check, SnapshotStore.check_download

        def late() -> float:
            del replica.threads.delay_s
            return 5.0

        def begin(store, effect):
            begun.append(effect.snapshot_id)
            if effect.snapshot_id == first:
                replica.threads.delay_s = late  # type: ignore[method-assign]
            return prepare(store, effect)

        def check(store, snapshot_id, file):
            read_back.append(snapshot_id)
            return inner(store, snapshot_id, file)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(storage.QuorumStorage, "prepare_check", begin)
            patch.setattr(SnapshotStore, "check_download", check)
            patch.setattr(storage, "SERVED_RECENTLY_MS", 0)
            await replica.start()
            await cluster.until(lambda: begun == [first])
            others = [other for other in cluster.replicas if other is not replica]
            leader = await cluster.leader()
            assert leader.node is not None and leader.node is not replica.node
            offset = leader.node.propose(leader.node.leader.epoch, [b"b"])
            await cluster.until(lambda: all(other.listener.next_offset > offset for other in others))
            second, _ = [await take_snapshot(other) for other in others]
            await cluster.until(lambda: replica.node and replica.node.latest_snapshot == second)
            assert read_back == [second]
            await cluster.until(lambda: first in read_back)
            await cluster.commit(b"z")
        assert replica.listener.snapshot is not None and replica.listener.snapshot[0] == second

    run_quorum(scenario, config=PIECES)


@pytest.mark.parametrize("voters", ["in the log", "of the configuration"])
def test_snapshot_of_an_id_is_the_same_file_on_every_replica(voters):
    """Also on one that was never told who votes, and asks the bootstrap servers."""

    async def main() -> None:
        servers = tuple(RpcAddress("test", 9000 + node_id) for node_id in range(1, 4))
        cluster = Cluster(3, 1, replace(FAST, bootstrap_servers=servers), NO_VOTERS)
        if voters == "of the configuration":
            cluster.voters = VoterSet([Voter(ReplicaKey(v.key.id), v.address) for v in cluster.voters])
        await cluster.start()
        await cluster.commit(b"a")
        ends = [batch.last_offset + 1 for batch in cluster.replicas[0].listener.batches]
        files: dict[int, set[bytes]] = {}
        for end_offset in ends:
            for replica in cluster.replicas:
                assert replica.node is not None
                writer = replica.node.start_snapshot(end_offset, 7)
                if writer is not None:
                    snapshot_id = await writer.finish()
                    assert snapshot_id is not None and snapshot_id.end_offset == end_offset
                    data = replica.disk.read(f"{DIRECTORY}/{snapshot_name(snapshot_id)}")
                    files.setdefault(end_offset, set()).add(data)
        assert {len(different) for different in files.values()} == {1}
        assert ends[-1] in files
        await cluster.stop()

    run_virtually(main())
