"""Tells the controller in which log directories this broker's replicas are (AssignReplicasToDirs, KIP-858).

A replica is reported when its log has been created or found in a directory that the image does not name, so
the image never names a directory that did not hold the log. A broker with one directory reports nothing: that
its replicas are there goes without saying, and the registration tells when it is replaced. Decides what is
reported and when; the controller decides what follows (:mod:`pykraft.metadata_log.controller.directories`).
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import Final

from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.offline_logs import TopicPartition
from pykraft.broker.replicas.ports import DirectoriesPort, ImageSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.calls.requests import ReplicaDirectory
from pykraft.metadata_log.controller.directories import MAX_ASSIGNMENTS_PER_REQUEST
from pykraft.metadata_log.image import UNKNOWN_DIRECTORIES
from pykraft.runtime.tasks import TaskSupervisor

logger = logging.getLogger(__name__)

WAIT_MS: Final = 100
"""What is reported within this time makes one request; also the first pause after a failure."""
WAIT_MAX_MS: Final = 10_000
LOOKED_AT: Final = 500
"""Replicas whose directories may have to be reported, between two pauses: 5 ms of work."""
assert LOOKED_AT <= MAX_ASSIGNMENTS_PER_REQUEST


class DirectoryAssignments:
    """The replicas whose directories the controller does not know yet."""

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        metadata: ImageSource,
        controller: DirectoriesPort,
        tasks: TaskSupervisor,
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._metadata = metadata
        self._controller = controller
        self._tasks = tasks
        self._pending: dict[TopicPartition, None] = {}  # in the order in which they are looked at
        self._is_reporting = False

    def check(self, key: TopicPartition) -> None:
        """The log of a replica, or its entry in the image, may have changed."""
        if self._find(key) is None:
            return
        self._pending[key] = None
        if not self._is_reporting:
            self._is_reporting = True
            self._tasks.start(self._report(), "directory-assignments")

    def _find(self, key: TopicPartition) -> ReplicaDirectory | None:
        """Where the replica is, if the image does not say so."""
        topic = self._metadata.image.topic(key[0])
        if topic is None or key[1] >= len(topic.partitions):
            return None
        partition = topic.partitions[key[1]]
        directory = self._directory(key, topic.id)
        known = partition.directory(self._node_id)
        if directory is None or directory == known or self._node_id not in partition.replicas:
            return None
        if len(self._logs.dirs.paths) == 1 and known in UNKNOWN_DIRECTORIES:
            return None
        return ReplicaDirectory(topic.id, key[1], directory)

    def _directory(self, key: TopicPartition, topic_id: Uuid) -> Uuid | None:
        """The directory that the log is in, is about to be in, or was in when its directory failed."""
        opened, unavailable = self._logs.logs.get(key), self._logs.unavailable.get(key)
        future = self._logs.futures.get(key)
        if opened is not None and opened.topic_id == topic_id:
            if future is not None and future.is_announced:
                return self._logs.dirs.ids.get(future.log_dir)
            return self._logs.dirs.ids.get(opened.log_dir)
        if unavailable is not None and unavailable[0] == topic_id:
            return self._logs.dirs.ids.get(unavailable[1])
        return None

    async def _report(self) -> None:
        pause_ms = WAIT_MS
        while self._pending:
            await self._tasks.sleep(pause_ms)
            keys = list(islice(self._pending, LOOKED_AT))
            some = {key: place for key in keys if (place := self._find(key)) is not None}
            for key in keys:
                del self._pending[key]
            self._pending.update(dict.fromkeys(some))  # behind all others: what fails keeps none of them
            if not some or await self._report_some(some):
                pause_ms = WAIT_MS
            else:
                pause_ms = min(2 * pause_ms, WAIT_MAX_MS)
        self._is_reporting = False

    async def _report_some(self, some: dict[TopicPartition, ReplicaDirectory]) -> bool:
        """Report these; whether none is left. One with an older state in the image waits for a change."""
        try:
            errors = await self._controller.assign_replicas_to_dirs(list(some.values()))
        except KafkaError as error:
            logger.warning("directories of replicas could not be reported to the controller yet: %s", error)
            return False
        for (key, place), answer in zip(some.items(), errors, strict=True):
            if answer is not ErrorCode.NONE:
                logger.warning("directory of %s-%d: the controller answers %s", *key, answer.name)
            if self._find(key) in (place, None):
                self._pending.pop(key, None)
        return True
