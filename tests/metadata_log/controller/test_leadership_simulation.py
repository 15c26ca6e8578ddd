"""One partition under the real controller and real replicas: no committed record is lost (KIP-966).

Brokers stop in order, are killed (with and without loss of unflushed data), are cut off from the controller,
and move the partition among each other; the minimum in-sync number changes. The network is a model. As long
as fewer replicas than ``min.insync.replicas`` have been restarted uncleanly and are not back in the ISR, no
record that any leader ever showed as committed may be missing from a later leader.

It stands beside the simulation of whole nodes (ring 2) for two things. In half of the histories a sweep comes
any number of steps after the restart that calls for it; in ring 2 all partitions fit into one slice, and the
sweep is over at once (planted bug ``unfenced-before-the-sweep``). And the minimum changes while records are
counted on; in ring 2 admins change it only for topics whose records no workload checks. Four more bugs are
planted by this file itself: in what a restart may have lost, who is eligible, when a leader may commit, and
when a move ends.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pykraft.broker.replicas.partition.isr import IsrProposal
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykraft.kafka_protocol.messages.topics import ElectLeadersRequest
from pykraft.kafka_protocol.record_codec import RecordInput, decode_batch, encode_batch
from pykraft.kafka_protocol.records import iter_headers, read_header
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.metadata_log.controller import cluster_control
from pykraft.metadata_log.controller.calls.requests import (
    AlterPartitionRequest,
    IsrMember,
    PartitionIsrChange,
    PartitionIsrResult,
)
from pykraft.metadata_log.controller.elections import PartitionChangeBuilder
from pykraft.metadata_log.image import PartitionRegistration
from pykraft.metadata_log.records import LogsLost
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from tests.broker.partitions import Events
from tests.metadata_log.harness import ControllerHarness
from tests.stand_ins import interpreted_only

BROKERS = (1, 2, 3, 4, 5)
LAG_MS = 300
CONFIG = LogConfig(segment_bytes=1200, min_insync_replicas=2)
FEATURES = {"eligible.leader.replicas.version": 1}


@dataclass
class Node:
    """A broker process and its disk. ``stopped_at_epoch`` is what an orderly stop leaves on the disk."""

    node_id: int
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    is_up: bool = False
    is_fenced: bool = True
    epoch: int = -1
    incarnation: int = 0
    stopped_at_epoch: int = -1
    recovery_point: int = 0
    partition: Partition | None = None
    inbox: list[tuple[PartitionRegistration, int, int]] = field(default_factory=list)


class World:
    def __init__(self, seed: int, make_controller: Callable[..., ControllerHarness]) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 1000
        self.controller = make_controller(seed, features=FEATURES)
        self.nodes = {n: Node(n) for n in BROKERS}
        self.min_isr = 2
        self.published: tuple[PartitionRegistration, int] | None = None
        self.unclean: set[int] = set()
        self.proposals: list[tuple[int, int, IsrProposal]] = []
        self.committed: dict[int, bytes] = {}
        self.counter = 0
        self.counts: dict[str, int] = {}
        for node in self.nodes.values():
            self.start(node)
        self.unclean.clear()
        self.controller.create_assigned("t", [1, 2, 3])
        self.alter_min_isr(2)
        # In half of the runs the sweep of a broker's partitions comes only later.
        self.controller.sweeps_at_once = seed % 2 == 0

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    @property
    def state(self) -> PartitionRegistration:
        state = self.controller.partition("t")
        assert isinstance(state, PartitionRegistration)
        return state

    # -- the controller ----------------------------------------------------------------------------------

    def publish(self) -> None:
        """Every broker will learn of the partition's newest state, in order."""
        if self.controller.image.topic("t") is None or (self.state, self.min_isr) == self.published:
            return
        before, self.published = self.published, (self.state, self.min_isr)
        if before is not None:
            self.note(before[0], self.state)
        for node in self.nodes.values():
            if node.is_up:
                node.inbox.append((*self.published, self.controller.image.offset))
        # Active: by then the sweep of its restart is over, so it has rejoined the ISR since.
        active = {n for n in self.state.isr if self.nodes[n].is_up and self.controller.image.is_active(n)}
        self.unclean -= active

    def note(self, old: PartitionRegistration, new: PartitionRegistration) -> None:
        if new.leader != old.leader and new.leader in old.elr:
            self.count("elected from the ELR")
        if new.elr and not old.elr:
            self.count("below the minimum")
        if old.is_reassigning and not new.is_reassigning:
            self.count("reassigned")
        if not new.has_leader:
            self.count("without leader")

    def alter_min_isr(self, value: int) -> None:
        entry = AlterableConfig(name="min.insync.replicas", config_operation=0, value=str(value))
        resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[entry])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        core = self.controller.core
        self.controller.run(core.handle_forwarded(self.controller.context, request))
        self.min_isr = value
        self.publish()

    def reassign(self) -> None:
        replicas: list[int] | None = self.rng.sample(BROKERS, self.rng.choice((2, 3, 3, 4)))
        if self.state.is_reassigning and self.rng.random() < 0.3:
            replicas = None
            self.count("cancelled")
        self.controller.reassign("t", replicas)

    def elect_preferred(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None)
        self.controller.forward(request)

    def decide(self, leader: int, epoch: int, proposal: IsrProposal) -> PartitionIsrResult:
        members = tuple(
            IsrMember(n, epoch if n == leader else proposal.broker_epochs.get(n, -1))
            for n in proposal.new_isr
        )
        change = PartitionIsrChange(
            self.controller.topic("t").id, 0, proposal.leader_epoch, proposal.partition_epoch, members
        )
        request = AlterPartitionRequest(leader, epoch, (change,))
        try:
            (result,) = self.controller.run(self.controller.core.handle_alter_partition(request)).partitions
        except KafkaError as error:
            return PartitionIsrResult(change.topic_id, 0, error.code)
        assert isinstance(result, PartitionIsrResult)
        return result

    # -- processes ---------------------------------------------------------------------------------------

    def start(self, node: Node) -> None:
        node.incarnation += 1
        previous, node.stopped_at_epoch = node.stopped_at_epoch, -1
        node.epoch = self.controller.register(
            node.node_id, incarnation=node.incarnation, previous_broker_epoch=previous
        )
        if previous == -1:
            self.unclean.add(node.node_id)
        node.is_up = True
        node.inbox = []
        if self.published is not None:
            node.inbox.append((self.state, self.min_isr, self.controller.image.offset))
            self.apply(node)
        self.publish()
        node.is_fenced = True
        self.heartbeat(node)

    def heartbeat(self, node: Node) -> None:
        applied = node.inbox[0][2] - 1 if node.inbox else self.controller.image.offset
        node.is_fenced = self.controller.heartbeat(node.node_id, offset=applied).is_fenced
        self.publish()

    def stop(self, node: Node) -> None:
        """Orderly stop: the logs are flushed, and the epoch is recorded."""
        if self.state.leader == node.node_id and self.rng.random() < 0.5:
            self.controller.heartbeat(node.node_id, want_shut_down=True)
        self.fence(node)
        if node.partition is not None:
            node.partition.log.close()
            node.recovery_point = node.partition.log.recovery_point
        node.disk.crash(self.rng)
        node.partition, node.is_up, node.stopped_at_epoch = None, False, node.epoch
        self.count("stopped")

    def kill(self, node: Node) -> None:
        """Unflushed data may be lost. Only while enough other replicas are intact."""
        if len(self.unclean | {node.node_id}) >= 2:
            return
        self.unclean.add(node.node_id)
        if self.rng.random() < 0.7:
            node.disk.crash(self.rng)
        node.partition, node.is_up = None, False
        self.count("killed")

    def fence(self, node: Node) -> None:
        self.controller.stop_heartbeats(node.node_id)
        self.publish()

    def come_back(self, node: Node) -> None:
        if not node.is_up:
            self.fence(node)  # its session has ended when the id is registered again
            self.start(node)
        elif self.controller.image.brokers[node.node_id].fenced:
            self.heartbeat(node)

    def apply(self, node: Node) -> None:
        """Apply the next change of the metadata log."""
        registration, min_isr, _ = node.inbox.pop(0)
        if node.node_id not in registration.replicas:
            if node.partition is not None or node.disk.exists("t-0"):
                self.count("log deleted")
            node.partition, node.disk, node.recovery_point = None, MemoryDisk(), 0
            return
        if node.partition is None:
            log = Log.open(node.disk, "t-0", CONFIG, now_ms=0, recovery_point=node.recovery_point)
            topic_id = self.controller.topic("t").id
            node.partition = Partition("t", topic_id, 0, node.node_id, log, Events())
        node.partition.set_min_isr(min_isr, strict=True)
        node.partition.apply(registration, self.now_ms)

    # -- replication -------------------------------------------------------------------------------------

    def produce(self, node: Node) -> None:
        if node.partition is None or not node.partition.is_leader or node.is_fenced:
            return
        self.counter += 1
        batch = bytearray(encode_batch([RecordInput(None, b"v%d" % self.counter, (), 1)]))
        data, all_acks = memoryview(batch), self.rng.random() < 0.5
        try:
            node.partition.append_as_leader(data, read_header(batch), 1, all_acks=all_acks)
        except KafkaError:
            self.count("refused")

    def fetch(self, node: Node, lossy: float = 0.1) -> None:
        follower = node.partition
        if follower is None or follower.leader_id is None or follower.is_leader:
            return
        leader = self.nodes[follower.leader_id].partition
        if leader is None or self.nodes[follower.leader_id].is_fenced:
            return  # a broker that knows it is fenced serves no client
        offset = follower.log.log_end_offset
        try:
            leader.require_leader(follower.leader_epoch)
            end = leader.check_follower(node.node_id, offset, follower.log.latest_epoch)
            if end is None:
                leader.handle_follower_fetch(node.node_id, offset, node.epoch, self.now_ms, 0)
                piece = leader.read_replica(offset, self.rng.choice((80, 300, 5000)), at_least_one=True)
        except KafkaError:
            return
        if self.rng.random() < lossy:
            return
        if end is not None:
            follower.truncate_to_divergence(end.epoch, end.end_offset)
            node.recovery_point = min(node.recovery_point, follower.log.recovery_point)
            self.count("truncated")
            return
        if piece is not None:
            data = piece.file.pread(piece.position, piece.size_bytes)
            follower.append_as_follower(memoryview(bytearray(data)), 1)
        follower.follow(leader.high_watermark, leader.log.log_start_offset)

    def is_eligible(self, replica: int, epoch: int) -> bool:
        broker = self.controller.image.brokers[replica]
        return broker.is_active and epoch in (-1, broker.epoch)

    def propose(self, node: Node) -> None:
        if node.partition is not None:
            proposal = node.partition.next_proposal(self.now_ms, LAG_MS, self.is_eligible)
            if proposal is not None:
                self.proposals.append((node.node_id, node.epoch, proposal))

    def deliver_proposal(self, lossy: float = 0.15) -> None:
        if not self.proposals:
            return
        at = self.rng.randrange(len(self.proposals))
        leader, epoch, proposal = self.proposals[at]
        node = self.nodes[leader]
        partition = node.partition if node.is_up and node.epoch == epoch else None
        if self.rng.random() < lossy:
            # The answer is lost, and the request is still in flight.
            if partition is not None:
                partition.handle_isr_refused(proposal, self.now_ms, outcome_known=False)
            return
        self.proposals.pop(at)
        result = self.decide(leader, epoch, proposal)
        if partition is None:
            pass
        elif result.error is ErrorCode.NONE and self.rng.random() > lossy:
            partition.handle_isr_accepted(proposal, result.isr, result.partition_epoch, result.elr)
        else:
            known = result.error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST)
            partition.handle_isr_refused(proposal, self.now_ms, outcome_known=known)
        self.publish()

    # -- steps and what must hold --------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        self.now_ms += rng.randrange(25)
        if rng.random() < 0.1:
            self.controller.sweep(1)
            self.publish()
        node = self.nodes[rng.choice(self.state.replicas if rng.random() < 0.85 else BROKERS)]
        action = rng.random()
        if not node.is_up:
            if action < 0.25:
                self.come_back(node)
        elif action < 0.42:
            self.fetch(node)
        elif action < 0.60:
            self.produce(node)
        elif action < 0.76:
            if node.inbox:
                self.apply(node)
        elif action < 0.84:
            self.propose(node)
        elif action < 0.93:
            self.deliver_proposal()
        elif action < 0.94:
            if node.partition is not None:
                node.partition.log.flush()
                node.recovery_point = node.partition.log.recovery_point
        elif action < 0.98:
            self.come_back(node)
        elif action < 0.983:
            self.fence(node)
        elif action < 0.987:
            self.stop(node)
        elif action < 0.991:
            self.kill(node)
        elif action < 0.995:
            self.reassign()
        elif action < 0.997:
            self.alter_min_isr(rng.choice((2, 2, 3)))
        else:
            self.elect_preferred()
        self.publish()

    def check(self) -> None:
        """Records that a leader shows as committed stay committed under every later leader."""
        for node in self.nodes.values():
            partition = node.partition
            if partition is None or not partition.is_leader or node.is_fenced:
                continue
            values = log_values(partition.log)
            for offset in range(len(self.committed), partition.high_watermark):
                self.committed[offset] = values[offset]
            for offset in range(partition.high_watermark):
                assert values[offset] == self.committed[offset], f"CommittedStays: {offset} on {node.node_id}"
        leader = self.nodes.get(self.state.leader)
        partition = None if leader is None or leader.is_fenced else leader.partition
        if partition is None or partition.leader_epoch != self.state.leader_epoch:
            return
        values = log_values(partition.log)
        missing = [offset for offset, value in self.committed.items() if values.get(offset) != value]
        assert not missing, f"CommittedNotLost: {missing} on {self.state.leader}"

    def heal(self) -> None:
        self.controller.sweeps_at_once = True
        self.controller.sweep()
        self.publish()
        for _ in range(600):
            self.now_ms += 10
            for node in self.nodes.values():
                self.come_back(node)
                while node.inbox:
                    self.apply(node)
                self.fetch(node, lossy=0)
                self.propose(node)
                self.deliver_proposal(lossy=0)
            replicas = [self.nodes[n].partition for n in self.state.replicas]
            ends = {(p.log.log_end_offset, p.high_watermark) for p in replicas if p is not None}
            if (
                not self.state.is_reassigning
                and set(self.state.isr) == set(self.state.replicas)
                and None not in replicas
                and len(ends) == 1
                and len({*ends.pop()}) == 1
            ):
                return
        raise AssertionError(f"no progress after healing: {self.state}")


