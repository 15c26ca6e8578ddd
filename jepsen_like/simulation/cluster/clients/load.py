"""A workload of the fault runs in virtual time, and the checks of its history.

The seed decides which workload it is, and how much of it. It runs in a process on a machine of its own, as
clients of the brokers' listeners. Losses beyond the guarantee (:mod:`.checks.data_watch`) are recorded in the
history.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.jepsen_like.faults.checkers.history import Report, examine
from pykraft.jepsen_like.faults.clients.interface import OperationError
from pykraft.jepsen_like.faults.clients.own_admin import OwnAdmin
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Event, MemoryHistory
from pykraft.jepsen_like.faults.workloads.append import AppendConfig, AppendWorkload
from pykraft.jepsen_like.faults.workloads.changes import ChangesConfig, ChangesWorkload
from pykraft.jepsen_like.faults.workloads.group_seat import TOPICS as TOPICS_OF_GROUPS
from pykraft.jepsen_like.faults.workloads.groups import GroupsWorkload
from pykraft.jepsen_like.faults.workloads.moves import MovesConfig, MovesWorkload
from pykraft.jepsen_like.faults.workloads.registers import RegistersConfig, RegistersWorkload
from pykraft.jepsen_like.faults.workloads.transaction_config import TransactionsConfig
from pykraft.jepsen_like.faults.workloads.transactions import TransactionsWorkload
from pykraft.jepsen_like.faults.workloads.workload import Limits, Workload
from pykraft.jepsen_like.simulation.cluster.checks.data_watch import MIN_INSYNC_REPLICAS
from pykraft.jepsen_like.simulation.cluster.checks.follower_reads import RACKS
from pykraft.jepsen_like.simulation.cluster.checks.transaction_checks import NO_HANGING, find_hanging
from pykraft.jepsen_like.simulation.cluster.clients import brief, crowd
from pykraft.jepsen_like.simulation.cluster.options import TRANSACTIONS, has_transactions, is_guaranteed
from pykraft.jepsen_like.simulation.cluster.settings import GROUPS
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.runtime.simulated.virtual_loop import VirtualClock

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.world import World

LIMITS: Final = Limits(answers_s=60.0, read_s=30.0, settle_s=10.0)

KINDS: Final = ("append", "append", "moves", "changes", "groups")
REGISTERS: Final = "registers"
WORKLOADS: Final = (*sorted(set(KINDS)), TRANSACTIONS, REGISTERS)
"""What a schedule may be asked to run."""

APPEND: Final = AppendConfig().topic

_RETRY_S: Final = 0.5

Lost = dict[str, set[tuple[int, str]]]
"""For each partition that lost records: their offsets and values."""


def draw_workload(seed: int, asked: str | None = None) -> tuple[str, random.Random]:
    """Which of :data:`WORKLOADS` a schedule runs, and the generator for everything else that it draws."""
    rng = random.Random(f"load {seed}")
    drawn = rng.choice(KINDS)
    if has_transactions(seed, asked):
        return TRANSACTIONS, rng
    return drawn if asked is None else asked, rng


class Load:
    """``kind`` and the configuration come from the seed. The checkers examine ``history``."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._client = world.start_client("load")
        self.history = _History(world)
        self.kind, self._rng = draw_workload(world.seed, world.workload)
        self._starting: asyncio.Task[Workload] | None = None
        self._exempted: dict[str, int] = {}
        """For each partition the length of the history when its records were last exempted."""
        self._healed_at = 0
        world.checker.data.on_exempted = self._exempt

    def start(self) -> None:
        """Create the topics and begin; the cluster may still be coming up."""
        self._starting = self._client.run(self._start())

    async def _start(self) -> Workload:
        world = self._world
        wall_ms = VirtualClock(world.loop).wall_ms
        racks = RACKS if world.options.reads_followers else ("",)
        clients = OwnClients(AsyncioNetwork(), world.bootstrap, self._rng, wall_ms, racks)
        if world.workload is None:
            self._client.run(brief.fill(world, clients))
        if world.options.crowd:
            self._client.run(crowd.gather(world, clients))
        workload = self._make(clients)
        admin = clients.admin("setup")
        for topic in workload.topics:
            factor = min(topic.replication_factor, len(self._world.brokers))
            while not await _is_there(admin, topic.name):
                try:
                    await admin.create_topic(topic.name, topic.partitions, factor, topic.configs)
                except OperationError:
                    await asyncio.sleep(_RETRY_S)
        if self.kind in ("groups", TRANSACTIONS, REGISTERS):
            await self._make_offsets_topic(admin)
        await admin.close()
        workload.start()
        return workload

    async def _make_offsets_topic(self, admin: OwnAdmin) -> None:
        """Brokers create the offsets topic on request; committed offsets are guaranteed as records are.

        It is created after all topics that groups subscribe to, so every coordinator knows those.
        """
        place = TopicPartition(next(iter(TOPICS_OF_GROUPS)), 0)
        while True:
            try:
                await admin.committed("setup", [place])
                await admin.alter_config(OFFSETS_TOPIC, "min.insync.replicas", str(MIN_INSYNC_REPLICAS))
            except OperationError:
                await asyncio.sleep(_RETRY_S)
            else:
                return

    def _make(self, clients: OwnClients) -> Workload:
        rng, seed = self._rng, self._rng.randrange(1 << 30)
        deletes_s = self._world.options.delete_every_s
        append = AppendConfig(
            partitions=rng.choice((2, 4)),
            sends_per_s=rng.choice((20, 60, 120)),
            weak_sends_per_s=rng.choice((2, 10)),
            abandon_every_s=rng.choice((5.0, 25.0)),
            pipelined_producers=rng.choice((0, 1, 3)),
            delete_every_s=deletes_s,
        )
        if deletes_s is not None:
            # Of a log whose beginning is deleted a broker does not know which producers are new: the first
            # batch of one may be overtaken by its second, as in Kafka.
            append = replace(append, pipelined_producers=0)
        if self.kind == "changes":
            changes = ChangesConfig(append, admins=2, change_every_s=rng.choice((1.0, 3.0)))
            return ChangesWorkload(clients, changes, seed, self.history)
        if self.kind == "moves":
            return MovesWorkload(clients, MovesConfig(append), seed, self.history)
        if self.kind == "groups":
            groups = replace(
                GROUPS,
                groups=tuple(rng.sample(GROUPS.groups, 2)),
                members=rng.choice((2, 3)),
                sends_per_s=rng.choice((20, 60)),
                change_every_s=rng.choice((6.0, 15.0)),
                rest_s=rng.choice((0.05, 0.2)),
            )
            return GroupsWorkload(clients, groups, seed, self.history)
        if self.kind == REGISTERS:
            registers = RegistersConfig(committers=4, groups=2, rest_s=rng.choice((0.1, 0.3)))
            return RegistersWorkload(clients, registers, seed, self.history)
        if self.kind == TRANSACTIONS:
            return TransactionsWorkload(clients, TransactionsConfig(), seed, self.history)
        return AppendWorkload(clients, append, seed, self.history)

    # --- the end ----------------------------------------------------------------------------------------

    def finish(self) -> asyncio.Task[None]:
        """All faults have ended: let the workload finish."""
        self._healed_at = len(self.history.events)
        for key in self._others_exempted():
            self._record_exempted(key)
        return self._client.run(self._finish())

    async def _finish(self) -> None:
        """A workload that could not start under faults starts now: a healed cluster creates its topics."""
        if self._starting is not None:
            workload = await self._starting
            await workload.finish(LIMITS)

    @property
    def hangs_after_a_loss(self) -> bool:
        """Whether the end of a transaction was lost in a partition whose records are not guaranteed, so that
        consumers wait for it until an operator aborts it (``pykraft transactions find-hanging``).
        """
        is_exempted = self.kind == TRANSACTIONS and bool(self._exempted)
        return is_exempted and any(find_hanging(self._world.brokers, ()))

    def check_history(self) -> Counter[str]:
        """:class:`InvariantViolation` for the first finding; else how often each event was recorded."""
        if self.kind == TRANSACTIONS:
            return self._check_transactions()
        lost = self._world.checker.data.find_lost(APPEND)
        for event in self.history.events:
            if event.op == "final" and event.key in lost:
                lost[event.key].difference_update(event.records or ())
        lost = {key: records for key, records in lost.items() if records}
        missed = self._world.checker.data.find_missed(APPEND)
        events = (
            event
            for position, event in enumerate(self.history.events)
            if not self._is_noticed_late(position, event, lost, missed)
            and not self._is_undone(position, event)
            and not self._is_found_by_former_leader(position, event)
        )
        repeated = self._world.checker.data.find_repeated(APPEND)
        remaining = _without_deleted_copies(_without_lost(events, lost), repeated)
        report = self._examine(list(remaining))
        done = Counter(f"{event.op} {event.type}" for event in self.history.events)
        done["partitions of the workload once not guaranteed"] = len(self._exempted)
        done["partitions of the workload that lost records"] = len(lost)
        done["records lost that were not guaranteed"] = sum(len(records) for records in lost.values())
        done["registers that were not decided"] = report.undecided
        return done

    def _examine(self, events: Sequence[Event]) -> Report:
        report = examine(events, MIN_INSYNC_REPLICAS)
        if self._world.story is not None:
            self._world.story.report = report
        for finding in report.findings:
            raise InvariantViolation(f"{self.kind}: {finding.kind}", str(finding))
        return report

    def _check_transactions(self) -> Counter[str]:
        """Once records are not guaranteed, transactions are not whole either."""
        done = Counter(f"{event.op} {event.type}" for event in self.history.events)
        if self._exempted:
            done["schedules whose transactions were not guaranteed"] = 1
            return done
        for hanging in find_hanging(self._world.brokers, ()):
            raise InvariantViolation(NO_HANGING, hanging)
        done["cycles of concurrent writes (allowed)"] = self._examine(self.history.events).write_cycles
        return done

    def _is_noticed_late(self, position: int, event: Event, lost: Lost, missed: dict[str, int]) -> bool:
        """A loss that was exempted may be noticed late: by a reader when it next learns of a leader, by a
        producer whose sequence continues lost records when it next writes to that partition."""
        if event.op == "producer-fatal":
            exempted_at = (self._exempted[key] for key in (*lost, *self._others_exempted()))
            return self._opened_at(event.process) < max(exempted_at, default=0)
        if event.key in self._others_exempted():
            return event.type == "info" and event.op in ("no-progress", "poll")
        if event.key in missed and _is_beyond(event, missed[event.key]):
            return True
        if event.key not in lost:
            return False
        if event.op == "offset-for-time":
            return position < self._healed_at
        first_lost = min(offset for offset, _ in lost[event.key])
        return event.type == "info" and (_is_beyond(event, first_lost) or event.op == "no-progress")

    def _others_exempted(self) -> list[str]:
        """Partitions whose history is exempted as a whole, until all faults have ended."""
        return [key for key in self._exempted if key.rpartition("-")[0] != APPEND]

    def _is_undone(self, position: int, event: Event) -> bool:
        """A log start may go back when no replica is left that is sure to have it."""
        is_deletion = event.op == "delete-records" and event.type == "ok"
        return is_deletion and position < self._exempted.get(event.key or "", 0)

    def _is_found_by_former_leader(self, position: int, event: Event) -> bool:
        """A former leader that is cut off from the controller looks up times in its own log and finds nothing
        newer, as in Kafka; with processes that are killed or paused this never happens."""
        return event.op == "offset-for-time" and event.offset is None and position < self._healed_at

    def _opened_at(self, producer: str) -> int:
        return next(
            position
            for position, event in enumerate(self.history.events)
            if event.op == "producer" and event.process == producer
        )

    def _exempt(self, topic: str, index: int) -> None:
        """A client may notice the loss later, so the exemption lasts until all faults have ended."""
        if not is_guaranteed(topic):
            return  # not of the workload
        if topic == OFFSETS_TOPIC:
            self._world.checker.exempt_groups(index)
        key = f"{topic}-{index}"
        self._exempted[key] = len(self.history.events)
        if topic != APPEND:
            self._record_exempted(key)

    def _record_exempted(self, key: str) -> None:
        self.history.record("info", "disks", "exempted", key=key)


