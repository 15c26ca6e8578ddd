"""Seeded random histories of one group that changes from the classic to the consumer protocol and back.

Members are honest clients: classic ones that stop reading before they join (eager) or that keep what they own
(cooperative), and ones of the consumer protocol; some are static. They join, leave, crash, fall silent, and
restart with the other protocol, as in a rolling upgrade or downgrade, under every migration policy. Answers
wait for the high watermark, or are lost; appends are refused; the coordinator fails over to a log that ends
at or above the high watermark; topics are created and grow; an admin removes members.

After each event a replay of the log agrees with memory, and no partition is read by two clients. Each run
ends without faults: then every partition of the topics subscribed to must soon have one reader, whatever mix
of protocols remains. A failing run is reproduced by its seed.

The other simulations know one protocol each; no group of ring 2 ever changes its own. A group must be at rest
before a bug in the end of a downgrade shows, so the runs end with two more changes.

It is long because both protocols, their clients and the model are one world.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from pykraft.group_coordinator.classic.join import handle_join_group
from pykraft.group_coordinator.classic.sync import handle_heartbeat, handle_leave_group, handle_sync_group
from pykraft.group_coordinator.consumer.heartbeat import handle_consumer_heartbeat
from pykraft.group_coordinator.replay import replay_all
from pykraft.group_coordinator.shard import GroupOutcome
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicState
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.consumer_group import ConsumerGroup
from pykraft.group_coordinator.state.member import MemberState
from pykraft.group_coordinator.state.result import AnyResult, Call, Parked, ParkKind
from pykraft.group_coordinator.state.shard_state import EMPTY_STATE, ShardState
from pykraft.kafka_protocol.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatResponse,
    JoinGroupResponse,
    SyncGroupResponse,
)
from tests.group_coordinator import tools
from tests.group_coordinator.group_model import GroupModel, decoded
from tests.group_coordinator.requests import (
    consumer_heartbeat,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from tests.seeds import seeds

SEEDS = seeds(100, checked=30)
EVENTS = 150
CALM_ROUNDS = 20
ROUND_MS = 1_500
SESSION_MS = 9_000
CLASSIC_SESSION_MS = 6_000
REBALANCE_MS = 7_000
CONFIG = GroupConfig(
    consumer_session_timeout_ms=SESSION_MS,
    consumer_heartbeat_interval_ms=3_000,
    initial_rebalance_delay_ms=500,
)
POLICIES = (
    "bidirectional",
    "bidirectional",
    "bidirectional",
    "bidirectional",
    "upgrade",
    "downgrade",
    "disabled",
)
SUBSCRIPTIONS = (("t",), ("t", "u"), ("t", "u"))
JOIN_VERSIONS = (
    3,
    5,
    9,
)  # static members have the last: only then does a group find its leader again (KIP-814)

Partitions = frozenset[tuple[str, int]]
NOTHING: Partitions = frozenset()


@dataclass(eq=False)
class Client:
    """A process. ``owned``: what it reads at this moment. ``number``: its generation or member epoch.

    ``phase``: "join", "sync" or "beat", what it asks for next. An answer to any but its last request comes
    too late. ``told``: the highest number it has heard since it was last unknown.
    """

    name: str
    is_classic: bool
    cooperative: bool
    instance_id: str | None
    topics: tuple[str, ...]
    version: int
    member_id: str = ""
    number: int = -1
    told: int = -1
    phase: str = "join"
    owned: Partitions = NOTHING
    assignment: Partitions = NOTHING
    members: tuple[tuple[str, bytes], ...] = ()
    seen_sizes: dict[str, int] | None = None
    skips_assignment: bool = False
    waits: bool = False
    request_id: int = 0
    gone: bool = False
    silent_until_ms: int = 0
    is_late: bool = False
    """Static, and did not join in time: the group went on without waiting for it to stop."""

    def drop(self, *, forget_id: bool) -> None:
        self.owned = self.assignment = NOTHING
        self.phase, self.number, self.told, self.is_late = "join", -1, -1, False
        self.seen_sizes = None
        if forget_id and self.is_classic:
            self.member_id = ""

    def metadata(self) -> bytes:
        owned = [SubscriptionTopicPartition(topic=t, partitions=p) for t, p in by_name(self.owned).items()]
        return encode_subscription(
            ConsumerProtocolSubscription(
                topics=list(self.topics), owned_partitions=owned, generation_id=self.number
            ),
            2 if self.cooperative else 0,
        )


class World(GroupModel):
    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        config = replace(
            CONFIG,
            consumer_migration_policy=rng.choice(POLICIES),
            consumer_assignment_interval_ms=rng.choice((0, 2_000)),
            consumer_max_size=rng.choice((4, 100)),
            max_size=rng.choice((4, 100)),
        )
        self.cooperative = rng.random() < 0.5
        super().__init__(rng, {"t": rng.randint(1, 4)}, config)
        self.clients: list[Client] = []
        self.names = 0
        self.parked: dict[tuple[ParkKind, str], tuple[Client, int]] = {}
        self.heard_ms: dict[str, int] = {}
        self.content_ms: dict[str, int] = {}  # when a member was last told that it has nothing to do
        self.is_calm = False
        self.to_classic = self.rng.random() < 0.5  # where the fleet is going

    # ---- the coordinator

    def new_call(self, version: int = 1) -> Call:
        self.names += 1
        return self.call(version, new_member_id=f"id-{self.names:04}")

    @property
    def any_group(self) -> ConsumerGroup | ClassicGroup | None:
        return self.shard.state.groups.get("g")

    def apply(self, decide: Callable[[ShardState], AnyResult]) -> GroupOutcome:
        """With an append that fails now and then, which must change nothing."""
        before, timers, group = self.shard.state, len(self.shard.deadlines), self.any_group
        is_refused = not self.is_calm and self.rng.random() < 0.03
        self.writer.refuse = ErrorCode.NOT_ENOUGH_REPLICAS if is_refused else None
        try:
            outcome = super().apply(decide)
            self.check_policy(group)
            return outcome
        except KafkaError:
            assert self.shard.state is before and len(self.shard.deadlines) == timers, "ErrorsChangeNothing"
            raise
        finally:
            self.writer.refuse = None

    def check_policy(self, before: ConsumerGroup | ClassicGroup | None) -> None:
        """A group of members who stay has changed its protocol only if it may."""
        if before is not None and self.any_group is not None and type(before) is not type(self.any_group):
            was_classic = isinstance(before, ClassicGroup)
            may = self.config.may_upgrade if was_classic else self.config.may_downgrade
            shared = {member.member_id for member in before.iter_members()} & self.members()
            assert may or not shared, "PolicyIsKept"

    def answer(self, outcome: GroupOutcome) -> None:
        """Send the answers to other requests that an outcome brings."""
        for completion in outcome.result.completions:
            found = self.parked.pop((completion.parked.kind, completion.parked.member_id), None)
            if found is not None:
                self.reply(*found, completion.response, outcome.offset)

    def reply(self, client: Client, request_id: int, response: Any, offset: int | None) -> None:
        if offset is None:
            self.deliver(client, request_id, response)
        else:
            self.in_flight.append((offset, client, request_id, response))

    def move(self) -> None:
        """To another coordinator."""
        self.take_over()
        self.parked.clear()
        self.heard_ms = dict.fromkeys(self.members(), self.clock.now_ms)
        self.content_ms = dict(self.heard_ms)
        for client in self.clients:
            client.waits = False

    def members(self) -> set[str]:
        group = self.any_group
        return set() if group is None else {member.member_id for member in group.iter_members()}

    def wait(self, delay_ms: int) -> None:
        self.clock.now_ms += delay_ms
        before = self.any_group
        for outcome in self.shard.expire(self.new_call(), now_ms=self.clock.now_ms):
            self.answer(outcome)
        after, now_ms = self.any_group, self.clock.now_ms
        self.check_policy(before)
        if isinstance(before, ConsumerGroup):
            for member in before.iter_members():
                session_ms = SESSION_MS if member.classic is None else member.classic.session_timeout_ms
                is_there = member.member_id in self.members()
                heard_ms = self.heard_ms.get(member.member_id, now_ms)
                content_ms = self.content_ms.get(member.member_id, now_ms)
                is_silent = now_ms - heard_ms >= session_ms
                if isinstance(after, ConsumerGroup):  # a downgrade begins new sessions
                    assert not (is_there and is_silent), f"SilentMembersExpire: {member.member_id}"
                is_fine = now_ms - content_ms < min(session_ms, REBALANCE_MS)
                is_fine &= member.classic is not None or member.state is not MemberState.UNREVOKED_PARTITIONS
                assert is_there or not is_fine, f"LivingMembersAreKept: {member.member_id}"
        if isinstance(before, ClassicGroup) and isinstance(after, ClassicGroup):
            went_on = after.generation != before.generation
            for member_id, old in before.members.items():
                if went_on and not old.awaiting_join:
                    self.owner_of(member_id).is_late = True

    def owner_of(self, member_id: str) -> Client:
        """The process with a member id; a new one if it never heard its id."""
        found = [one for one in self.clients if one.member_id == member_id]
        return found[0] if found else Client("", True, False, None, (), 5)

    # ---- requests

    def act(self, client: Client) -> None:
        if client.waits or client.gone or self.clock.now_ms < client.silent_until_ms:
            return
        if not client.is_classic:
            self.beat_consumer(client)
        elif client.phase == "join":
            self.join(client)
        elif client.phase == "sync":
            self.sync(client)
        else:
            self.beat_classic(client)

    def send(
        self, client: Client, decide: Callable[[ShardState], AnyResult], kind: ParkKind | None = None
    ) -> None:
        client.request_id += 1
        client.waits = True
        group = self.any_group
        before: list[Any] = [] if group is None else list(group.iter_members())
        try:
            outcome = self.apply(decide)
        except KafkaError as error:
            self.on_error(client, error.code)
            return
        for member in before:
            is_itself = member.member_id == client.member_id or member.instance_id == client.instance_id
            is_itself = is_itself and member.instance_id == client.instance_id
            assert is_itself or member.member_id in self.members(), "NobodyIsForgotten"
        response = outcome.result.response
        if isinstance(response, Parked):
            assert kind is response.kind
            client.member_id = response.member_id
            self.parked[kind, response.member_id] = client, client.request_id
        self.answer(outcome)
        if not isinstance(response, Parked):
            self.reply(client, client.request_id, response, outcome.offset)
        if isinstance(group, ClassicGroup) and isinstance(self.any_group, ConsumerGroup):
            self.heard_ms = dict.fromkeys(self.members(), self.clock.now_ms)
            self.content_ms = dict(self.heard_ms)
        code = getattr(response, "error_code", 0)
        member_id = getattr(response, "member_id", "") or client.member_id
        if not code or (code == ErrorCode.REBALANCE_IN_PROGRESS and kind is None):
            self.heard_ms[member_id] = self.clock.now_ms
        if not code:
            self.content_ms[member_id] = self.clock.now_ms

    def join(self, client: Client) -> None:
        if not client.cooperative:
            client.owned = NOTHING
        request = join_group(
            client.member_id,
            {"cooperative-sticky" if client.cooperative else "range": client.metadata()},
            group_instance_id=client.instance_id,
            session_timeout_ms=CLASSIC_SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        call = self.new_call(client.version)
        self.send(client, lambda state: handle_join_group(state, request, call), ParkKind.JOIN)

    def sync(self, client: Client) -> None:
        shares = {} if client.skips_assignment else self.assign(client)
        request = sync_group(client.member_id, client.number, shares, group_instance_id=client.instance_id)
        call = self.new_call(4)
        self.send(client, lambda state: handle_sync_group(state, request, call), ParkKind.SYNC)

    def assign(self, client: Client) -> dict[str, bytes]:
        """The leader's assignment. A cooperative one gives nobody what another still owns."""
        wants = {member_id: decode_subscription(data)[0] for member_id, data in client.members}
        owners: dict[tuple[str, int], str] = {}
        for member_id in sorted(wants, key=lambda one: wants[one].generation_id):
            for topic in wants[member_id].owned_partitions:
                owners.update({(topic.topic, index): member_id for index in topic.partitions})
        shares: dict[str, set[tuple[str, int]]] = {member_id: set() for member_id in wants}
        for name, size in (client.seen_sizes or {}).items():
            subscribers = sorted(one for one in wants if name in wants[one].topics)
            for index in range(size if subscribers else 0):
                taker = subscribers[index % len(subscribers)]
                if owners.get((name, index), taker) == taker:
                    shares[taker].add((name, index))
        return {
            member_id: encode_assignment(
                ConsumerProtocolAssignment(
                    assigned_partitions=[
                        AssignmentTopicPartition(topic=t, partitions=p) for t, p in by_name(share).items()
                    ]
                ),
                0,
            )
            for member_id, share in shares.items()
        }

    def beat_classic(self, client: Client) -> None:
        if client.seen_sizes not in (None, self.sizes):
            client.phase = "join"  # the leader notices that topics have changed
            self.join(client)
            return
        request = heartbeat(client.member_id, client.number, client.instance_id)
        call = self.new_call()
        self.send(client, lambda state: handle_heartbeat(state, request, call))

    def beat_consumer(self, client: Client) -> None:
        if client.phase == "beat" and (self.is_calm or self.rng.random() < 0.6):
            client.owned &= client.assignment  # it may take some time to revoke
        joins = client.phase == "join"
        owned = {
            (topic_id, index) for name, index in client.owned if (topic_id := self.topics.topic_id(name))
        }
        request = consumer_heartbeat(
            client.member_id,
            0 if joins else client.number,
            owned,
            instance_id=client.instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=list(client.topics),
        )
        call = self.new_call()
        self.send(client, lambda state: handle_consumer_heartbeat(state, request, call))

    def leave(self, client: Client, *, for_good: bool = True) -> None:
        """A process ends, and says so; a classic static one does not."""
        client.gone = True
        self.parked = {key: one for key, one in self.parked.items() if one[0] is not client}
        if client.is_classic and client.instance_id is None and client.member_id:
            self.remove([client])
        elif not client.is_classic and (for_good or client.phase == "beat"):
            epoch = -1 if for_good else -2
            request = consumer_heartbeat(client.member_id, epoch, instance_id=client.instance_id)
            call = self.new_call()
            self.try_to(lambda state: handle_consumer_heartbeat(state, request, call))

    def remove(self, clients: Iterable[Client]) -> None:
        request = leave_group(*(one.member_id for one in clients))
        call = self.new_call(5)
        self.try_to(lambda state: handle_leave_group(state, request, call))

    def try_to(self, decide: Callable[[ShardState], AnyResult]) -> None:
        try:
            self.answer(self.apply(decide))
        except KafkaError as error:
            assert error.code in (*GONE, *RETRIED, ErrorCode.FENCED_INSTANCE_ID), error

    # ---- answers

    def deliver(self, client: Client, request_id: int, response: Any) -> None:
        if client.gone or not client.waits or request_id != client.request_id:
            return
        if self.clock.now_ms < client.silent_until_ms:
            client.waits = False
            return
        if response.error_code:
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = response.member_id
            self.on_error(client, response.error_code)
            return
        client.waits = False
        match response:
            case JoinGroupResponse():
                client.member_id, client.number = response.member_id, response.generation_id
                client.members = tuple((one.member_id, one.metadata) for one in response.members)
                is_leader = response.leader == response.member_id
                client.seen_sizes = dict(self.sizes) if is_leader else None
                client.skips_assignment = response.skip_assignment
                client.phase = "sync"
            case SyncGroupResponse():
                self.hears(client, client.number)
                decoded = decode_assignment(response.assignment)[0] if response.assignment else None
                named = decoded.assigned_partitions if decoded else []
                assigned = frozenset((one.topic, index) for one in named for index in one.partitions)
                revoked = client.owned - assigned
                client.owned, client.is_late = assigned, False
                client.phase = "join" if client.cooperative and revoked else "beat"
            case ConsumerGroupHeartbeatResponse():
                self.hears(client, response.member_epoch)
                client.number, client.phase = response.member_epoch, "beat"
                if response.assignment is not None:
                    ids = tools.assigned(response)
                    client.assignment = frozenset((str(self.topics.topic_name(one)), p) for one, p in ids)
                    client.owned |= client.assignment

    def hears(self, client: Client, number: int) -> None:
        assert number >= client.told, f"EpochsDoNotDecrease: {client.name} heard {client.told}, then {number}"
        client.told = number

    def on_error(self, client: Client, code: int) -> None:
        client.waits = False
        if code in GONE:
            client.drop(forget_id=code == ErrorCode.UNKNOWN_MEMBER_ID)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            client.phase = "join"
        elif code in (ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.FENCED_INSTANCE_ID):
            client.drop(forget_id=True)
            client.gone = True
        else:
            assert code in RETRIED, code

    # ---- events

    def start(self, is_classic: bool, instance_id: str | None, topics: tuple[str, ...]) -> Client:
        self.names += 1
        cooperative = is_classic and self.cooperative
        version = self.rng.choice(JOIN_VERSIONS) if instance_id is None else JOIN_VERSIONS[-1]
        client = Client(f"m{self.names}", is_classic, cooperative, instance_id, topics, version)
        client.member_id = "" if is_classic else client.name
        self.clients.append(client)
        return client

    def start_any(self) -> None:
        instance_id = f"i{self.rng.randint(0, 2)}" if self.rng.random() < 0.4 else None
        if any(one.instance_id == instance_id and not one.gone for one in self.clients):
            instance_id = None
        self.start(self.rolls_to_classic(), instance_id, self.rng.choice(SUBSCRIPTIONS))

    def rolls_to_classic(self) -> bool:
        return self.to_classic if self.rng.random() < 0.9 else not self.to_classic

    def restart(self, client: Client) -> None:
        """A step of a rolling upgrade or downgrade: the process ends, and another takes its place."""
        if self.rng.random() < 0.9:
            self.leave(client, for_good=client.instance_id is None)
        client.gone = True
        self.act(self.start(self.rolls_to_classic(), client.instance_id, client.topics))

    def change_at_once(self, alive: list[Client]) -> None:
        """Whatever its members are at, the group changes its protocol."""
        if isinstance(self.any_group, ClassicGroup) and len(alive) < 6:
            client = self.start(is_classic=False, instance_id=None, topics=SUBSCRIPTIONS[-1])
            self.act(client)
            self.advance_watermark(fully=self.is_calm)
        elif any(one.is_classic for one in alive):
            for client in alive:
                if not client.is_classic:
                    self.leave(client)

    def step(self) -> None:
        alive = [one for one in self.clients if not one.gone]
        behind = [one for one in alive if one.is_classic is not self.to_classic]
        before = self.any_group
        roll = self.rng.random()
        if not alive or (roll < 0.06 and len(alive) < 4):
            self.start_any()
        elif roll < 0.54:
            for client in self.rng.sample(alive, self.rng.randint(1, len(alive))):
                self.act(client)
        elif roll < 0.68:
            self.advance_watermark(fully=self.is_calm)
        elif roll < 0.78:
            self.wait(self.rng.choice((200, 600, 1_000, 3_000)))
        elif roll < 0.81:
            self.rng.choice(alive).waits = False  # the answer is lost; it asks again
        elif roll < 0.87:
            self.restart(self.rng.choice(behind or alive))
        elif roll < 0.90:
            self.change_at_once(alive)
        elif roll < 0.93:
            self.to_classic = not self.to_classic
        elif roll < 0.945:
            self.leave(self.rng.choice(alive))
        elif roll < 0.95:
            self.rng.choice(alive).gone = True
        elif roll < 0.955:
            wait_ms = self.rng.choice((3_000, 8_000, 20_000))
            self.rng.choice(alive).silent_until_ms = self.clock.now_ms + wait_ms
        elif roll < 0.96:
            self.remove(self.rng.sample(alive, self.rng.randint(1, len(alive))))
        elif roll < 0.98:
            self.grow()
        else:
            self.move()
        self.check()
        if before is not None and self.any_group is not None and type(before) is not type(self.any_group):
            self.to_classic = self.rng.random() < 0.5
            if self.rng.random() < 0.3:
                self.move()
                self.check()

    def grow(self) -> None:
        name = self.rng.choice(("t", "u"))
        self.sizes[name] = self.sizes.get(name, 0) + self.rng.randint(1, 2)
        self.set_topics(self.sizes)

    # ---- invariants

    def check(self) -> None:
        self.check_readers()
        log = self.writer.logs[0]
        self.agrees(self.replayed(), "ReplayEqualsMemory")
        if self.rng.random() < 0.05:
            last = {key: place for place, (key, _) in enumerate(log)}
            compacted = decoded(log[place] for place in sorted(last.values()))
            self.agrees(replay_all(EMPTY_STATE, compacted), "CompactedEqualsMemory")
        group = self.any_group
        for (_, member_id), (client, request_id) in self.parked.items():
            if client.waits and client.request_id == request_id and not client.gone:
                is_there = isinstance(group, ClassicGroup) and member_id in group.members
                assert is_there, f"WhoeverWaitsIsAnswered: {client.name}"
        if isinstance(group, ConsumerGroup):
            held = [one for member in group.iter_members() for one in member.held]
            assert len(held) == len(set(held)), "NoPartitionIsHeldTwice"
            classic = sum(member.classic is not None for member in group.iter_members())
            assert group.classic_members == classic
            assert not classic or group.is_empty or classic < len(group.members) or self.may_stay(group)

    def may_stay(self, group: ConsumerGroup) -> bool:
        return not self.config.may_downgrade or len(group.members) > self.config.max_size

    def agrees(self, replayed: ShardState, name: str) -> None:
        """A rebalance of a classic group is not in the log: it tells of the generation before."""
        logged, group = replayed.groups.get("g"), self.any_group
        if isinstance(group, ClassicGroup) and group.state is not ClassicState.EMPTY:
            if group.state is ClassicState.STABLE:
                assert isinstance(logged, ClassicGroup), name
                assert logged.to_value() == group.to_value(), name
            else:
                assert logged is None or isinstance(logged, ClassicGroup), name
        elif isinstance(group, ConsumerGroup) or isinstance(logged, ConsumerGroup):
            assert logged == group, name

    def check_readers(self) -> None:
        """No two read a partition, but for those whom the coordinator gave up, who cannot know."""
        readers: dict[tuple[str, int], str] = {}
        known = self.members()
        for client in self.clients:
            if client.gone or client.is_late or client.member_id not in known:
                continue
            for one in client.owned:
                assert one not in readers, f"OneReader: {one} is read by {readers[one]} and {client.name}"
                readers[one] = client.name

    def end(self) -> None:
        """No more faults, then two last changes of the protocol, perhaps with failovers: it settles."""
        self.is_calm = True
        for client in self.clients:
            client.silent_until_ms, client.waits = 0, False
        self.parked.clear()
        self.go_on(CALM_ROUNDS)
        self.check_settled()
        for rounds in (self.rng.randint(0, 3), CALM_ROUNDS):
            self.change_at_once([one for one in self.clients if not one.gone])
            if self.rng.random() < 0.4:
                self.move()
            self.go_on(rounds)
        self.check_settled()

    def go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.rng.sample(self.clients, len(self.clients)):
                self.act(client)
                self.advance_watermark(fully=self.is_calm)
                self.check()
            self.wait(ROUND_MS)
            self.advance_watermark(fully=self.is_calm)

    def check_settled(self) -> None:
        """Every partition that somebody subscribes to has one reader."""
        living = [one for one in self.clients if not one.gone]
        outside = [one for one in living if one.member_id not in self.members()]
        assert all(not one.is_classic for one in outside), "ClassicMembersAreAdmitted"
        assert not outside or isinstance(self.any_group, ClassicGroup), "ConsumerMembersAreAdmitted"
        assert not outside or not self.config.may_upgrade, "ConsumerMembersAreAdmitted"
        inside = [one for one in living if one not in outside]
        read = sorted(partition for one in inside for partition in one.owned)
        names = {name for one in inside for name in one.topics if name in self.sizes}
        wanted = sorted((name, index) for name in names for index in range(self.sizes[name]))
        assert read == wanted, "EventuallyEachPartitionHasOneReader"


GONE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
RETRIED = (
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
)


def by_name(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    named: dict[str, list[int]] = {}
    for name, index in sorted(partitions):
        named.setdefault(name, []).append(index)
    return named


@pytest.mark.parametrize("seed", SEEDS)
def test_group_that_changes_its_protocol_loses_and_doubles_nothing(seed: int) -> None:
    world = World(seed)
    for _ in range(EVENTS):
        world.step()
    world.end()
