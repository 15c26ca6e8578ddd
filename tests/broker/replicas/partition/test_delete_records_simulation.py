"""Deletions of records while everything fails: the world of :mod:`restart_world`, and log starts stored late.

A log start that has moved is stored some steps later, or never if the broker ends before. Deletions wait as
requests do: they are looked at when the partition wakes them. A leader's view of which brokers are live may
be old. Invariants, beside those of the world:

* **DeletedStaysDeleted**: once a deletion is answered, no member of the ISR has the records, and no restart
  of one brings them back;
* **StoredIsStored**: a log start that a replica reports as stored is what a start would find;
* **NothingElseIsDeleted**: no log starts above every offset that was asked for or retired, and nothing above
  the high watermark can be deleted;
* **WokenWhenReached**: a deletion that could be answered is looked at;
* **LogStartsConverge**: after healing, the log starts of all replicas are one, and stored.
"""

from collections import Counter

import pytest

from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.replicas.partition.deleting import HIGH_WATERMARK
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.log_store.checkpoint import LOG_START_OFFSET_CHECKPOINT, read_offset_checkpoint
from tests.broker.at_once import now
from tests.broker.isr_controller import healed_worlds
from tests.broker.restart_world import KEY, NODES, Events, Node, World


class LateStores(Events):
    """Only notes that the log start of a node has to be stored."""

    def __init__(self, logs: LogManager, node: Node, unstored: set[int]) -> None:
        super().__init__(logs)
        self._node = node
        self._unstored = unstored

    def log_start_moved(self, partition: Partition) -> None:
        self._unstored.add(self._node.node_id)


class Deletion:
    """A deletion that waits at a leader; ``is_woken``: it has to be looked at."""

    def __init__(self, node: Node, partition: Partition, offset: int) -> None:
        self.node_id, self.epoch = node.node_id, node.epoch
        self.partition = partition
        self.offset = offset
        self.is_woken = True

    def wake(self) -> None:
        self.is_woken = True