def _is_beyond(event: Event, offset: int) -> bool:
    """Whether a reader lost a position above ``offset``."""
    is_position = event.op == "poll" and event.type == "info"
    return is_position and event.offset is not None and event.offset > offset


def _without_lost(events: Iterable[Event], lost: Lost) -> Iterator[Event]:
    """Lost records that were not guaranteed count as attempts to send them.

    A reader that was given one reads another log than the final one, until it is assigned again: of what it
    is given from that record on nothing remains, even where both logs hold the same.
    """
    astray: set[tuple[str, str]] = set()
    for event in events:
        key = event.key or ""
        of_partition, reader = lost.get(key, set()), (event.process, key)
        if event.op == "assign":
            astray = {one for one in astray if one[0] != event.process}
        if event.type != "ok" or not of_partition:
            yield event
        elif event.op == "send" and (event.offset, event.value) in of_partition:
            yield structs.replace(event, type="info", offset=None)
        elif event.op == "poll":
            given = [tuple(one) for one in event.records or ()]
            first = next((n for n, one in enumerate(given) if one in of_partition), len(given))
            kept = [] if reader in astray else list(event.records or ())[:first]
            if first < len(given):
                astray.add(reader)
            yield structs.replace(event, records=kept)
        else:
            yield event


def _without_deleted_copies(events: Iterable[Event], repeated: Lost) -> Iterator[Event]:
    """Keep second copies of deleted records: no leader knew their producer, so they were written again."""
    for event in events:
        offset_of = {value: offset for offset, value in repeated.get(event.key or "", ())}
        if offset_of and event.op in ("poll", "final") and event.type == "ok":
            records = [one for one in event.records or () if one[0] >= offset_of.get(one[1], 0)]
            yield structs.replace(event, records=records)
        else:
            yield event


