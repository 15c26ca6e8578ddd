"""Reports of lost replicas to the controller: which, how many at once, and how often without an answer."""

import asyncio
import errno
from collections.abc import Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.broker.logs.offline_logs import OfflineLog, TopicPartition
from pykraft.broker.replicas.placement.lost_replicas import (
    REPORTED_AT_ONCE,
    RETRY_MAX_MS,
    RETRY_MS,
    LostReplicas,
)
from pykraft.broker.replicas.placement.worklist import Worklist
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.metadata_log.controller.calls.requests import LostReplica, LostReplicaResult
from tests.broker.data_cluster import DataCluster
from tests.broker.logs.test_log_moves import DIRS, begin

NODE_ID = 7
TOPIC_ID = Uuid(b"i" * 16)


class World:
    """A broker that has lost replicas of one topic, and a controller that answers as ``script`` says."""

    def __init__(self, lost: int, script: Sequence[ErrorCode | None]) -> None:
        partition = SimpleNamespace(replicas=(NODE_ID,), leader_epoch=3)
        topic = SimpleNamespace(id=TOPIC_ID, partitions=[partition] * lost)
        self.offline = {
            ("t", index): OfflineLog(TOPIC_ID, "/d", f"/d/t-{index}", "planted", is_set_aside=True)
            for index in range(lost)
        }
        self.script = list(script)
        self.reports: list[list[int]] = []
        self.pauses_ms: list[int] = []
        self.work: list[Coroutine[Any, Any, None]] = []
        image = SimpleNamespace(topic={"t": topic}.get)
        self.replicas = LostReplicas(
            NODE_ID,
            cast("Any", SimpleNamespace(offline=self.offline)),
            cast("Any", SimpleNamespace(image=image)),
            self,
            cast("Worklist", SimpleNamespace(add=lambda key: None)),
            cast("Any", self),
        )

    # As a supervisor of tasks.

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.work.append(work)

    async def sleep(self, duration_ms: int) -> None:
        self.pauses_ms.append(duration_ms)

    # As the controller.

    async def report_lost_replicas(self, replicas: Sequence[LostReplica]) -> list[LostReplicaResult]:
        self.reports.append([lost.index for lost in replicas])
        error = self.script.pop(0) if self.script else ErrorCode.NONE
        if error is None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        return [LostReplicaResult(lost.topic_id, lost.index, error, 9) for lost in replicas]

    def report(self) -> None:
        self.replicas.report()
        for work in self.work:
            asyncio.run(work)
        self.work.clear()


def test_controller_that_does_not_answer_is_asked_ever_less_often_and_at_least_every_few_seconds() -> None:
    world = World(1, [None] * 9 + [ErrorCode.FENCED_LEADER_EPOCH])
    world.report()
    doubled = [RETRY_MS * 2**n for n in range(6)]
    assert world.pauses_ms == [*doubled, *[RETRY_MAX_MS] * 4], "refused is as not answered"
    assert doubled[-1] < RETRY_MAX_MS < 2 * doubled[-1]
    assert len(world.reports) == 11 and world.replicas.all_reported


def test_pauses_are_short_again_after_an_answer() -> None:
    lost = REPORTED_AT_ONCE + 1
    world = World(lost, [None, None, ErrorCode.NONE, None, None])
    world.report()
    assert world.pauses_ms == [RETRY_MS, 2 * RETRY_MS] * 2
    assert [len(report) for report in world.reports] == [REPORTED_AT_ONCE] * 3 + [1] * 3
    assert sorted({index for report in world.reports for index in report}) == list(range(lost))


def test_one_report_at_a_time_and_another_when_more_is_lost() -> None:
    world = World(1, [])
    world.replicas.report()
    world.report()
    assert world.reports == [[0]] and world.replicas.all_reported
    world.report()
    assert world.reports == [[0]], "what is reported is not reported again"
    world.offline["t", 0].partition_epoch = None
    assert not world.replicas.all_reported
    world.report()
    assert world.reports == [[0], [0]]


@pytest.mark.world(brokers=())
async def test_replica_in_a_directory_that_does_not_work_is_not_reported_with_one_that_is_lost(
    cluster: DataCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of it was damaged long ago, and the lost one is looked at first."""
    take = Worklist.take

    def take_first(worklist: Worklist, most: int) -> list[TopicPartition]:
        worklist.prioritize(min(worklist._due))
        return take(worklist, 1)

    broker, disk = await begin(cluster), cluster.disk(1)
    await cluster.create(1, topic="a")
    await broker.stop()
    disk.make_dirs("/e1/t-0.00000000-damaged")
    topic_id = disk.read("/d1/t-0/partition.metadata")
    disk.write_atomic("/e1/t-0.00000000-damaged/partition.metadata", topic_id)
    disk.remove("/e1/a-0/partition.metadata")
    disk.inject("make_dirs", errno.EIO, path_part="/d1")
    monkeypatch.setattr(Worklist, "take", take_first)
    again = await cluster.start(1, log_dirs=DIRS)
    await again.data.worklist.idle.wait()
    assert cluster.controller.lost == [(1, "a")]
    assert again.logs.unavailable.keys() == {("t", 0)}