def log_values(log: Log) -> dict[int, bytes]:
    return {
        record.offset: record.value or b""
        for _, data in log.iter_batches(log.log_start_offset)
        for position, header in iter_headers(data)
        for record in decode_batch(data[position : position + header.size_bytes])
    }


def run(seed: int, make_controller: Callable[..., ControllerHarness], steps: int = 1500) -> World:
    world = World(seed, make_controller)
    for number in range(steps):
        world.step()
        if number % 25 == 0:
            world.check()
    world.heal()
    world.check()
    assert world.counter > 20 and world.committed, "the run did nothing"
    return world


@pytest.mark.parametrize("block", range(4))
def test_nothing_committed_is_lost_while_few_replicas_restart_uncleanly(
    make_controller: Callable[..., ControllerHarness], block: int
) -> None:
    totals: dict[str, int] = {}
    for seed in range(block * 10, block * 10 + 10):
        try:
            world = run(seed, make_controller)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        for name, count in world.counts.items():
            totals[name] = totals.get(name, 0) + count
    assert len(totals) == 10 and all(count >= 2 for count in totals.values()), totals


def commits_below_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    isr_changed = Partition._isr_changed

    def careless(partition: Partition) -> None:
        isr_changed(partition)
        partition._may_commit = True
        if partition.is_leader:
            partition._recount()

    monkeypatch.setattr(Partition, "_isr_changed", careless)


def believes_every_restart_to_be_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_control, "_logs_lost", lambda known, request: LogsLost.NOTHING)


def takes_every_replica_for_eligible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        PartitionChangeBuilder, "_holders", lambda builder, partition, replicas: tuple(replicas)
    )


def ends_moves_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        PartitionChangeBuilder,
        "_may_complete",
        lambda builder, partition, in_sync, adding, removing, remaining: bool({*in_sync} - {*removing}),
    )


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(commits_below_the_minimum, marks=interpreted_only),
        believes_every_restart_to_be_clean,
        takes_every_replica_for_eligible,
        ends_moves_too_early,
    ],
)
def test_the_simulation_notices(
    make_controller: Callable[..., ControllerHarness],
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"Committed|isr_|eligible"):
        for seed in range(60):
            run(seed, make_controller)
