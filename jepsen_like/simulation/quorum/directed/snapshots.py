"""Schedules written by hand about snapshots that are fetched despite losses, new leaders and crashes.

In each, 3 lags behind a leader whose log no longer has the start, so that 3 needs a snapshot.
"""

from collections.abc import Callable
from dataclasses import replace

from pykraft.jepsen_like.simulation.quorum.cluster import CONFIG, SimCluster
from pykraft.jepsen_like.simulation.quorum.directed.elections import elect, on_a_common_start, reach
from pykraft.jepsen_like.simulation.quorum.options import ClusterOptions
from pykraft.jepsen_like.simulation.quorum.replica import SimReplica
from pykraft.quorum.core.log_shape import SnapshotId

VALUES = 150
SMALL_PIECES = replace(CONFIG, fetch_snapshot_max_bytes=200)  # about ten of them hold the values


def _behind_a_snapshot(seed: int, *, by_both: bool = False) -> tuple[SimCluster, SnapshotId]:
    """1 leads, and its log starts at a snapshot; 3 holds one record and is still cut off."""
    cluster = on_a_common_start(seed, SMALL_PIECES)
    one, two, _ = cluster.replicas.values()
    cluster.links.partition([3], [1, 2])
    for _ in range(VALUES):
        cluster.propose(one)
    snapshot_id = _cut(cluster, one)
    if by_both:
        assert _cut(cluster, two) == snapshot_id
    return cluster, snapshot_id


def one_record_behind() -> SimCluster:
    """3 lacks only the last record before the start of the leader's log, which no log has any more."""
    cluster = on_a_common_start(30, SMALL_PIECES)
    one, _, three = cluster.replicas.values()
    cluster.links.partition([3], [1, 2])
    cluster.propose(one)
    snapshot_id = _cut(cluster, one)
    assert snapshot_id.end_offset == 2 and three.core.state.log.end_offset == 1
    cluster.links.heal()
    _installed(cluster, snapshot_id)
    return cluster


def _cut(cluster: SimCluster, replica: SimReplica) -> SnapshotId:
    state = replica.core.state
    proposed = cluster.replicas[1].core.state.log
    reach(cluster, lambda: state.high_watermark == proposed.end_offset, "everything is committed")
    snapshot_id = replica.snapshots.take()
    assert snapshot_id is not None
    replica.snapshots.cut()
    return snapshot_id


def _pieces(cluster: SimCluster, count: int) -> None:
    three = cluster.replicas[3].snapshots
    reach(cluster, lambda: three.pieces >= count, f"{count} pieces are on 3")


def _installed(cluster: SimCluster, snapshot_id: SnapshotId) -> None:
    three = cluster.replicas[3]
    reach(cluster, lambda: three.snapshots.start == snapshot_id, "3 has installed the snapshot")


