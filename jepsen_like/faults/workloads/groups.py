"""The groups workload: members of both protocols come and go, read, and commit what they have read.

Each group has seats, and each seat has one member after another (``group_seat``). One more client reads
committed offsets. At the end all changes stop: each group must converge; each static member is restarted and
must find what it had; and every group must read and commit everything.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pykraft.jepsen_like.faults.clients.interface import Commit, OperationError
from pykraft.jepsen_like.faults.clients.own_admin import OwnAdmin
from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Recorder
from pykraft.jepsen_like.faults.workloads.append import AppendConfig, AppendWorkload
from pykraft.jepsen_like.faults.workloads.group_seat import TOPICS, GroupsConfig, Seat
from pykraft.jepsen_like.faults.workloads.workload import (
    Limits,
    Played,
    Tasks,
    TopicSpec,
    branch,
    record_no_progress,
)
from pykraft.kafka_client.metadata import TopicPartition

POLL_S = 0.2
CLOSE_S = 30.0


class GroupsWorkload(Played[GroupsConfig]):
    """A :class:`~pykraft.jepsen_like.faults.workloads.workload.Workload`; it also writes the records."""

    def __init__(self, clients: OwnClients, config: GroupsConfig, seed: int, history: Recorder) -> None:
        super().__init__(clients, config, seed, history)
        self._groups = [
            replace(one, group=self._own(one.group), topics=tuple(map(self._own, one.topics)))
            for one in config.all_groups
        ]
        self._feeds = [self._feed(topic, count) for topic, count in TOPICS.items()]
        are_static = [False] * len(config.groups) + [True] * len(config.static_groups)
        are_static = [False] * len(config.groups) + [True] * len(config.static_groups)
        self._looking = Tasks()
        self._living = Tasks()
        self._calm = asyncio.Event()
        self._seats = [
            Seat(clients, config, group, number, branch(self._rng), history, self._calm, is_static=is_static)
            for group, is_static in zip(self._groups, are_static, strict=True)
            for number in range(config.members)
        ]

    @property
    def topics(self) -> tuple[TopicSpec, ...]:
        return tuple(topic for feed in self._feeds for topic in feed.topics)

    def start(self) -> None:
        for feed in self._feeds:
            feed.start()
        for seat in self._seats:
            self._living.start(seat.run(self._living))
        self._looking.start(self._look(branch(self._rng)))

    async def finish(self, limits: Limits) -> None:
        self._calm.set()
        for seat in self._seats:
            try:
                await asyncio.wait_for(seat.calm.wait(), CLOSE_S)
            except TimeoutError:
                record_no_progress(self._history, f"{seat.name} does not become stable")
        await self._await_free_instance_ids()
        await self._settle(limits)
        await self._restart_static_members()
        for feed in self._feeds:
            await feed.finish(limits)
        await self._catch_up(limits)
        for tasks in (self._living, self._looking):
            if not await tasks.stop(CLOSE_S):
                record_no_progress(self._history, "members did not end")

    def _feed(self, topic: str, partitions: int) -> AppendWorkload:
        config = AppendConfig(
            topic=topic,
            partitions=partitions,
            producers=1,
            consumers=0,
            sends_per_s=self._config.sends_per_s // len(TOPICS),
            weak_sends_per_s=0,
            pipelined_producers=0,
        )
        return AppendWorkload(self._clients, config, self._rng.randrange(1 << 30), self._history)

    async def _await_free_instance_ids(self) -> None:
        """Ids of members that were abandoned, or that were closed without reaching a coordinator, are in use
        until their session has expired. Until then their successors come and go."""
        loop, seats = asyncio.get_running_loop(), [one for one in self._seats if one.instance_id is not None]
        deadline, before = loop.time() + CLOSE_S, [""]
        while (names := [seat.name for seat in seats]) != before and loop.time() < deadline:
            before = names
            if seats:
                await asyncio.sleep(self._config.session_timeout_ms / 1000)

    async def _settle(self, limits: Limits) -> None:
        """From here on nothing changes: record what must hold, and by when.

        Members may have left without the coordinator's knowledge, abandoned or unable to reach it, and each
        new coordinator waits a session for them: it may have taken over just now.
        """
        config = self._config
        within_s = (config.session_timeout_ms + 3 * config.heartbeat_interval_ms) / 1000 + limits.settle_s
        for group in self._groups:
            members = {seat.name: seat.topics for seat in self._seats if seat.group == group.group}
            topics = {self._own(name): count for name, count in TOPICS.items()}
            detail = {"members": members, "topics": topics, "within_us": int(within_s * 1e6)}
            self._history.record("info", "runner", "settled", key=group.group, detail=detail)
        await asyncio.sleep(within_s)

    async def _restart_static_members(self) -> None:
        """One of each group, and then all at once, while nothing else changes; each has a session for it."""
        seats = [seat for seat in self._seats if seat.instance_id is not None]
        within_s = self._config.session_timeout_ms / 1000
        for those in ([seat for seat in seats if seat.number == 0], seats):
            for seat in those:
                self._history.record(
                    "info",
                    "runner",
                    "static-restart",
                    key=seat.group,
                    value=seat.instance_id,
                    detail={"within_us": int(within_s * 1e6)},
                )
            for seat in those:
                seat.restart()
            if those:
                await asyncio.sleep(within_s)

    async def _catch_up(self, limits: Limits) -> None:
        """Every group must read and commit all that the final read has found."""
        admin, loop = self._clients.admin("catch-up"), asyncio.get_running_loop()
        deadline = loop.time() + limits.read_s
        for group in self._groups:
            subscribed = {t for seat in self._seats if seat.group == group.group for t in seat.topics}
            for feed in self._feeds:
                ends = {p: end for p, end in feed.read_to.items() if end and p.topic in subscribed}
                while behind := await self._behind(admin, group.group, ends):
                    if loop.time() > deadline:
                        for place in behind:
                            record_no_progress(
                                self._history, f"{group.group} has not committed all of it", place
                            )
                        break
                    await asyncio.sleep(POLL_S)
        await admin.close()

    async def _behind(
        self, admin: OwnAdmin, group: str, ends: Mapping[TopicPartition, int]
    ) -> list[TopicPartition]:
        found = await self._committed(admin, "catch-up", group, list(ends))
        return [place for place, end in ends.items() if (now := found.get(place)) is None or now.offset < end]

    async def _look(self, rng: random.Random) -> None:
        admin = self._clients.admin("looker")
        places = self._places(TOPICS)
        while await self._looking.pause(self._config.look_every_s):
            await self._committed(admin, "looker", rng.choice(self._groups).group, places)
        await admin.close()

    async def _committed(
        self, admin: OwnAdmin, process: str, group: str, places: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, Commit | None]:
        asked_us = self._history.now_us()
        try:
            found = await admin.committed(group, places)
        except OperationError as error:
            self._history.record("info", process, "committed", error=str(error), detail={"group": group})
            return {}
        for place, commit in found.items():
            self._history.record(
                "ok",
                process,
                "committed",
                key=f"{group}/{place}",
                value=None if commit is None else commit.tag,
                offset=None if commit is None else commit.offset,
                detail={"asked_us": asked_us},
            )
        return found
