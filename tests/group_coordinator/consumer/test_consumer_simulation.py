"""Seeded random histories of one consumer group, with named invariants checked after every event (KIP-848).

Members join, leave, crash, restart, revoke late, subscribe to names and to regular expressions, which are
resolved some time later; answers are lost, requests repeated; topics are created, grow and are deleted; the
coordinator fails over to a log that ends at or above the high watermark. Some
members never revoke; strangers and former members commit, read and join in the name of others. Every run
ends without faults, when the group must settle. A failing run is reproduced by its seed.

It stands beside the simulation of whole nodes (ring 2), whose members are the product's own client: a few in
each group, without instance ids, of topics that stay as they are. There, nobody asks in the name of another
member or with an epoch that it was never given, and nobody keeps what it has to revoke. Planted bugs that
need it:

* requests in other names, and guessed epochs: ``any-epoch-between-is-accepted``,
  ``commit-of-a-fenced-member-is-taken``, ``strangers-commit-beside-members``;
* static members, and a full group: ``instance-id-is-taken-from-its-owner``, ``group-takes-one-too-many``;
* topics of the group that are created again: ``recreated-topic-is-not-noticed``;
* members that never revoke: ``rebalance-timeout-begins-with-each-heartbeat``,
  ``revocation-has-no-end-after-a-failover``.

The others that name this file need a lost answer or a failover between two changes; here the whole state is
compared with a replay of the log after each event.

It is long because members, strangers and the model are one world.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from random import Random

import pytest

from pykraft.group_coordinator.consumer.heartbeat import handle_consumer_heartbeat
from pykraft.group_coordinator.consumer.regex_refresh import handle_resolution
from pykraft.group_coordinator.consumer.regex_worker import resolve_now
from pykraft.group_coordinator.offsets.commit import handle_offset_commit
from pykraft.group_coordinator.offsets.fetch import find_offsets
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import ConsumerMember, MemberState
from pykraft.group_coordinator.state.result import Resolution
from pykraft.group_coordinator.state.subscription import TopicsView
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.group_coordinator import tools
from tests.group_coordinator.group_model import GroupModel, refused
from tests.group_coordinator.requests import commit_offsets, consumer_heartbeat, fetch_offsets
from tests.seeds import seeds

SEEDS = seeds(120, checked=40)
EVENTS = 250
CALM_ROUNDS = 12
SESSION_MS = 45_000
REBALANCE_MS = 15_000
CONFIG = GroupConfig(
    consumer_session_timeout_ms=SESSION_MS, consumer_heartbeat_interval_ms=5_000, consumer_max_size=5
)
Subscription = tuple[tuple[str, ...], str | None]
SUBSCRIPTIONS: tuple[Subscription, ...] = (
    (("t",), None),
    (("t", "u"), None),
    (("u", "v"), None),
    (("t", "u", "v"), None),
    ((), "[tv]"),
    ((), "u|v"),
    (("t",), "u.*"),
    ((), "nothing"),
)
FENCING = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


Partitions = frozenset[tuple[Uuid, int]]


@dataclass
class Client:
    """A consumer: ``owned`` is what it may be reading at this moment, and what it reports.

    A lazy one owns new partitions some time after they were assigned, as Java's consumer does. Until then it
    reports fewer than it was assigned, which looks to the coordinator like a revocation: if the next answer
    is lost, it may read a partition that was assigned to another. Most often its epoch may no longer commit
    then; not so if it had changed its subscription at the same time, since that moves no epoch (as in Kafka).
    """

    member_id: str
    instance_id: str | None
    subscription: Subscription
    assignor: str
    epoch: int = 0
    owned: Partitions = frozenset()
    assignment: Partitions = frozenset()
    lazy: bool = False
    reported: Partitions | None = None
    send_full: bool = True
    gone: bool = False
    keeps_revoked: bool = False
    """It heartbeats, and never revokes anything."""

    def request(self) -> ConsumerGroupHeartbeatRequest:
        full = self.send_full or self.epoch == 0
        is_told = full or self.owned != self.reported
        return consumer_heartbeat(
            self.member_id,
            self.epoch,
            self.owned if is_told else None,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            subscribed_topic_names=list(self.subscription[0]) if full else None,
            subscribed_topic_regex=self.subscription[1] or "" if full else None,
            server_assignor=self.assignor if full else None,
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


class World(GroupModel):
    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        config = replace(CONFIG, consumer_assignment_interval_ms=rng.choice((0, 1_000, 10_000)))
        super().__init__(rng, {"t": rng.randint(1, 5), "u": rng.randint(1, 3)}, config)
        self.incarnations = dict.fromkeys(("t", "u", "v"), 1)
        self.clients: list[Client] = []
        self.names = 0
        self.lazy = self.rng.random() < 0.5
        self.highest_sent_epoch = 0
        self.answered: dict[str, set[int]] = {}  # by member: every epoch in an answer, lost ones too
        # By member, since this coordinator loaded: the epochs that it had, when it was last heard of, and
        # with which epoch and since when it has had something to revoke.
        self.epochs: dict[str, list[int]] = {}
        self.heard_ms: dict[str, int] = {}
        self.unrevoked: dict[str, tuple[int, int]] = {}
        # By member: how it was last seen, and the assignment epoch at which it got each of its partitions.
        self.seen: dict[str, ConsumerMember] = {}
        self.got: dict[str, dict[tuple[Uuid, int], int]] = {}
        # What a heartbeat of this coordinator asked for, and the topics at that time.
        self.asked: tuple[Resolution, TopicsView] | None = None

    # ---- the coordinator

    def move(self) -> None:
        """To another coordinator."""
        for _, client, _ in self.in_flight:
            client.send_full = True  # the answer is lost
        has_all = self.take_over()
        self.epochs.clear()
        self.unrevoked.clear()
        self.seen.clear()
        self.asked = None
        known, self.got = self.got, {}
        group = self.shard.state.consumer_group("g")
        self.heard_ms = dict.fromkeys(group.members if group is not None else (), self.clock.now_ms)
        for member_id, member in group.members.items() if group is not None else ():
            self.seen[member_id] = member
            self.got[member_id] = dict(member.assignment_epochs)
        if has_all:
            assert self.got == known, "AssignmentEpochsSurvive"

    def expire(self) -> None:
        """Who is silent, or revokes nothing, is given up in time, and nobody else."""
        before = self.shard.state.consumer_group("g")
        self.shard.expire(self.call(), now_ms=self.clock.now_ms)
        after = self.shard.state.consumer_group("g")
        for member_id in before.members if before is not None else ():
            now_ms = self.clock.now_ms
            _, since_ms = self.unrevoked.get(member_id, (0, now_ms))
            is_due = now_ms - self.heard_ms[member_id] >= SESSION_MS or now_ms - since_ms >= REBALANCE_MS
            is_there = after is not None and member_id in after.members
            assert is_there != is_due, f"MembersAreGivenUpInTime: {member_id}"

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
        subscription = self.rng.choice(SUBSCRIPTIONS)
        client = Client(f"m{self.names:03}", instance_id, subscription, assignor, lazy=self.lazy)
        client.keeps_revoked = self.rng.random() < 0.2
        self.clients.append(client)

    def send(self, client: Client, *, lose_answer: bool = False) -> None:
        request = client.request()
        is_legal = self.is_legal(client, request)
        before = self.shard.state.consumer_group("g")
        try:
            outcome = self.apply(lambda state: handle_consumer_heartbeat(state, request, self.call()))
        except KafkaError as error:
            assert not (is_legal and error.code in FENCING), (
                f"{client.member_id} is at a legal epoch: {error}"
            )
            if not lose_answer:
                assert error.code in (
                    *FENCING,
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    ErrorCode.FENCED_INSTANCE_ID,
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                ), error
                if error.code is ErrorCode.UNRELEASED_INSTANCE_ID:
                    assert before is not None and client.member_id not in before.members, "it is its own"
                if error.code in FENCING:
                    client.abandon()
                elif error.code in (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.FENCED_INSTANCE_ID):
                    client.gone = True
            return
        assert isinstance(outcome.result.response, ConsumerGroupHeartbeatResponse)
        self.heard_ms[client.member_id] = self.clock.now_ms
        self.check_cut(before, client.member_id)
        if outcome.result.resolution is not None and self.asked is None:
            self.asked = outcome.result.resolution, self.topics
        if request.member_epoch == 0:
            self.epochs.pop(client.member_id, None)
        self.note()
        self.answered.setdefault(client.member_id, set()).add(outcome.result.response.member_epoch)
        if lose_answer:
            client.send_full = True
            return
        client.reported = client.owned
        if outcome.offset is None:
            self.deliver(client, outcome.result.response)
        else:
            self.in_flight.append((outcome.offset, client, outcome.result.response))

    def check_cut(self, before: ConsumerGroup | None, member_id: str) -> None:
        """A member that has changed its subscription is at once told to revoke all other topics."""
        group = self.shard.state.consumer_group("g")
        assert group is not None
        member = group.members[member_id]
        old = None if before is None else before.members.get(member_id)
        if old is not None and (old.topic_names, old.topic_regex) != (member.topic_names, member.topic_regex):
            ids = self.topics.subscribed_ids(member, group.resolved)
            assert {topic for topic, _ in member.assigned} <= ids, "CutAtOnce"

    def resolve_late(self) -> None:
        """The topics of the regular expressions are found, as they were when a heartbeat asked for them."""
        if self.asked is None:
            return
        (asked, topics), self.asked = self.asked, None
        found = resolve_now(asked, topics)
        for regex, resolved in found.items():
            names = tuple(sorted(name for name in topics.image.topic_ids if re.fullmatch(regex, name)))
            assert (resolved.topics, resolved.version) == (names, topics.image.offset)
        self.apply(lambda state: handle_resolution(state, asked.group_id, found, self.topics))

    def is_legal(self, client: Client, request: ConsumerGroupHeartbeatRequest) -> bool:
        """At its epoch, or at the one before with no more than it has."""
        epochs = self.epochs.get(client.member_id, [])[-2:]
        if client.epoch not in epochs or client.epoch <= 0:
            return False
        group = self.shard.state.consumer_group("g")
        member = None if group is None else group.members.get(client.member_id)
        if member is None:
            return False
        has_sent = request.topic_partitions is not None and client.owned <= member.assigned
        return client.epoch == member.epoch or has_sent

    def deliver(self, client: Client, response: ConsumerGroupHeartbeatResponse) -> None:
        if client.gone or response.member_epoch < 0:
            return
        client.on_answer(response)
        self.highest_sent_epoch = max(self.highest_sent_epoch, response.member_epoch)

    def leave(self, client: Client, epoch: int) -> None:
        client.gone = True
        client.owned = frozenset()
        if client.epoch <= 0:
            return
        request = consumer_heartbeat(client.member_id, epoch, instance_id=client.instance_id)
        try:
            self.apply(lambda state: handle_consumer_heartbeat(state, request, self.call()))
        except KafkaError as error:
            assert error.code in (*FENCING, ErrorCode.FENCED_INSTANCE_ID)
        else:
            self.epochs.pop(client.member_id, None)

    # ---- others in their name

    def send_foreign_request(self) -> None:
        """What a stranger, or a member of the past, asks for is refused."""
        group = self.shard.state.consumer_group("g")
        if group is None or group.is_empty:
            return
        member = group.members[self.rng.choice(sorted(group.members))]
        epochs = self.epochs.get(member.member_id, [])
        one = (tools.topic_id("t", self.incarnations["t"]), self.rng.randrange(self.sizes["t"]))
        held = sorted(member.pending_revocation or member.assigned)
        held = [known for known in held if self.topics.topic_name(known[0]) is not None]
        if held and self.rng.random() < 0.7:
            one = self.rng.choice(held)
        got = self.got[member.member_id].get(one)
        likely = [] if got is None else [got, got - 1]
        guessed = self.rng.randint(0, max(member.epoch, 0))
        epoch = self.rng.choice([-1, guessed, member.epoch + 1, *likely])
        is_its_own = got is not None and got <= epoch <= member.epoch
        if epoch < 0 and self.rng.random() < 0.5:
            refused(lambda: self.commit("", -1, one), ErrorCode.UNKNOWN_MEMBER_ID)
        elif is_its_own or epoch == member.epoch:
            self.commit(member.member_id, epoch, one)
        else:
            stale = ErrorCode.STALE_MEMBER_EPOCH
            refused(lambda: self.commit(member.member_id, epoch, one), stale)
        if epoch >= 0 and epoch != member.epoch:
            (asked,) = fetch_offsets(member_id=member.member_id, epoch=epoch).groups
            refused(lambda: find_offsets(self.shard.state, asked), ErrorCode.STALE_MEMBER_EPOCH)
        if member.epoch > 0:
            self.commit(member.member_id, member.epoch, one)
        if member.instance_id is not None and member.epoch > 0:
            is_full = len(group.members) >= CONFIG.consumer_max_size
            code = ErrorCode.GROUP_MAX_SIZE_REACHED if is_full else ErrorCode.UNRELEASED_INSTANCE_ID
            refused(lambda: self.beat("thief", 0, member.instance_id), code)
        fenced = ErrorCode.FENCED_MEMBER_EPOCH
        if len(epochs) > 1 and epochs[-2] != member.epoch:
            refused(lambda: self.beat(member.member_id, epochs[-2], owned=None), fenced)
        if len(epochs) > 2 and epochs[-3] not in epochs[-2:]:
            refused(lambda: self.beat(member.member_id, epochs[-3]), fenced)

    def beat(
        self,
        member_id: str,
        epoch: int,
        instance_id: str | None = None,
        owned: Partitions | None = frozenset(),
    ) -> None:
        request = consumer_heartbeat(
            member_id,
            epoch,
            owned,
            instance_id=instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=["t"],
        )
        self.apply(lambda state: handle_consumer_heartbeat(state, request, self.call()))

    def commit(self, member_id: str, epoch: int, one: tuple[Uuid, int]) -> None:
        name, index = self.topics.topic_name(one[0]), one[1]
        assert name is not None
        offsets = {(name, index): self.clock.now_ms}
        request = commit_offsets(offsets, member_id=member_id, generation_id_or_member_epoch=epoch)
        view = tools.commit_view(request, 9)
        self.apply(lambda state: handle_offset_commit(state, view, self.call(9)))

    def guess(self) -> None:
        """No answer ever gave the member this epoch, so a request with it does not come from the member."""
        group = self.shard.state.consumer_group("g")
        if group is None or group.is_empty:
            return
        member_id = self.rng.choice(sorted(group.members))
        epoch = self.rng.randint(1, group.epoch + 1)
        if epoch in self.answered[member_id]:
            return
        request = consumer_heartbeat(member_id, epoch, set())
        refused(
            lambda: self.apply(lambda state: handle_consumer_heartbeat(state, request, self.call())),
            ErrorCode.FENCED_MEMBER_EPOCH,
        )

    def reconcile(self, client: Client, *, fully: bool) -> None:
        """Revoke first; add new partitions only once nothing is left to revoke."""
        to_revoke = sorted(client.owned - client.assignment)
        if to_revoke and client.keeps_revoked:
            return
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
        elif roll < 0.86:
            self.resolve_late()
        elif roll < 0.885:
            self.clock.now_ms += self.rng.choice([1_000, 5_000, 20_000])
            self.expire()
        elif roll < 0.91:
            self.change_topics()
        elif roll < 0.94:
            client = self.rng.choice(alive)
            client.subscription, client.send_full = self.rng.choice(SUBSCRIPTIONS), True
        elif roll < 0.96:
            self.move()
        elif roll < 0.98:
            client = self.rng.choice(alive)
            self.leave(client, -2 if client.instance_id and self.rng.random() < 0.7 else -1)
        else:
            self.rng.choice(alive).gone = True  # crashes without leaving
        self.guess()
        if self.rng.random() < 0.3:
            self.send_foreign_request()
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
        self.set_topics(self.sizes, self.incarnations)

    # ---- invariants

    def check(self) -> None:
        state = self.shard.state
        assert self.replayed() == state, "ReloadEqualsLive"
        group = state.consumer_group("g")
        if group is not None:
            self.note()
            self.check_group(group)
            self.check_owners(group)
            if len(self.in_flight) == 0:
                assert group.epoch >= self.highest_sent_epoch, "NoEpochLeaks: an epoch in an answer was lost"

    def note(self) -> None:
        """What a member may come with, and since when it has something to revoke."""
        group = self.shard.state.consumer_group("g")
        if group is None:
            return
        for member_id, member in group.members.items():
            self.heard_ms.setdefault(member_id, self.clock.now_ms)
            epochs = self.epochs.setdefault(member_id, [])
            old = self.seen.get(member_id)
            is_step = old is None or old.to_assignment_value() != member.to_assignment_value()
            if member.epoch > 0 and (is_step or not epochs):
                epochs.append(member.epoch)
            self.note_partitions(group, old, member)
            self.seen[member_id] = member
            if member.state is not MemberState.UNREVOKED_PARTITIONS:
                self.unrevoked.pop(member_id, None)
            elif self.unrevoked.get(member_id, (-1, 0))[0] != member.epoch:
                self.unrevoked[member_id] = member.epoch, self.clock.now_ms
        for member_id in (self.seen.keys() | self.epochs.keys()) - set(group.members):
            for notes in (self.epochs, self.unrevoked, self.seen, self.got):
                notes.pop(member_id, None)

    def note_partitions(
        self, group: ConsumerGroup, old: ConsumerMember | None, member: ConsumerMember
    ) -> None:
        """A partition counts from the assignment with which a member got it; after a pause, from 0."""
        if member.epoch == -2:
            self.got[member.member_id] = dict.fromkeys(member.held, 0)
            return
        if old is None and member.instance_id is not None:
            away = (one for one in self.seen.values() if one.instance_id == member.instance_id)
            old = next((one for one in away if one.epoch == -2), None)
        known = {} if old is None else self.got[old.member_id]
        at = group.assignment_epoch
        was_held = frozenset() if old is None else old.assigned | (old.pending_revocation - member.assigned)
        self.got[member.member_id] = {
            one: known[one] if one in known and one in was_held else at for one in member.held
        }

    def check_group(self, group: ConsumerGroup) -> None:
        assert len(group.members) <= CONFIG.consumer_max_size, "GroupIsNotTooLarge"
        targets = [p for partitions in group.targets.values() for p in partitions]
        assert len(targets) == len(set(targets)), "LegalTargetAssignment: two members target one partition"
        assert set(group.targets) <= set(group.members), (
            "LegalTargetAssignment: a target for a missing member"
        )
        assert set(group.resolved) <= set(group.subscribed_regexes), "UnusedRegexesAreForgotten"
        is_known = all(regex in group.resolved for regex in group.subscribed_regexes)
        is_settled = group.epoch == group.assignment_epoch and is_known
        if is_settled and self.topics.metadata_hash(group) == group.metadata_hash:
            wanted = set()
            for member in group.members.values():
                ids = self.topics.subscribed_ids(member, group.resolved)
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
            assert self.got[member.member_id] == member.assignment_epochs, "AssignmentEpochs"
            ids = self.topics.subscribed_ids(member, group.resolved)
            is_cut = all(topic_id not in ids for topic_id, _ in member.pending_revocation)
            if member.state is MemberState.UNREVOKED_PARTITIONS and is_settled and not is_cut:
                assert member.epoch < group.assignment_epoch, "ValidMemberEpoch: advanced before it revoked"
            if (
                member.epoch == group.assignment_epoch
                and member.state is not MemberState.UNREVOKED_PARTITIONS
            ):
                assert member.assigned <= group.target_of(member.member_id), "ValidMemberEpoch"
            if member.state is MemberState.STABLE and member.epoch == group.assignment_epoch and is_settled:
                assert member.assigned == group.target_of(member.member_id), "ValidStableGroupState"

    def check_owners(self, group: ConsumerGroup) -> None:
        """No two members read one partition; among lazy ones, no two to whom it is assigned."""
        owners: dict[object, str] = {}
        for client in self.clients:
            member = group.members.get(client.member_id)
            if client.gone or member is None or client.epoch == 0:
                continue
            if client.lazy and client.epoch != member.epoch:
                continue
            for partition in client.owned & member.held if client.lazy else client.owned:
                assert partition not in owners, (
                    f"NoDoubleClientAssignment: {owners[partition]}, {client.member_id}"
                )
                owners[partition] = client.member_id

    def calm_down(self) -> None:
        """No more faults: the group must settle, and every partition must have a reader."""
        self.advance_watermark(fully=True)
        for client in self.clients:
            client.keeps_revoked = False
        self.clock.now_ms += SESSION_MS - 1
        for _ in range(CALM_ROUNDS):
            for client in self.clients:
                if not client.gone:
                    self.send(client)
                    self.resolve_late()
                    self.advance_watermark(fully=True)
                    self.reconcile(client, fully=True)
                    self.check()
            self.clock.now_ms += 5_000
            self.expire()
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
            names, regex = client.subscription
            found = [name for name in self.sizes if name in names or (regex and re.fullmatch(regex, name))]
            ids = [self.topics.topic_id(name) for name in found]
            counts = self.topics.partition_counts(i for i in ids if i is not None)
            wanted |= {(t, p) for t, n in counts.items() for p in range(n)}
        assert {p for client in living for p in client.owned} == wanted


@pytest.mark.parametrize("seed", SEEDS)
def test_group_keeps_its_invariants_and_becomes_stable(seed: int) -> None:
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
