"""Seeded random histories of one consumer group, with named invariants checked after every event (KIP-848).

Members join, leave, crash, restart, revoke late; answers are lost, requests repeated; topics are created,
grow and are deleted; the coordinator fails over to a log that ends at or above the high watermark. Every run
ends without faults, when the group must settle. A failing run is reproduced by its seed.

It stands beside the simulation of whole nodes: a coordinator without a cluster lives through many more
changes of membership, and twelve of the bugs planted in ``tests/mutants`` are found here by name.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

import pytest

from pykraft.group_coordinator.codec import decode_record
from pykraft.group_coordinator.config import GroupConfig
from pykraft.group_coordinator.group import ConsumerGroup
from pykraft.group_coordinator.heartbeat import handle_consumer_heartbeat
from pykraft.group_coordinator.member import MemberState
from pykraft.group_coordinator.replay import replay_all
from pykraft.group_coordinator.result import Call
from pykraft.group_coordinator.shard import Shard
from pykraft.group_coordinator.state import EMPTY_STATE
from pykraft.group_coordinator.subscription import TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.group_coordinator import tools

SEEDS = range(120)
EVENTS = 250
CALM_ROUNDS = 12
CONFIG = GroupConfig(consumer_session_timeout_ms=45_000, consumer_heartbeat_interval_ms=5_000)
CONFIG_SUBSCRIPTIONS = (["t"], ["t", "u"], ["u", "v"], ["t", "u", "v"])
FENCING = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


Partitions = frozenset[tuple[Uuid, int]]


@dataclass
class Client:
    """A consumer: ``owned`` is what it may be reading at this moment, and what it reports.

    A lazy one owns new partitions some time after they were assigned, as Java's consumer does. Until then it
    reports fewer than it was assigned, which looks to the coordinator like a revocation: if the next answer
    is lost, it may read a partition that was assigned to another, at an epoch that may no longer commit.
    """

    member_id: str
    instance_id: str | None
    subscription: list[str]
    assignor: str
    epoch: int = 0
    owned: Partitions = frozenset()
    assignment: Partitions = frozenset()
    lazy: bool = False
    reported: Partitions | None = None
    send_full: bool = True
    gone: bool = False

    def request(self) -> ConsumerGroupHeartbeatRequest:
        full = self.send_full or self.epoch == 0
        unchanged = self.owned == self.reported
        return ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=60_000 if full else -1,
            subscribed_topic_names=list(self.subscription) if full else None,
            server_assignor=self.assignor if full else None,
            topic_partitions=None if unchanged and not full else tools.to_request(set(self.owned)),
        )

    def on_answer(self, response: ConsumerGroupHeartbeatResponse) -> None:
        if self.epoch:
            assert response.member_epoch >= self.epoch, "MemberEpochMonotone: a client was told a lower epoch"
        self.epoch = response.member_epoch
        self.send_full = False
        if response.assignment is not None:
            self.assignment = tools.assigned(response)
            self.reported = None  # every assignment is acknowledged by a report
            if not self.lazy:
                self.owned |= self.assignment

    def abandon(self) -> None:
        """Fenced: revoke everything and join again."""
        self.epoch, self.owned, self.assignment, self.send_full = 0, frozenset(), frozenset(), True
        self.reported = None


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = tools.ManualClock()
        self.writer = tools.MemoryWriter(hold=True)
        self.sizes = {"t": self.rng.randint(1, 5), "u": self.rng.randint(1, 3)}
        self.incarnations = dict.fromkeys(("t", "u", "v"), 1)
        self.topics = TopicsView(tools.make_image(self.sizes))
        self.shard = self.load()
        self.shadow = EMPTY_STATE
        self.shadow_offset = 0
        self.clients: list[Client] = []
        self.names = 0
        self.lazy = self.rng.random() < 0.5
        # Answers that wait for the high watermark: (offset, client, the request's epoch, answer).
        self.in_flight: list[tuple[int, Client, ConsumerGroupHeartbeatResponse]] = []
        self.highest_told_epoch = 0
        self.answered: dict[str, set[int]] = {}  # by member: every epoch in an answer, also in lost ones

    # ---- the coordinator

    def load(self) -> Shard:
        shard = Shard(0, 1, self.writer)
        shard.load(self.writer.records(0))
        end_offset = len(self.writer.logs.setdefault(0, []))
        shard.finish_loading(end_offset, lambda group_id: CONFIG)
        shard.start_sessions(self.clock.now_ms, 2**31)
        return shard

    def call(self) -> Call:
        return Call(CONFIG, self.topics, 1, self.clock.now_ms, "c", "/h", "unused")

    def fail_over(self) -> None:
        """The new leader has everything below the high watermark, and possibly more."""
        log = self.writer.logs.setdefault(0, [])
        boundaries = [0]
        for _, _, batch in self.writer.batches:
            boundaries.append(boundaries[-1] + len(batch))
        high_watermark = self.writer.high_watermark(0)
        keep = self.rng.choice([b for b in boundaries if b >= high_watermark])
        del log[keep:]
        self.writer.batches = [
            batch for batch, end in zip(self.writer.batches, boundaries[1:], strict=True) if end <= keep
        ]
        for _, client, _ in self.in_flight:
            client.send_full = True  # the answer is lost
        self.in_flight.clear()
        self.shard = self.load()
        self.shadow, self.shadow_offset = EMPTY_STATE, 0

    def advance_watermark(self, *, fully: bool = False) -> None:
        end = len(self.writer.logs.get(0, []))
        old = self.writer.high_watermark(0)
        self.writer.watermarks[0] = end if fully else self.rng.randint(old, end)
        self.shard.advance(self.writer.high_watermark(0))
        for entry in list(self.in_flight):
            if entry[0] <= self.writer.high_watermark(0):
                self.in_flight.remove(entry)
                self.deliver(entry[1], entry[2])

    # ---- the members

    def alive(self) -> list[Client]:
        waiting = {id(client) for _, client, _ in self.in_flight}
        return [client for client in self.clients if not client.gone and id(client) not in waiting]

    def join(self) -> None:
        self.names += 1
        instance_id = f"i{self.rng.randint(0, 2)}" if self.rng.random() < 0.3 else None
        if instance_id and any(c.instance_id == instance_id for c in self.clients if not c.gone):
            instance_id = None
        assignor = self.rng.choice(["uniform", "range"])
        subscription = self.rng.choice(CONFIG_SUBSCRIPTIONS)
        client = Client(f"m{self.names:03}", instance_id, subscription, assignor, lazy=self.lazy)
        self.clients.append(client)

    def send(self, client: Client, *, lose_answer: bool = False) -> None:
        request = client.request()
        try:
            outcome = self.shard.apply(
                lambda state: handle_consumer_heartbeat(state, request, self.call()),
                wall_ms=self.clock.now_ms,
                now_ms=self.clock.now_ms,
            )
        except KafkaError as error:
            if not lose_answer:
                assert error.code in (
                    *FENCING,
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    ErrorCode.FENCED_INSTANCE_ID,
                ), error
                if error.code in FENCING:
                    client.abandon()
                elif error.code is ErrorCode.FENCED_INSTANCE_ID:
                    client.gone = True
            return
        assert isinstance(outcome.response, ConsumerGroupHeartbeatResponse)
        self.answered.setdefault(client.member_id, set()).add(outcome.response.member_epoch)
        if lose_answer:
            client.send_full = True
            return
        client.reported = client.owned
        if outcome.offset is None:
            self.deliver(client, outcome.response)
        else:
            self.in_flight.append((outcome.offset, client, outcome.response))

    def deliver(self, client: Client, response: ConsumerGroupHeartbeatResponse) -> None:
        if client.gone or response.member_epoch < 0:
            return
        client.on_answer(response)
        self.highest_told_epoch = max(self.highest_told_epoch, response.member_epoch)

    def leave(self, client: Client, epoch: int) -> None:
        client.gone = True
        client.owned = frozenset()
        if client.epoch <= 0:
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=client.member_id, member_epoch=epoch, instance_id=client.instance_id
        )
        try:
            self.shard.apply(
                lambda state: handle_consumer_heartbeat(state, request, self.call()),
                wall_ms=self.clock.now_ms,
                now_ms=self.clock.now_ms,
            )
        except KafkaError as error:
            assert error.code in (*FENCING, ErrorCode.FENCED_INSTANCE_ID)

    def guess(self) -> None:
        """No answer ever gave the member this epoch, so a request with it does not come from the member."""
        group = self.shard.state.consumer_group("g")
        if group is None or group.is_empty:
            return
        member_id = self.rng.choice(sorted(group.members))
        epoch = self.rng.randint(1, group.epoch + 1)
        if epoch in self.answered[member_id]:
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, topic_partitions=[]
        )
        with pytest.raises(KafkaError) as refused:
            self.shard.apply(
                lambda state: handle_consumer_heartbeat(state, request, self.call()),
                wall_ms=self.clock.now_ms,
                now_ms=self.clock.now_ms,
            )
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH

    def reconcile(self, client: Client, *, fully: bool) -> None:
        """Revoke first; add new partitions only once nothing is left to revoke."""
        to_revoke = sorted(client.owned - client.assignment)
        if to_revoke and not fully:
            client.owned -= set(self.rng.sample(to_revoke, self.rng.randint(0, len(to_revoke))))
        else:
            client.owned = client.assignment

    # ---- events

    def step(self) -> None:
        alive = self.alive()
        roll = self.rng.random()
        if not alive or (roll < 0.06 and len(alive) < 6):
            self.join()
        elif roll < 0.55:
            self.send(self.rng.choice(alive), lose_answer=self.rng.random() < 0.15)
        elif roll < 0.57:
            client = self.rng.choice(alive)
            self.send(client, lose_answer=True)
            self.send(client)
        elif roll < 0.75:
            self.reconcile(self.rng.choice(alive), fully=self.rng.random() < 0.7)
        elif roll < 0.85:
            self.advance_watermark()
        elif roll < 0.88:
            self.clock.now_ms += self.rng.choice([1_000, 5_000, 20_000])
            self.shard.expire(self.call(), now_ms=self.clock.now_ms)
        elif roll < 0.91:
            self.change_topics()
        elif roll < 0.94:
            client = self.rng.choice(alive)
            client.subscription, client.send_full = self.rng.choice(CONFIG_SUBSCRIPTIONS), True
        elif roll < 0.96:
            self.fail_over()
        elif roll < 0.98:
            client = self.rng.choice(alive)
            self.leave(client, -2 if client.instance_id and self.rng.random() < 0.7 else -1)
        else:
            self.rng.choice(alive).gone = True  # crashes without leaving
        self.guess()
        self.check()

    def change_topics(self) -> None:
        name = self.rng.choice(["t", "u", "v"])
        roll = self.rng.random()
        if name in self.sizes and name != "t" and roll < 0.3:
            del self.sizes[name]
            self.incarnations[name] += 1
        elif name in self.sizes and roll > 0.8:
            self.incarnations[name] += 1  # deleted and created again
        else:
            self.sizes[name] = self.sizes.get(name, 0) + self.rng.randint(1, 2)
        offset = self.topics.image.offset + 1
        self.topics = TopicsView(tools.make_image(self.sizes, offset, self.incarnations))

    # ---- invariants

    def check(self) -> None:
        state = self.shard.state
        log = self.writer.logs.get(0, [])
        fresh = [decode_record(key, value) for key, value in log[self.shadow_offset :]]
        self.shadow = replay_all(self.shadow, [record for record in fresh if record is not None])
        self.shadow_offset = len(log)
        assert self.shadow == state, "ReloadEqualsLive"
        group = state.consumer_group("g")
        if group is not None:
            self.check_group(group)
            self.check_owners(group)
            if len(self.in_flight) == 0:
                assert group.epoch >= self.highest_told_epoch, "NoEpochLeaks: an epoch in an answer was lost"

    def check_group(self, group: ConsumerGroup) -> None:
        targets = [p for partitions in group.targets.values() for p in partitions]
        assert len(targets) == len(set(targets)), "LegalTargetAssignment: two members target one partition"
        assert set(group.targets) <= set(group.members), (
            "LegalTargetAssignment: a target for a missing member"
        )
        if group.epoch == group.assignment_epoch and self.topics.metadata_hash(group) == group.metadata_hash:
            wanted = set()
            for member in group.members.values():
                ids = self.topics.subscribed_ids(member)
                assert {topic for topic, _ in group.target_of(member.member_id)} <= ids, (
                    "LegalTargetAssignment"
                )
                wanted |= {(t, p) for t, n in self.topics.partition_counts(ids).items() for p in range(n)}
            assert set(targets) == wanted, "LegalTargetAssignment: a partition is left out"
        wants = Counter(name for member in group.members.values() for name in member.topic_names)
        assert dict(group.subscribed_names.items()) == wants, "a subscription of a missing member counts"
        held: set[object] = set()
        for member in group.members.values():
            assert not (held & member.held), "NoDoubleClientAssignment (as the coordinator sees it)"
            held |= member.held
            assert member.epoch <= group.assignment_epoch <= group.epoch, "ValidMemberEpoch"
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                assert member.epoch < group.assignment_epoch, "ValidMemberEpoch: advanced before it revoked"
            if (
                member.epoch == group.assignment_epoch
                and member.state is not MemberState.UNREVOKED_PARTITIONS
            ):
                assert member.assigned <= group.target_of(member.member_id), "ValidMemberEpoch"
            if member.state is MemberState.STABLE and member.epoch == group.assignment_epoch:
                assert member.assigned == group.target_of(member.member_id), "ValidStableGroupState"

    def check_owners(self, group: ConsumerGroup) -> None:
        """No two members read one partition; among lazy ones, no two that may both commit."""
        owners: dict[object, str] = {}
        for client in self.clients:
            member = group.members.get(client.member_id)
            if client.gone or member is None or client.epoch == 0:
                continue
            if client.lazy and client.epoch != member.epoch:
                continue
            for partition in client.owned:
                assert partition not in owners, (
                    f"NoDoubleClientAssignment: {owners[partition]}, {client.member_id}"
                )
                owners[partition] = client.member_id

    def calm_down(self) -> None:
        """No more faults: the group must settle, and every partition must have a reader."""
        self.advance_watermark(fully=True)
        self.clock.now_ms += CONFIG.consumer_session_timeout_ms - 1
        for _ in range(CALM_ROUNDS):
            for client in self.clients:
                if not client.gone:
                    self.send(client)
                    self.advance_watermark(fully=True)
                    self.reconcile(client, fully=True)
                    self.check()
            self.clock.now_ms += 5_000
            self.shard.expire(self.call(), now_ms=self.clock.now_ms)
            self.advance_watermark(fully=True)
        living = [client for client in self.clients if not client.gone]
        group = self.shard.state.consumer_group("g")
        if not living:
            assert group is None or group.is_empty
            return
        assert group is not None
        assert group.state_name == "Stable", "EventuallyConverges"
        assert set(group.members) == {client.member_id for client in living}
        wanted = set()
        for client in living:
            assert client.owned == group.target_of(client.member_id), "EventuallyConverges"
            ids = [self.topics.topic_id(name) for name in client.subscription]
            counts = self.topics.partition_counts(i for i in ids if i is not None)
            wanted |= {(t, p) for t, n in counts.items() for p in range(n)}
        assert {p for client in living for p in client.owned} == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_group_keeps_its_invariants_and_settles(seed: int) -> None:
    world = World(seed)
    for _ in range(EVENTS):
        world.step()
    world.calm_down()


def test_same_seed_gives_the_same_log() -> None:
    logs = []
    for _ in range(2):
        world = World(7)
        for _ in range(EVENTS):
            world.step()
        logs.append(list(world.writer.logs[0]))
    assert logs[0] == logs[1]
