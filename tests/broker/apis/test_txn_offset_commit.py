import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.broker.apis.coordination import txn_offset_commit
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.metadata.cache import MetadataCache
from pykraft.broker.replicas.leading.coordinator_topic import CoordinatorTopic
from pykraft.broker.replicas.replica_manager import ReplicaManager
from pykraft.broker.replicas.replica_table import ReplicaTable
from pykraft.coordinator.partitioning import OFFSETS_TOPIC
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.kafka_protocol.batch_builder import BatchBuilder
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.markers import ABORT, COMMIT, EndOfTransaction, Marker
from pykraft.kafka_protocol.messages.offsets import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.runtime.tasks import Workers
from tests.broker.logs.producers.test_transactions import ALONE
from tests.broker.partitions import make
from tests.clocks import ManualClock
from tests.group_coordinator.tools import CALLER
from tests.stand_ins import stand_in

REQUEST = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=7, producer_epoch=1)
PLACE = (OFFSETS_TOPIC, 0)


class Coordinator:
    """Of transactions; ``error`` is its answer."""

    def __init__(self) -> None:
        self.error: ErrorCode | None = None
        self.asked: list[tuple[str, int, int, bool]] = []

    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: Sequence[Any], *, adds: bool
    ) -> Mapping[Any, KafkaError]:
        assert list(partitions) == [PLACE]
        self.asked.append((transactional_id, producer_id, epoch, adds))
        return {} if self.error is None else {PLACE: KafkaError(self.error)}


class World:
    """A broker that leads one partition of the offsets topic; what the group coordinator does is a test's."""

    def __init__(self) -> None:
        self.partition = make(high_watermark=0)
        self.partition.apply(ALONE, 0)
        self.table = ReplicaTable()
        self.table.by_name[OFFSETS_TOPIC] = {0: self.partition}
        self.verifier = Coordinator()
        self.is_enabled = True
        self.committed: list[str] = []
        self.before_decision: Callable[[], object] = lambda: None
        self.log = CoordinatorTopic(
            OFFSETS_TOPIC,
            self.table,
            cast("Any", SimpleNamespace(is_fenced=False)),
            ManualClock(),
            Workers(),
        )

    async def txn_offset_commit(
        self, context: RequestContext, request: TxnOffsetCommitRequest, version: int, verify: Any
    ) -> TxnOffsetCommitResponse:
        still_verified = await verify(0)
        self.before_decision()
        still_verified()
        self.append()
        return TxnOffsetCommitResponse()

    def append(self) -> None:
        batch = BatchBuilder((REQUEST.producer_id, REQUEST.producer_epoch))
        batch.add(b"k", b"v")
        self.log.append(0, 0, batch, 5)

    def end(self, kind: int = COMMIT, *, epoch: int = 1) -> None:
        self.log.end_transaction(0, 0, EndOfTransaction(7, epoch, Marker(kind, 0)), 5)

    def commit(self, version: int) -> None:
        services = stand_in(
            BrokerServices,
            replicas=stand_in(ReplicaManager, table=self.table),
            groups=stand_in(
                GroupCoordinatorService,
                txn_offset_commit=lambda _, *arguments: self.txn_offset_commit(*arguments),
            ),
            verifier=self.verifier,
            clock=ManualClock(),
            config=SimpleNamespace(transaction_verification=self.is_enabled, node_id=1),
            metadata=MetadataCache(1, "cluster", EMPTY_IMAGE),
        )
        asyncio.run(txn_offset_commit.handle(services, CALLER, REQUEST, version))


@pytest.mark.parametrize(("version", "adds"), [(0, False), (3, False), (4, False), (5, True)])
def test_coordinator_is_asked_before_the_first_offsets_of_a_transaction(version: int, adds: bool) -> None:
    world = World()
    world.commit(version)
    world.commit(version)
    assert world.verifier.asked == [("x", 7, 1, adds)]
    world.end()
    world.commit(version)
    assert len(world.verifier.asked) == 2
    assert world.partition.last_stable_offset == 3  # the second transaction is open


def test_configuration_may_do_without_verification_but_not_without_adding() -> None:
    world = World()
    world.is_enabled = False
    world.commit(4)
    assert not world.verifier.asked
    world.end()
    world.commit(5)
    assert world.verifier.asked == [("x", 7, 1, True)]


@pytest.mark.parametrize(
    ("version", "answer", "expected"),
    [
        (5, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (5, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (5, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (5, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (5, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_refusal_is_told_as_producers_expect_it(version: int, answer: ErrorCode, expected: ErrorCode) -> None:
    world = World()
    world.verifier.error = answer
    with pytest.raises(KafkaError, check=lambda error: error.code is expected):
        world.commit(version)
    assert world.partition.log.log_end_offset == 0


def test_marker_between_verification_and_decision_takes_it_back() -> None:
    world = World()
    world.before_decision = lambda: world.end(ABORT)
    with pytest.raises(KafkaError, check=lambda error: error.code is ErrorCode.INVALID_TXN_STATE):
        world.commit(4)
    assert world.partition.log.log_end_offset == 1
    assert world.partition.last_stable_offset == 1  # nothing is open


def test_broker_that_no_longer_leads_is_not_the_coordinator() -> None:
    world = World()
    world.partition.leader_id = 2
    with pytest.raises(KafkaError, check=lambda error: error.code is ErrorCode.NOT_COORDINATOR):
        world.commit(5)
    assert not world.verifier.asked


async def test_coordinator_reads_its_transactions_back() -> None:
    world = World()
    world.append()
    world.end(ABORT)
    plain = BatchBuilder()
    plain.add(b"p", b"v")
    world.log.append(0, 0, plain, 5)
    batches, end_offset = await world.log.read(0, 0)
    assert end_offset == 3
    assert [(one.base_offset, one.record_count, one.producer_id, one.marker) for one in batches] == [
        (0, 1, 7, None),
        (1, 0, 7, Marker(ABORT, 0)),
        (2, 1, -1, None),
    ]
    assert [one.base_offset for one in (await world.log.read(0, 2))[0]] == [2]