class _History(MemoryHistory):
    """Checks the coordinator of a group at the time by which the group must be stable, and deletions."""

    def __init__(self, world: World) -> None:
        super().__init__(lambda: int(world.loop.now_s * 1_000_000))
        self._world = world
        self._exempted_before = 0
        """How many partitions had lost records when the deletion that is under way was asked for."""

    def _add(self, event: Event) -> None:
        super()._add(event)
        self._world.transaction_faults.step(event)
        if event.op == "delete-records":
            self._note_deletion(event)
        if event.op == "settled":
            within_ms = (event.detail or {})["within_us"] / 1000
            self._world.later(within_ms, self._look, event.key)
            self._world.checker.groups.calm(event.key or "", 3 * GROUPS.heartbeat_interval_ms / 1000)

    def _note_deletion(self, event: Event) -> None:
        data = self._world.checker.data
        if event.type == "invoke":
            self._exempted_before = data.exempted
        elif event.offset is not None and data.exempted == self._exempted_before:
            topic, _, index = (event.key or "").rpartition("-")
            with suppress(InvariantViolation):  # the simulation knows
                data.deletions.answered(topic, int(index), event.offset)

    def _look(self, group_id: str) -> None:
        with suppress(InvariantViolation):  # the simulation knows
            self._world.checker.groups.check_stable(self._world.brokers, group_id)


async def _is_there(admin: OwnAdmin, topic: str) -> bool:
    try:
        return await admin.partition_count(topic) is not None
    except OperationError:
        return False