class DeletingWorld(World):
    def __init__(self, seed: int) -> None:
        self.unstored: set[int] = set()
        self.is_healing = False
        #: The brokers that a node takes for fenced.
        self.views = dict.fromkeys(NODES, frozenset[int]())
        super().__init__(seed)

    def start_topic(self) -> None:
        self.deletions: list[Deletion] = []
        self.answered = self.allowed = 0
        super().start_topic()

    def start(self, node: Node) -> None:
        self.unstored.discard(node.node_id)
        super().start(node)

    def events(self, node: Node, logs: LogManager) -> Events:
        return LateStores(logs, node, self.unstored)

    # -- deletions -------------------------------------------------------------------------------------

    def delete(self, node: Node, offset: int) -> bool:
        partition = node.replica
        if node.topic_id != self.topic_id:
            return False
        try:
            partition.require_leader()
            reached = partition.delete_records(offset)
        except KafkaError as error:
            assert error.code is not ErrorCode.OFFSET_OUT_OF_RANGE, error
            return False
        deletion = Deletion(node, partition, reached)
        self.allowed = max(self.allowed, reached)
        self.deletions.append(deletion)
        partition.log_start_waiters[deletion] = None
        self.counts["delete"] += 1
        return True

    def delete_some(self, node: Node) -> None:
        """Up to any offset that no producer may still have to retry."""
        retried = [b.offset for b in self.batches if not b.acknowledged and b.offset >= 0]
        limit = min([node.replica.high_watermark, *retried])
        self.delete(node, limit if self.rng.random() < 0.5 else self.rng.randint(0, limit))
        if node.replica.log.log_end_offset > node.replica.high_watermark:
            with pytest.raises(KafkaError):
                node.replica.delete_records(node.replica.high_watermark + 1)

    def store(self, node: Node) -> None:
        if node.node_id in self.unstored and node.logs is not None:
            self.unstored.discard(node.node_id)
            now(node.logs.checkpoints.store_log_starts([KEY]))
            now(node.logs.producers.stand_in(KEY))
            node.logs.checkpoints.delete_retired_segments(KEY)
            node.replica.log_start_stored()

    def look_at_deletions(self) -> None:
        for deletion in [deletion for deletion in self.deletions if deletion.is_woken]:
            deletion.is_woken = False
            if self.can_lead(deletion):
                if not self.is_reached(deletion):
                    continue
                self.answered = max(self.answered, deletion.offset)
                self.counts["answered"] += 1
            self.deletions.remove(deletion)
            deletion.partition.log_start_waiters.pop(deletion, None)

    def can_lead(self, deletion: Deletion) -> bool:
        node, partition = self.nodes[deletion.node_id], deletion.partition
        return node.partition is partition and node.epoch == deletion.epoch and partition.is_leader

    def is_reached(self, deletion: Deletion) -> bool:
        fenced = self.views[deletion.node_id]
        return deletion.partition.low_watermark(lambda replica: replica not in fenced) >= deletion.offset

    def consume(self, node: Node) -> None:
        super().consume(node)
        partition = node.replica
        if partition.is_leader and partition.log.log_start_offset > 0:
            with pytest.raises(KafkaError):
                partition.read_committed(partition.log.log_start_offset - 1, 400, at_least_one=True)

    # -- steps and invariants --------------------------------------------------------------------------

    def see_brokers(self, node: Node) -> None:
        self.views[node.node_id] = frozenset(self.fenced)
        if node.partition is not None:
            node.replica.brokers_changed()

    def step(self) -> None:
        node = self.nodes[self.rng.choice(NODES)]
        draw = self.rng.random()
        if node.partition is None or draw > 0.2:
            super().step()
        elif draw < 0.05:
            self.delete_some(node)
        elif draw < 0.15:
            self.store(node)
        else:
            self.see_brokers(node)
        self.look_at_deletions()

    def maintain(self, node: Node) -> None:
        retired = self.counts["retention"]
        super().maintain(node)
        if self.counts["retention"] > retired:
            self.allowed = max(self.allowed, node.replica.log.log_start_offset)

    def check(self) -> None:
        super().check()
        for node in self.nodes.values():
            if node.partition is None or node.topic_id != self.topic_id:
                continue
            log = node.replica.log
            assert log.stored_log_start_offset <= log.log_start_offset, "StoredIsNotAhead"
            assert log.log_start_offset <= self.allowed, f"NothingElseIsDeleted: {log.log_start_offset}"
            if node.node_id in self.state.isr and node.is_synced:
                stored = log.stored_log_start_offset
                assert stored >= self.answered, f"DeletedStaysDeleted: {stored} < {self.answered}"
        for deletion in self.deletions:
            if not deletion.is_woken and self.can_lead(deletion) and deletion.node_id not in self.unstored:
                assert not self.is_reached(deletion), "WokenWhenReached"

    def fetch(self, node: Node) -> None:
        if self.is_healing:
            self.store(node)
        super().fetch(node)

    def check_logs(self) -> None:
        super().check_logs()
        for node in self.nodes.values():
            if node.partition is not None:
                log = node.replica.log
                found = read_offset_checkpoint(node.disk, f"/d/{LOG_START_OFFSET_CHECKPOINT}").get(KEY, 0)
                found = max(found, log.segment_base_offsets[0])
                assert found >= log.stored_log_start_offset, f"StoredIsStored: {found}"

    def heal(self) -> None:
        self.is_healing = True
        super().heal()
        for _ in range(100):
            self.now_ms += 10
            leader = self.nodes[self.state.leader]
            if self.delete(leader, HIGH_WATERMARK):
                break
            self.turn()
        end = leader.replica.high_watermark
        for _ in range(100):
            self.now_ms += 10
            self.turn()
            logs = [node.replica.log for node in self.nodes.values()]
            if self.answered == end and {log.stored_log_start_offset for log in logs} == {end}:
                return
        raise AssertionError(f"LogStartsConverge: {[log.stored_log_start_offset for log in logs]}, {end}")

    def turn(self) -> None:
        for node in self.nodes.values():
            while node.inbox:
                self.apply_metadata(node)
            self.see_brokers(node)
            self.fetch(node)
            self.deliver_answer()
            self.isr_work(node)
            self.deliver_proposal()
        self.look_at_deletions()


@pytest.mark.parametrize("block", [*range(6), 29])
def test_deleted_records_stay_deleted_and_no_others_are_lost(block: int) -> None:
    totals: Counter[str] = Counter()
    for world in healed_worlds(block, DeletingWorld, steps=1500, check_logs_every=20):
        totals.update(world.counts)
    assert totals["refused"] <= 2, totals
    wanted = ("elect", "isr", "stop", "kill", "power", "wipe", "recreate", "restart_at", "delete")
    assert all(totals[name] >= 4 for name in wanted), totals
    assert totals["answered"] >= 20 * 3, totals
