"""Opens and deletes logs until the open ones are those that the metadata image assigns to this broker.

It looks at a few logs at a time. If the image changes meanwhile, a log is looked at again. An open log
becomes a partition, which serves requests from then on. A damaged log is set aside first, and is created
again when the controller knows of the damage. A log in a directory that does not work is left alone: the
replica is offline until a start finds the directory working, or replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.replicas.openings import Openings
from pykraft.broker.replicas.partition.observer import PartitionObserver
from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.partition.state import PartitionEvents
from pykraft.broker.replicas.placement.directory_assignments import DirectoryAssignments
from pykraft.broker.replicas.placement.log_moves import LogMoves
from pykraft.broker.replicas.placement.lost_replicas import LostReplicas
from pykraft.broker.replicas.placement.replica_publisher import ReplicaPublisher
from pykraft.broker.replicas.placement.worklist import Worklist
from pykraft.broker.replicas.ports import ImageSource
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.metadata_log.image import UNKNOWN_DIRECTORIES, TopicImage

OPENED_PER_STEP = 16

GROWTH_LOGS = 200
"""``on_growth`` is called whenever so many logs have become partitions: some 10,000 objects."""


class LogReconciler:
    """Runs in one task. ``events`` is passed to the partitions that it creates.

    ``on_growth`` is called repeatedly while they become many: long-lived objects, which the caller may exempt
    from garbage collection.
    """

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        metadata: ImageSource,
        table: ReplicaTable,
        worklist: Worklist,
        publisher: ReplicaPublisher,
        lost: LostReplicas,
        openings: Openings,
        assignments: DirectoryAssignments,
        moves: LogMoves,
        events: PartitionEvents,
        observer: PartitionObserver,
        on_growth: Callable[[], None],
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._metadata = metadata
        self._table = table
        self._worklist = worklist
        self._publisher = publisher
        self._lost = lost
        self._openings = openings
        self._assignments = assignments
        self._moves = moves
        self._events = events
        self._observer = observer
        self._on_growth = on_growth
        self._grown_logs = 0
        #: Held while directories are created or removed: a log must not be created where another one still
        #: is.
        self._changing = asyncio.Lock()

    async def run(self) -> None:
        """Run forever; :class:`OSError` if a log directory fails.

        Start it only once the image holds this incarnation's registration: by an older image it would delete
        logs of topics that the image does not know yet.
        """
        await self._logs.opening.settle_copies(self._is_assigned)
        for key in list(self._logs.offline):
            topic = self._assigned(*key)
            if topic is not None:
                self._is_out_of_reach(topic, *key)  # or it would be reported as lost
        self._worklist.wake()
        while True:
            await self._worklist.wait()
            while self._has_work:
                if self._publisher.unapplied_since is not None:
                    self._publisher.apply_some()
                else:
                    async with self._changing:
                        await self._look_at_some()
                await asyncio.sleep(0)  # logs that were open already took no await
            if self._lost.all_reported:
                self._worklist.idle.set()

    @property
    def _has_work(self) -> bool:
        return bool(self._worklist) or self._publisher.unapplied_since is not None

    async def _look_at_some(self) -> None:
        wanted, unwanted = [], []
        for key in self._worklist.take(OPENED_PER_STEP):
            topic = self._assigned(*key)
            if topic is not None and key not in self._table and self._is_out_of_reach(topic, *key):
                self._assignments.check(key)
                continue
            if key in self._logs.offline and not await self._may_open(topic, *key):
                continue
            if topic is None:
                self._openings.opened(key)  # it will not be opened here
                self._logs.unavailable.pop(key, None)
                if key not in self._table:
                    unwanted.append(key)
            elif key not in self._table:
                wanted.append((*key, topic.id, self._publisher.log_config(topic.name)))
        await self._logs.delete(unwanted)
        for opened in await self._logs.open_or_create(wanted):
            self._take_up(opened)
        self._grown_logs += len(wanted)
        if self._grown_logs >= GROWTH_LOGS:
            self._grown_logs = 0
            self._on_growth()

    def _take_up(self, opened: OpenLog) -> None:
        key = topic_name, index = opened.topic_partition
        topic = self._assigned(*key)
        if topic is None or topic.id != opened.topic_id or self._logs.logs.get(key) is not opened:
            self._worklist.add(key)  # it changed, or was damaged, while others were being opened
            return
        self._assignments.check(key)
        self._moves.resume(opened)
        self._publisher.take_up(
            Partition(
                topic_name,
                topic.id,
                index,
                self._node_id,
                opened.log,
                self._events,
                producers=opened.producers,
                high_watermark=opened.high_watermark,
                traffic=self._table.traffic.of(topic_name),
                observer=self._observer,
            )
        )

    async def _may_open(self, topic: TopicImage | None, name: str, index: int) -> bool:
        """Whether a new log may replace an offline one. One that is no longer assigned is forgotten."""
        await self._logs.damaged.set_aside((name, index))
        offline = self._logs.offline.get((name, index))
        if offline is None or not offline.is_set_aside:
            return False  # its directory has failed
        if topic is None:
            del self._logs.offline[name, index]
            return False
        if self._lost.may_recreate_log(offline, topic, index):
            return True
        self._lost.report()
        return False

    def _is_out_of_reach(self, topic: TopicImage, name: str, index: int) -> bool:
        """Whether the replica has a log in a directory that does not work.

        If the log was in a directory that works, and is not there, or the directory is no longer one of this
        broker, the log is lost, and the replica may start over (:mod:`.lost_replicas`).
        """
        logs, key = self._logs, (name, index)
        unavailable, opened = logs.unavailable.get(key), logs.logs.get(key)
        directory = topic.partitions[index].directory(self._node_id)
        if unavailable is None or unavailable[0] != topic.id:
            is_here = opened is not None and opened.topic_id == topic.id
            if is_here or directory in UNKNOWN_DIRECTORIES:
                return False
            if not logs.dirs.may_be_offline(directory):
                if key not in logs.offline:
                    logs.damaged.note_missing(key, topic.id, directory)
                return False
            logs.unavailable[key] = (topic.id, logs.dirs.path_of(directory) or "")
        logs.offline.pop(key, None)  # an earlier loss, or what was left where the log had been before
        return True

    def _is_assigned(self, opened: OpenLog) -> tuple[bool, bool]:
        """Whether the image knows the topic id of a log, and the replica in the log's directory."""
        topic_name, index = opened.topic_partition
        topic = self._assigned(topic_name, index)
        if topic is None or topic.id != opened.topic_id:
            return False, False
        directory = self._logs.dirs.ids.get(opened.log_dir)
        return True, topic.partitions[index].directory(self._node_id) == directory

    def _assigned(self, topic_name: str, index: int) -> TopicImage | None:
        """The topic as of the newest image, if the partition has a replica here."""
        topic = self._metadata.image.topic(topic_name)
        if topic is None or index >= len(topic.partitions):
            return None
        return topic if self._node_id in topic.partitions[index].replicas else None

    async def set_aside_strays(self) -> None:
        """Rename the logs that the image does not know. Call it only once the image is caught up."""
        async with self._changing:
            strays = [
                key
                for key, opened in sorted(self._logs.logs.items())
                if key not in self._table
                and ((topic := self._assigned(*key)) is None or topic.id != opened.topic_id)
            ]
            await self._logs.set_aside(strays)
            for key in [key for key in self._logs.offline if self._assigned(*key) is None]:
                del self._logs.offline[key]  # no assigned replica lacks it
