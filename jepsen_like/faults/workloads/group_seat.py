"""One seat in a group: members occupy it one after another, read, commit what they have read, and leave.

The history has the partitions that a member believes it owns, from the notification until the member gives
them up. Every commit carries a tag of its own, so that a committed offset that is read names the commit it
comes from. A member commits only its read positions, so that no record below a committed offset may have been
skipped. The members of a static seat use its instance id one after another, and subscribe to the same topics:
a coordinator of the classic protocol does not look at the subscription of a static member that comes back.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pykraft.jepsen_like.faults.clients.interface import (
    Commit,
    Member,
    MemberConfig,
    OperationError,
    PositionLostError,
)
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import EventType, Recorder
from pykraft.jepsen_like.faults.workloads.workload import Tasks, record_polled
from pykraft.kafka_client.metadata import TopicPartition

POLL_S = 0.2
ABANDON_SHARE = 0.3
RESUBSCRIBE_SHARE = 0.4

TOPICS = {"groups-a": 4, "groups-b": 3}
GROUPS = (
    MemberConfig("", "classic-eager", "classic", tuple(TOPICS), "range"),
    MemberConfig("", "classic-cooperative", "classic", tuple(TOPICS), "cooperative-sticky"),
    MemberConfig("", "consumer", "consumer", tuple(TOPICS)),
)
STATIC_GROUPS = (
    MemberConfig("", "static-classic", "classic", tuple(TOPICS), "range"),
    MemberConfig("", "static-consumer", "consumer", tuple(TOPICS)),
)


@dataclass(frozen=True, slots=True)
class GroupsConfig:
    """``members`` in each group; ``change_every_s`` is the mean time between two changes of one seat, and
    ``rest_s`` the time between two polls. ``static_groups``: groups like the others, of static members.
    ``cooperative_adds``: a member with cooperative assignment never gives up a topic that it has subscribed
    to, since librdkafka does not join again when none is left of those that it reads.

    The cluster is configured with the same timeouts for consumer groups.
    """

    groups: tuple[MemberConfig, ...] = GROUPS
    static_groups: tuple[MemberConfig, ...] = ()
    cooperative_adds: bool = False
    members: int = 3
    sends_per_s: int = 500
    change_every_s: float = 15.0
    commit_every_s: float = 1.0
    look_every_s: float = 0.5
    rest_s: float = 0.0
    session_timeout_ms: int = 12_000
    heartbeat_interval_ms: int = 1_000

    @property
    def all_groups(self) -> tuple[MemberConfig, ...]:
        return (*self.groups, *self.static_groups)


class Belief:
    """The partitions that one member believes it owns, as its client reports them, and its read positions."""

    def __init__(self, history: Recorder, name: str) -> None:
        self._history = history
        self._name = name
        self._touched: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int | None] = {}

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._record("assigned", partitions)
        self.positions.update(dict.fromkeys(partitions))

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._give_up("revoked", partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._give_up("lost", partitions)

    def heartbeat(self, sent_ms: int, member_id: str, member_epoch: int) -> None:
        ago_us = int((asyncio.get_running_loop().time() - sent_ms / 1000) * 1e6)
        detail = {"member_id": member_id, "epoch": member_epoch}
        now_us = self._history.now_us()
        self._history.record("ok", self._name, "heartbeat", time_us=now_us - ago_us, detail=detail)

    def poll_begins(self) -> None:
        """Drop changes of ownership from before this moment."""
        self._touched.clear()

    def advance(self, ends: Mapping[TopicPartition, int]) -> None:
        """A poll has read up to these offsets; partitions that were revoked during it are left out."""
        if touched := sorted(self._touched & ends.keys()):
            self._record("rewind", touched)
        for partition, end in ends.items():
            if partition in self.positions and partition not in touched:
                self.positions[partition] = end

    def lost_position(self, partition: TopicPartition) -> None:
        """The partition is read from its committed offset on."""
        self._record("rewind", [partition])
        if partition in self.positions:
            self.positions[partition] = None

    def _give_up(self, op: str, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            self.positions.pop(partition, None)
        self._record(op, partitions)

    def _record(self, op: str, partitions: Sequence[TopicPartition]) -> None:
        self._touched.update(partitions)
        detail = {"partitions": [str(partition) for partition in partitions]}
        self._history.record("info", self._name, op, detail=detail)


class Seat:
    """``calm`` is set once the member of this seat will no longer change, because ``be_calm`` was set.

    ``instance_id``: None if its members are dynamic.
    """

    def __init__(
        self,
        clients: OwnClients,
        config: GroupsConfig,
        group: MemberConfig,
        number: int,
        rng: random.Random,
        history: Recorder,
        be_calm: asyncio.Event,
        *,
        is_static: bool,
    ) -> None:
        self._clients = clients
        self._config = config
        self._group = group
        self.number = number
        self._rng = rng
        self._history = history
        self._be_calm = be_calm
        self._restarts = asyncio.Event()
        self.group = group.group
        self.instance_id = f"{group.group}-{number}" if is_static else None
        self.name = ""
        self.topics: tuple[str, ...] = ()
        self.calm = asyncio.Event()

    async def run(self, tasks: Tasks) -> None:
        life = 0
        while not tasks.stopping.is_set():
            self.name = f"{self.group}-{self.number}.{life}"
            await self._live(tasks)
            life += 1

    def restart(self) -> None:
        """The member leaves as one that comes back, and comes back at once, with the same subscription."""
        self._restarts.set()

    async def _live(self, tasks: Tasks) -> None:
        loop, rng, belief = asyncio.get_running_loop(), self._rng, Belief(self._history, self.name)
        self._choose_topics()
        self._restarts.clear()
        member = self._clients.member(
            replace(
                self._group,
                name=self.name,
                topics=self.topics,
                instance_id=self.instance_id,
                session_timeout_ms=self._config.session_timeout_ms,
                heartbeat_interval_ms=self._config.heartbeat_interval_ms,
            ),
            belief,
        )
        commit_at_s = loop.time() + self._config.commit_every_s
        change_at_s = loop.time() + self._until_change_s()
        committed: dict[TopicPartition, int] = {}
        number = 0
        while not tasks.stopping.is_set() and not self._restarts.is_set():
            if self._be_calm.is_set():
                if not self.calm.is_set():
                    committed.clear()  # a commit may be lost where it was not guaranteed
                self.calm.set()
            elif loop.time() > change_at_s:
                if self.instance_id is not None or rng.random() > RESUBSCRIBE_SHARE:
                    break
                self._choose_topics(self._kept_topics())
                await member.subscribe(self.topics)
                change_at_s = loop.time() + self._until_change_s()
            if not await self._poll(member, belief):
                break
            if loop.time() > commit_at_s:
                number += 1
                await self._commit(member, belief, committed, f"{self.name}#{number}")
                commit_at_s = loop.time() + self._config.commit_every_s
            await asyncio.sleep(self._config.rest_s)
        is_abrupt = not (tasks.stopping.is_set() or self._restarts.is_set())
        await self._go(member, abandon=is_abrupt and rng.random() < ABANDON_SHARE)

    def _kept_topics(self) -> tuple[str, ...]:
        is_cooperative = self._group.assignor == "cooperative-sticky"
        return self.topics if is_cooperative and self._config.cooperative_adds else ()

    def _choose_topics(self, kept: tuple[str, ...] = ()) -> None:
        topics = self._group.topics
        if self.instance_id is None or not self.topics:
            drawn = topics if self._rng.random() < 0.7 else (self._rng.choice(topics),)
            self.topics = tuple(sorted({*drawn, *kept}))
        detail: dict[str, object] = {
            "group": self.group,
            "protocol": self._group.protocol,
            "topics": self.topics,
            "session_timeout_ms": self._config.session_timeout_ms,
        }
        if self.instance_id is not None:
            detail["instance_id"] = self.instance_id
        self._history.record("info", self.name, "member", detail=detail)

    def _until_change_s(self) -> float:
        return self._rng.uniform(0.4, 1.6) * self._config.change_every_s

    async def _poll(self, member: Member, belief: Belief) -> bool:
        """Poll once; False: the membership has ended."""
        asked_us = self._history.now_us()
        belief.poll_begins()
        try:
            polled = await member.poll(POLL_S)
        except PositionLostError as lost:
            place, offset = str(lost.partition), lost.offset
            self._history.record("info", self.name, "poll", key=place, offset=offset, error=str(lost))
            belief.lost_position(lost.partition)
            await asyncio.sleep(POLL_S)
            return True
        except OperationError as error:
            self._history.record("info", self.name, "poll-failed", error=str(error))
            await asyncio.sleep(POLL_S)
            return False
        record_polled(self._history, self.name, "poll", asked_us, polled)
        belief.advance({place: found.records[-1][0] + 1 for place, found in polled.items()})
        return True

    async def _commit(
        self, member: Member, belief: Belief, committed: dict[TopicPartition, int], tag: str
    ) -> None:
        """Commit the positions of all owned partitions, if any has changed."""
        commits = {
            place: Commit(position, tag)
            for place, position in belief.positions.items()
            if position is not None and committed.get(place) != position
        }
        if not commits:
            return
        self._record_commit("invoke", commits)
        try:
            await member.commit(commits)
        except OperationError as error:
            self._record_commit(error.outcome, commits, str(error))
            return
        self._record_commit("ok", commits)
        committed.update({place: commit.offset for place, commit in commits.items()})

    def _record_commit(
        self, kind: EventType, commits: Mapping[TopicPartition, Commit], error: str | None = None
    ) -> None:
        for place, commit in commits.items():
            self._history.record(
                kind,
                self.name,
                "commit",
                key=f"{self.group}/{place}",
                value=commit.tag,
                offset=commit.offset,
                error=error,
            )

    async def _go(self, member: Member, abandon: bool) -> None:
        """The member's ownership ends here, before its client sends any request."""
        self._history.record("info", self.name, "member-gone", detail={"abandoned": abandon})
        if abandon:
            await member.abandon()
        else:
            await member.close()
