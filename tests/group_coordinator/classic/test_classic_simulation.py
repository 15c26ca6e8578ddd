"""Seeded random histories of one classic group: no two members of a generation share work, and it settles.

Committed offsets are kept until the retention time is over, counted from the later of the commit and the end
of the last member, and are then removed. A member that waits is answered, a member that sends heartbeats is
kept, and requests of an earlier generation change nothing.

It stands beside the simulation of whole nodes (ring 2), in which one schedule of five runs groups, with the
product's own client for members. There, offsets never reach their retention time, no member has an instance
id, none is removed by an admin, and none commits before it has an assignment. Planted bugs that need that:
``offsets-expire-from-the-last-member``, ``time-of-a-group-is-lost-with-its-coordinator``,
``commit-amid-a-classic-rebalance``. The others that name this file are of generations, and of rebalances that
break off while members wait, as they do here every few steps.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pytest

from pykraft.group_coordinator.classic.join import handle_join_group
from pykraft.group_coordinator.classic.sync import (
    handle_heartbeat,
    handle_leave_group,
    handle_sync_group,
)
from pykraft.group_coordinator.housekeeping import sweep_expired_groups, sweep_expired_offsets
from pykraft.group_coordinator.offsets.commit import handle_offset_commit
from pykraft.group_coordinator.shard import GroupOutcome
from pykraft.group_coordinator.state.classic_group import ClassicGroup, ClassicState
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.group_coordinator.state.result import (
    AnyResult,
    Call,
    Parked,
    ParkKind,
)
from pykraft.group_coordinator.state.shard_state import ShardState
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    HeartbeatResponse,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupResponse,
)
from tests.group_coordinator import tools
from tests.group_coordinator.group_model import refused
from tests.group_coordinator.requests import (
    commit_offsets,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from tests.narrowing import as_type

RETENTION_MS = 5_000
SESSION_MS = 10_000
CONFIG = GroupConfig(initial_rebalance_delay_ms=1_000, offsets_retention_ms=RETENTION_MS)
PARTITIONS = 12


@dataclass(eq=False)
class Client:
    """``state``: out, joining (parked), joined, syncing (parked), stable."""

    name: str
    instance_id: str | None
    member_id: str = ""
    state: str = "out"
    generation: int = -1
    owned: frozenset[int] = frozenset()
    members: tuple[str, ...] = ()
    gone: bool = False
    is_quiet: bool = False
    """Commits are its only sign of life."""
    is_replaced: bool = False
    """Another process has its instance id, and it may not have heard of that."""


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.lab = tools.ShardLab({"t": PARTITIONS}, CONFIG)
        self.clients: list[Client] = []
        self.ids = 0
        self.synced_generation = 0
        self.committed: dict[int, tuple[int, int]] = {}  # partition: what was committed last, and when
        self.had_members_ms = 0  # as any later coordinator knows
        self.is_calm = False
        self.heard_ms: dict[str, int] = {}  # by member id

    def call(self) -> Call:
        self.ids += 1
        return self.lab.call(5, new_member_id=f"id-{self.ids:04}")

    def apply(self, client: Client, decide: Callable[[ShardState], AnyResult], kind: ParkKind | None) -> None:
        try:
            outcome = self.lab.apply(decide)
        except KafkaError as error:
            self.on_error(client, error.code)
            return
        if isinstance(outcome.result.response, Parked):
            client.state = "joining" if kind is ParkKind.JOIN else "syncing"
            client.member_id = outcome.result.response.member_id
        self.heard_ms[client.member_id] = self.lab.clock.now_ms
        self.complete(outcome)
        if not isinstance(outcome.result.response, Parked):
            self.on_response(client, kind, outcome.result.response)

    def complete(self, outcome: GroupOutcome) -> None:
        for completion in outcome.result.completions:
            waiting = "joining" if completion.parked.kind is ParkKind.JOIN else "syncing"
            for client in self.clients:
                if client.member_id == completion.parked.member_id and client.state == waiting:
                    self.on_response(client, completion.parked.kind, completion.response)

    def on_error(self, client: Client, code: int) -> None:
        assert code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.FENCED_INSTANCE_ID,
        ), code
        if code == ErrorCode.FENCED_INSTANCE_ID:
            client.gone = True
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            client.member_id = ""
        client.state, client.owned = "out", frozenset()

    def on_response(self, client: Client, kind: ParkKind | None, response: object) -> None:
        if client.gone or response is None:
            return
        assert isinstance(
            response, JoinGroupResponse | SyncGroupResponse | HeartbeatResponse | LeaveGroupResponse
        )
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = as_type(response, JoinGroupResponse).member_id
        elif response.error_code:
            self.on_error(client, response.error_code)
        elif kind is ParkKind.JOIN:
            joined = as_type(response, JoinGroupResponse)
            client.member_id, client.generation = joined.member_id, joined.generation_id
            client.members = tuple(member.member_id for member in joined.members)
            client.state = "joined"
        elif kind is ParkKind.SYNC:
            assert client.generation >= self.synced_generation, "GenerationMonotone, failovers included"
            self.synced_generation = client.generation
            client.state, client.owned = "stable", frozenset(as_type(response, SyncGroupResponse).assignment)

    @property
    def generation(self) -> int:
        group = self.lab.shard.state.classic_group("g")
        return 0 if group is None else int(group.generation)

    # ---- what members do

    def act(self, client: Client) -> None:
        match client.state:
            case "out":
                self.join(client)
            case "joined":
                self.sync(client)
            case "stable" if not self.is_calm and self.rng.random() < 0.05:
                self.join_again(client)
            case "stable" if (client.is_quiet and not self.is_calm) or self.rng.random() < 0.3:
                self.commit(client)
            case "stable":
                self.heartbeat(client)

    def join(self, client: Client) -> None:
        client.owned = frozenset()
        request = join_group(
            client.member_id,
            {"range": client.name.encode()},
            group_instance_id=client.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=20_000,
        )
        call = self.call()
        self.apply(client, lambda state: handle_join_group(state, request, call), ParkKind.JOIN)

    def join_again(self, client: Client) -> None:
        """As a leader does to have topics assigned that have grown."""
        group, generation = self.lab.shard.state.classic_group("g"), client.generation
        is_leader = (
            group is not None
            and group.state is ClassicState.STABLE
            and group.leader_id == client.member_id
            and group.generation == generation
        )
        self.join(client)
        group = self.lab.shard.state.classic_group("g")
        if is_leader:
            assert group is not None
            assert group.generation > generation or client.state == "joining", "LeaderMayRebalance"

    def sync(self, client: Client) -> None:
        shares = {
            member: bytes(range(index, PARTITIONS, len(client.members)))
            for index, member in enumerate(client.members)
        }
        request = sync_group(
            client.member_id, client.generation, shares, group_instance_id=client.instance_id
        )
        call = replace(self.call(), version=4)
        self.apply(client, lambda state: handle_sync_group(state, request, call), ParkKind.SYNC)

    def heartbeat(self, client: Client) -> None:
        request = heartbeat(client.member_id, client.generation, client.instance_id)
        call = self.call()
        self.apply(client, lambda state: handle_heartbeat(state, request, call), None)

    def commit(self, client: Client) -> None:
        try:
            self.commit_as(client.member_id, client.instance_id, client.generation, client.owned)
        except KafkaError as error:
            self.on_error(client, error.code)
            return
        assert client.generation == self.generation, "a member of an earlier generation commits"
        self.heard_ms[client.member_id] = self.lab.clock.now_ms

    def commit_as(
        self, member_id: str, instance_id: str | None, generation: int, partitions: frozenset[int]
    ) -> None:
        offset = self.ids
        request = commit_offsets(
            {("t", partition): offset for partition in sorted(partitions)},
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        call = self.call()
        view = tools.commit_view(request, 9)
        self.lab.apply(lambda state: handle_offset_commit(state, view, call))
        self.committed |= dict.fromkeys(partitions, (offset, self.lab.clock.now_ms))

    def leave(self, client: Client) -> None:
        client.gone, client.owned = True, frozenset()
        identity = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance_id)
        request = leave_group(identity)
        call = self.call()
        self.apply(client, lambda state: handle_leave_group(state, request, call), None)

    def send_foreign_request(self) -> None:
        """What comes from an earlier generation, or is committed before there is work, is refused."""
        group = self.lab.shard.state.classic_group("g")
        if group is None or group.is_empty:
            return
        member = self.rng.choice(sorted(group.iter_members(), key=lambda one: one.member_id))
        earlier = heartbeat(member.member_id, group.generation - 1, member.instance_id)
        call = self.call()
        refused(
            lambda: self.lab.apply(lambda state: handle_heartbeat(state, earlier, call)),
            ErrorCode.ILLEGAL_GENERATION,
        )
        if group.state is ClassicState.COMPLETING_REBALANCE:
            refused(
                lambda: self.commit_as(
                    member.member_id, member.instance_id, group.generation, frozenset([0])
                ),
                ErrorCode.REBALANCE_IN_PROGRESS,
            )

    def remove(self, client: Client) -> None:
        """An admin does, and the client does not know."""
        identity = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance_id)
        request = leave_group(identity)
        call = self.call()
        self.complete(self.lab.apply(lambda state: handle_leave_group(state, request, call)))

    def restart_static(self, client: Client) -> None:
        """A process takes the place of one with its instance id, which may still wait for an answer."""
        client.is_replaced = True
        again = Client(f"c{len(self.clients)}", client.instance_id)
        self.clients.append(again)
        self.join(again)

    # ---- events

    def step(self) -> None:
        alive = [client for client in self.clients if not client.gone]
        roll = self.rng.random()
        if not alive or (roll < 0.08 and len(alive) < 5):
            self.start_client()
        elif roll < 0.75:
            self.act(self.rng.choice(alive))
        elif roll < 0.85:
            self.pass_time(self.rng.choice([500, 1_000, 3_000]))
        elif roll < 0.88:
            client = self.rng.choice(alive)
            if client.state in ("joining", "syncing"):
                client.state = "out"  # gave up waiting and sends the request again
        elif roll < 0.92:
            self.rng.choice(alive).gone = True
        elif roll < 0.95:
            self.leave(self.rng.choice(alive))
        elif roll < 0.97:
            self.fail_over()
        elif roll < 0.98:
            self.leave_alone(alive)
        elif roll < 0.99:
            self.remove(self.rng.choice(alive))
        elif statics := [one for one in alive if one.instance_id is not None]:
            self.restart_static(self.rng.choice(statics))
        if self.rng.random() < 0.3:
            self.send_foreign_request()
        self.check()

    def leave_alone(self, alive: list[Client]) -> None:
        """The group has no members for some time."""
        for client in alive:
            self.leave(client)
        for _ in range(self.rng.randrange(4)):
            self.pass_time(2_000)
            self.check_offsets()
            group = self.lab.shard.state.classic_group("g")
            if self.rng.random() < 0.3 and (group is None or group.is_empty):
                self.commit_as("", None, -1, frozenset([self.rng.randrange(PARTITIONS)]))

    def start_client(self) -> None:
        instance_id = f"i{self.rng.randint(0, 3)}" if self.rng.random() < 0.4 else None
        if any(c.instance_id == instance_id and not c.gone for c in self.clients):
            instance_id = None
        self.clients.append(Client(f"c{len(self.clients)}", instance_id))
        self.clients[-1].is_quiet = self.rng.random() < 0.3

    def pass_time(self, delay_ms: int) -> None:
        before = self.lab.shard.state.classic_group("g")
        for outcome in self.lab.pass_time(delay_ms):
            self.complete(outcome)
        self.check_removals(before)
        for sweep in (
            sweep_expired_offsets(self.lab.shard.state),
            sweep_expired_groups(self.lab.shard.state),
        ):
            while not sweep.is_finished:
                call = self.call()
                self.lab.apply(partial(sweep.build_slice, call=call))
                sweep.slice_is_written()
        if self.lab.shard.state.classic_group("g") is None:
            # The group was removed: generations restart, and no client that still believes in one is a
            # member.
            self.synced_generation = 0
            for client in self.clients:
                client.owned = frozenset()

    def check_removals(self, before: ClassicGroup | None) -> None:
        """Of a group at rest only those go that were silent."""
        if before is None or before.state is not ClassicState.STABLE:
            return
        after = self.lab.shard.state.classic_group("g")
        kept = {member.member_id for member in after.iter_members()} if after is not None else set()
        for member in before.iter_members():
            silent_ms = self.lab.clock.now_ms - self.heard_ms.get(member.member_id, 0)
            assert member.member_id in kept or silent_ms >= SESSION_MS, f"LivingMembersAreKept: {member}"

    def fail_over(self) -> None:
        self.lab.fail_over()
        for client in self.clients:
            if client.state in ("joining", "syncing"):
                client.state = "out"

    def check(self) -> None:
        owners: dict[tuple[int, int], str] = {}
        for client in self.clients:
            if client.gone or client.is_replaced or client.state != "stable":
                continue
            for partition in client.owned:
                key = (client.generation, partition)
                assert key not in owners, f"two members of one generation share work: {key}"
                owners[key] = client.name
        group = self.lab.shard.state.classic_group("g")
        known = {member.member_id for member in group.iter_members()} if group is not None else set()
        for client in self.clients:
            waits = not client.gone and client.state in ("joining", "syncing")
            assert not waits or client.member_id in known, f"WhoeverWaitsIsAnswered: {client.name}"
        if group is not None and group.state is ClassicState.EMPTY and group.generation:
            assert group.generation > self.synced_generation, "an empty group is a generation of its own"
            emptied = self.lab.load().state.classic_group("g")
            assert emptied is not None and emptied.is_empty, "ReloadKeepsGeneration"
            assert emptied.generation == group.generation, "ReloadKeepsGeneration"
            assert emptied.state_timestamp_ms == group.state_timestamp_ms, "ReloadKeepsWhenItEmptied"
        if group is not None and group.state is ClassicState.STABLE:
            reloaded = self.lab.load().state.classic_group("g")
            assert reloaded is not None
            assert reloaded.generation == group.generation, "ReloadKeepsGeneration"
            kept = {m.member_id: m.assignment for m in reloaded.iter_members()}
            assert kept == {m.member_id: m.assignment for m in group.iter_members()}, "ReloadKeepsAssignments"
        self.check_offsets()
        if group is not None and group.state is ClassicState.STABLE:
            self.had_members_ms = self.lab.clock.now_ms

    def check_offsets(self) -> None:
        now_ms = self.lab.clock.now_ms
        for partition, (offset, committed_ms) in list(self.committed.items()):
            value = self.lab.shard.state.committed("g", "t", partition)
            if value is None:
                kept_ms = max(committed_ms, self.had_members_ms) + RETENTION_MS
                assert now_ms >= kept_ms, f"CommittedOffsetsAreKept: {partition}"
                del self.committed[partition]
            else:
                assert value.offset == offset, f"CommittedOffsetsAreKept: {partition}"

    def calm_down(self) -> None:
        self.is_calm = True
        for _ in range(80):
            for client in self.clients:
                if not client.gone:
                    self.act(client)
                    self.check()
            self.pass_time(1_000)
        living = [client for client in self.clients if not client.gone]
        if not living:
            return
        assert {client.state for client in living} == {"stable"}, "EventuallyStable"
        assert {client.generation for client in living} == {self.generation}, "EventuallyStable"
        work = [partition for client in living for partition in client.owned]
        assert sorted(work) == list(range(PARTITIONS)), "EverythingIsAssignedOnce"

    def end(self) -> None:
        """The last members leave; their offsets are kept for the retention time, and no longer."""
        for client in self.clients:
            client.gone = True
        for _ in range((SESSION_MS + 20_000 + 3 * RETENTION_MS) // 1_000):
            self.pass_time(1_000)
            self.check_offsets()
        assert not self.lab.shard.state.groups, "EverythingIsForgotten"


@pytest.mark.parametrize("seed", range(80))
def test_classic_group_keeps_its_invariants_and_becomes_stable(seed: int) -> None:
    world = World(seed)
    for _ in range(250):
        world.step()
    world.calm_down()
    world.end()
