"""Replicas of this broker with damaged logs: they are reported to the controller, and then start over.

The order of the steps keeps records safe: a replica whose log is found damaged no longer serves or fetches;
its directory is set aside; the controller removes it from the ISR (ReportLostReplicas); and only when this
broker has applied that does it create an empty log and copy everything from the leader. Without a leader the
replica stays offline until one is elected: an empty log would do no harm, but the log that was set aside
could then not be restored. This module decides when a replica may start over; :mod:`.log_reconciler` opens
and closes the logs.
"""

from __future__ import annotations

import logging

from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.offline_logs import OfflineLog, TopicPartition
from pykraft.broker.replicas.placement.worklist import Worklist
from pykraft.broker.replicas.ports import ImageSource, LostReplicasPort
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.calls.requests import LostReplica
from pykraft.metadata_log.image import TopicImage
from pykraft.runtime.tasks import TaskSupervisor

logger = logging.getLogger(__name__)

REPORTED_AT_ONCE = 250
RETRY_MS = 100
RETRY_MAX_MS = 5000


class LostReplicas:
    """The offline replicas among those that the image assigns to this broker."""

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        metadata: ImageSource,
        controller: LostReplicasPort,
        worklist: Worklist,
        tasks: TaskSupervisor,
    ) -> None:
        self._node_id = node_id
        self._logs = logs
        self._metadata = metadata
        self._controller = controller
        self._worklist = worklist
        self._tasks = tasks
        self._is_reporting = False

    @property
    def all_reported(self) -> bool:
        """Whether the controller knows of every replica that is offline."""
        return not self._unreported()

    def may_recreate_log(self, offline: OfflineLog, topic: TopicImage, index: int) -> bool:
        """Whether an empty log may take the place of an offline one."""
        if offline.topic_id is not None and offline.topic_id != topic.id:
            return True  # the log is of an earlier topic of the same name
        partition = topic.partitions[index]
        return (
            offline.partition_epoch is not None
            and partition.partition_epoch >= offline.partition_epoch
            and partition.has_leader
        )

    def report(self) -> None:
        """Start reporting to the controller the lost replicas that it does not know of."""
        if not self._is_reporting and self._reportable():
            self._is_reporting = True
            self._tasks.start(self._report_all(), "lost-replicas")

    def _unreported(self) -> dict[TopicPartition, LostReplica]:
        image, found = self._metadata.image, {}
        for (name, index), offline in sorted(self._logs.offline.items()):
            topic = image.topic(name)
            if (
                offline.partition_epoch is None
                and topic is not None
                and index < len(topic.partitions)
                and self._node_id in topic.partitions[index].replicas
                and offline.topic_id in (None, topic.id)
            ):
                found[name, index] = LostReplica(topic.id, index, topic.partitions[index].leader_epoch)
        return found

    def _reportable(self) -> dict[TopicPartition, LostReplica]:
        """The unreported replicas whose directories are durably set aside. Where that fails the node halts,
        and its next start finds the logs in place: the controller must not have removed them from the ISR.
        """
        return {key: lost for key, lost in self._unreported().items() if self._logs.offline[key].is_set_aside}

    async def _report_all(self) -> None:
        retry_ms = RETRY_MS
        while reportable := self._reportable():
            some = dict(list(reportable.items())[:REPORTED_AT_ONCE])
            if await self._report_some(some):
                retry_ms = RETRY_MS
            else:
                await self._tasks.sleep(retry_ms)
                retry_ms = min(2 * retry_ms, RETRY_MAX_MS)
        self._is_reporting = False

    async def _report_some(self, some: dict[TopicPartition, LostReplica]) -> bool:
        """Report these; whether the controller accepted all. Refused ones are decided on the next image."""
        keys = {(lost.topic_id, lost.index): key for key, lost in some.items()}
        reported = {key: self._logs.offline.get(key) for key in some}
        try:
            answers = await self._controller.report_lost_replicas(list(some.values()))
        except KafkaError as error:
            logger.warning("lost replicas could not be reported to the controller yet: %s", error)
            return False
        for answer in answers:
            key = keys[answer.topic_id, answer.index]
            offline = self._logs.offline.get(key)
            if answer.error is not ErrorCode.NONE:
                logger.warning("lost replica %s-%d: the controller answers %s", *key, answer.error.name)
            elif offline is not None and offline is reported[key]:
                offline.partition_epoch = answer.partition_epoch
                self._worklist.add(key)
        return all(answer.error is ErrorCode.NONE for answer in answers)
