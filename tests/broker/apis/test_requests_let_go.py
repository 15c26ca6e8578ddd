"""Handlers that let a large request go before they are done hold none of its elements themselves."""

import asyncio
import gc
from collections.abc import Iterator

from pykraft.broker.apis.records import delete_records, list_offsets
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.replicas.partition.purgatory import Deadlines
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.broker.replicas.wakeups import Wakeups
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages import records
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.slices import Slices
from pykraft.runtime.turns import UnlimitedTurn
from tests.clocks import ManualClock
from tests.stand_ins import stand_in

COUNT = 500


class CountingSlices(Slices):
    """How many partitions of the request that there is now are left after what was finished last."""

    def __init__(self) -> None:
        super().__init__(UnlimitedTurn(), "tests")
        self._others = count_partitions() - COUNT
        self.left = -1

    async def finish(self, work: Iterator[None]) -> None:
        await super().finish(work)
        self.left = count_partitions() - self._others


def count_partitions() -> int:
    """Of all requests of this process."""
    kinds = (records.DeleteRecordsPartition, records.ListOffsetsPartition)
    return sum(type(one) in kinds for one in gc.get_objects())


def services(slices: Slices) -> BrokerServices:
    """Of a broker that leads nothing."""

    def refuse(replicas: ReplicaManager, topic: str, index: int) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    replicas = stand_in(
        ReplicaManager, refuse_if_fenced=lambda _: None, refuse_past_lease=lambda _: None, by_name=refuse
    )
    wakeups = stand_in(Wakeups, deadlines=Deadlines())
    return stand_in(BrokerServices, slices=slices, clock=ManualClock(), wakeups=wakeups, replicas=replicas)


def test_list_offsets_lets_its_last_topic_go() -> None:
    partitions = [records.ListOffsetsPartition(partition_index=index) for index in range(COUNT)]
    topic = records.ListOffsetsTopic(name="t", partitions=partitions)
    request = records.ListOffsetsRequest(replica_id=-1, topics=[topic])
    del partitions, topic
    slices = CountingSlices()
    asyncio.run(list_offsets.handle(services(slices), RequestContext(), request, 7))
    assert slices.left <= 0


def test_delete_records_lets_its_last_topic_go() -> None:
    partitions = [records.DeleteRecordsPartition(partition_index=index) for index in range(COUNT)]
    topic = records.DeleteRecordsTopic(name="t", partitions=partitions)
    request = records.DeleteRecordsRequest(topics=[topic])
    del partitions, topic
    slices = CountingSlices()
    asyncio.run(delete_records.handle(services(slices), RequestContext(), request, 2))
    assert slices.left <= 0
