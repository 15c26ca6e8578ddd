"""Replicas of this broker whose logs are damaged: the controller is told, and then they begin anew.

The order is what keeps records: a replica whose log is found damaged serves and fetches no more, its
directory is set aside, the controller takes it out of the ISR (ReportLostReplicas), and only when this
broker has applied that it creates an empty log and copies everything from the leader. Where there is no
leader it stays offline until somebody has made one: with an empty log it would be in nobody's way, but the
one that was set aside could not be put back. Decides when a replica may begin anew; :mod:`.log_reconciler`
opens and closes.
"""

from __future__ import annotations

import logging

from pykraft.broker.logs.log_manager import LogManager
from pykraft.broker.logs.offline_logs import OfflineLog, TopicPartition
from pykraft.broker.replicas.ports import ImageSource, LostReplicasPort
from pykraft.broker.replicas.worklist import Worklist
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.metadata_log.controller.requests import LostReplica
from pykraft.metadata_log.image import TopicImage
from pykraft.runtime.tasks import TaskSupervisor

logger = logging.getLogger(__name__)

REPORTED_AT_ONCE = 250
RETRY_MS = 100
RETRY_MAX_MS = 5000


class LostReplicas:
    """The replicas that are offline, among those that the image assigns to this broker."""

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
    def is_settled(self) -> bool:
        """Whether the controller knows of every replica that is offline."""
        return not self._unreported()

    def may_begin_anew(self, offline: OfflineLog, topic: TopicImage, index: int) -> bool:
        """Whether an empty log may take the place of one that is offline."""
        if offline.topic_id is not None and offline.topic_id != topic.id:
            return True  # it was of an earlier topic of the same name
        partition = topic.partitions[index]
        return (
            offline.partition_epoch is not None
            and partition.partition_epoch >= offline.partition_epoch
            and partition.has_leader
        )

    def report(self) -> None:
        """See to it that the controller is told of all that it has not been told of."""
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
        """Those whose directories are set aside, durably. Where that fails the node ends, and its next start
        finds the logs where they were: the controller must not have given them up.
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
        """Whether there was nothing to object. What the controller does not know, the image will tell."""
        keys = {(lost.topic_id, lost.index): key for key, lost in some.items()}
        told = {key: self._logs.offline.get(key) for key in some}
        try:
            answers = await self._controller.report_lost_replicas(list(some.values()))
        except KafkaError as error:
            logger.warning("the controller does not know yet that replicas are lost: %s", error)
            return False
        for answer in answers:
            key = keys[answer.topic_id, answer.index]
            offline = self._logs.offline.get(key)
            if answer.error is not ErrorCode.NONE:
                logger.warning("%s-%d is lost, the controller answers %s", *key, answer.error.name)
            elif offline is not None and offline is told[key]:
                offline.partition_epoch = answer.partition_epoch
                self._worklist.add(key)
        return all(answer.error is ErrorCode.NONE for answer in answers)