def lost_pieces() -> SimCluster:
    """Every third message is lost, both ways: pieces that have arrived are not fetched again."""
    cluster, snapshot_id = _behind_a_snapshot(31, by_both=True)
    cluster.links.heal()
    cluster.links.drop = 0.3
    three = cluster.replicas[3].snapshots
    size_bytes = len(cluster.replicas[1].snapshots.files[snapshot_id])
    reach(cluster, lambda: three.start == snapshot_id, "3 has installed the snapshot", within_ms=20_000)
    wanted = -(-size_bytes // cluster.config.fetch_snapshot_max_bytes)
    assert wanted <= three.pieces <= wanted + 3, f"{three.pieces} pieces of {wanted} were fetched"
    return cluster


def leader_changes_mid_fetch() -> SimCluster:
    """1 dies half way; 2 is elected and has the same snapshot: 3 continues at the byte where it stopped."""
    cluster, snapshot_id = _behind_a_snapshot(32, by_both=True)
    one, two, three = cluster.replicas.values()
    cluster.links.heal()
    _pieces(cluster, 4)
    one.crash()
    before = three.snapshots.pieces
    elect(cluster, two)
    _installed(cluster, snapshot_id)
    size_bytes = len(two.snapshots.files[snapshot_id])
    wanted = -(-size_bytes // cluster.config.fetch_snapshot_max_bytes)
    assert before >= 4 and three.snapshots.pieces == wanted, "pieces were fetched twice"
    return cluster


def leader_with_another_file() -> SimCluster:
    """As before, but 2's file of the same id differs: nothing of 1's file may be in what 3 installs."""
    cluster, snapshot_id = _behind_a_snapshot(33, by_both=True)
    one, two, three = cluster.replicas.values()
    two.snapshots.rewrite(snapshot_id)
    cluster.links.heal()
    _pieces(cluster, 4)
    one.crash()
    elect(cluster, two)
    _installed(cluster, snapshot_id)
    assert three.snapshots.files[snapshot_id] == two.snapshots.files[snapshot_id]
    return cluster


def leader_without_the_snapshot() -> SimCluster:
    """As before, but 2 still has its whole log: 3 catches up from records, and the pieces are not used."""
    cluster, _ = _behind_a_snapshot(34)
    one, two, three = cluster.replicas.values()
    cluster.links.heal()
    _pieces(cluster, 4)
    one.crash()
    elect(cluster, two)
    reach(cluster, lambda: three.core.state.high_watermark > VALUES, "3 has caught up")
    assert three.snapshots.latest is None
    return cluster


def snapshot_is_deleted_while_it_is_fetched() -> SimCluster:
    """1 takes a newer snapshot and deletes the one that 3 is fetching: 3 fetches the newer one."""
    cluster, snapshot_id = _behind_a_snapshot(35)
    one = cluster.replicas[1]
    cluster.links.heal()
    _pieces(cluster, 4)
    cluster.propose(one)
    newer = _cut(cluster, one)
    assert newer > snapshot_id and list(one.snapshots.files) == [newer]
    _installed(cluster, newer)
    return cluster


def crash_mid_fetch() -> SimCluster:
    """3 dies half way: the pieces that it had fetched are not trusted, and fetched again."""
    cluster, snapshot_id = _behind_a_snapshot(36)
    three = cluster.replicas[3]
    cluster.links.heal()
    _pieces(cluster, 4)
    three.crash()
    three.start()
    _installed(cluster, snapshot_id)
    return cluster


def crash_mid_install() -> SimCluster:
    """3 dies when the snapshot has its name and the old log still exists: its start installs it."""
    cluster, snapshot_id = _behind_a_snapshot(37)
    three = cluster.replicas[3]
    three.snapshots.half_installed = True
    cluster.links.heal()
    reach(cluster, lambda: not three.alive, "3 dies while it installs")
    assert three.snapshots.latest == snapshot_id and len(three.batches) == 1
    three.start()
    assert three.snapshots.start == snapshot_id
    assert three.core.state.high_watermark == three.core.state.log.end_offset == snapshot_id.end_offset
    return cluster


def log_that_parts_before_the_snapshot() -> SimCluster:
    """3 led, and holds records that no other replica has; 1 no longer has the part in common."""
    cluster = SimCluster(38, ClusterOptions(voters=3, max_delay_ms=1, max_flush_ms=1), SMALL_PIECES)
    one, two, three = cluster.replicas.values()
    cluster.start_all()
    elect(cluster, three)
    reach(cluster, lambda: all(r.core.state.high_watermark == 1 for r in (one, two, three)), "a common start")
    cluster.links.partition([3], [1, 2])
    for _ in range(2 * VALUES):
        cluster.propose(three)
    reach(cluster, lambda: three.core.state.log.flushed_offset > 2 * VALUES, "values on 3 alone")
    three.crash()
    elect(cluster, one)
    for _ in range(VALUES):
        cluster.propose(one)
    snapshot_id = _cut(cluster, one)
    cluster.links.heal()
    three.start()
    assert three.core.state.log.end_offset > snapshot_id.end_offset
    _installed(cluster, snapshot_id)
    return cluster


def snapshot_of_an_earlier_leader() -> SimCluster:
    """3 has fetched the snapshot of 1 and is reading it back; meanwhile 2, whose log is whole, is elected.

    3 fetches from 2 and so acknowledges more than the snapshot holds, which commits it. Before 3 learns of
    the commit its check of the snapshot ends: installing it now would remove a committed record.
    """
    cluster, _ = _behind_a_snapshot(40)
    one, two, three = cluster.replicas.values()
    cluster.hold_checks_of.add(3)
    cluster.links.heal()
    reach(cluster, lambda: bool(cluster.held_checks), "3 has fetched the snapshot")
    cluster.links.partition([1], [2, 3])
    two.crash()
    two.start()
    elect(cluster, two)
    reach(cluster, lambda: two.core.state.high_watermark > one.core.state.high_watermark, "2 commits with 3")
    cluster.links.cut([2], [3])
    cluster.release_checks()
    assert three.core.state.log.end_offset == two.core.state.log.end_offset
    return cluster


SNAPSHOTS_DIRECTED: dict[str, Callable[[], SimCluster]] = {
    "snapshot-of-an-earlier-leader": snapshot_of_an_earlier_leader,
    "snapshot-crash-mid-fetch": crash_mid_fetch,
    "snapshot-crash-mid-install": crash_mid_install,
    "snapshot-deleted-while-fetched": snapshot_is_deleted_while_it_is_fetched,
    "snapshot-leader-changes-mid-fetch": leader_changes_mid_fetch,
    "snapshot-leader-with-another-file": leader_with_another_file,
    "snapshot-leader-without-it": leader_without_the_snapshot,
    "snapshot-log-parts-before-it": log_that_parts_before_the_snapshot,
    "snapshot-lost-pieces": lost_pieces,
    "snapshot-one-record-behind": one_record_behind,
}
