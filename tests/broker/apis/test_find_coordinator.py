"""FindCoordinator: nobody waits for it, and whoever is named is ready, or as good as ready."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TypeVar

import pytest

from pykraft.broker.apis.coordination import find_coordinator
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.config import BrokerConfig
from pykraft.broker.metadata.cache import MetadataCache
from pykraft.coordinator.partitioning import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid
from pykraft.kafka_protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from pykraft.metadata_log.persistent import Map
from pykraft.metadata_log.records import Endpoint
from pykraft.transaction_coordinator.service import TransactionCoordinatorService
from tests.broker.answers import as_read
from tests.stand_ins import stand_in

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1
HERE, ELSEWHERE, NOWHERE = "0", "1", "2"
"""Keys of the partitions that are led by this broker (1), by another (2) and by none."""
LEADERS = (1, 2, -1)
Found = list[tuple[ErrorCode, int]]
VERSIONS = range(FindCoordinatorRequest.MIN_VERSION, FindCoordinatorRequest.MAX_VERSION + 1)


class Broker:
    """Broker 1. The topics are created when :meth:`create` is called."""

    def __init__(self, *, exists: bool = False, coordinates: bool = True) -> None:
        self.coordinates = coordinates
        self.begun: list[str] = []
        self.refusal: str | None = None
        endpoint = Endpoint("PLAINTEXT", "host", 9092, "PLAINTEXT")
        brokers = {id: BrokerRegistration(id, 1, ZERO_UUID, (endpoint,), fenced=False) for id in (1, 2)}
        self.metadata = MetadataCache(1, "c", MetadataImage(brokers=Map(brokers)))
        self.services = stand_in(
            BrokerServices,
            config=BrokerConfig(node_id=1, cluster_id="c", log_dirs=(), listeners=()),
            creations=SimpleNamespace(
                begin=lambda context, names: self.begun.extend(names), refusal=lambda name: self.refusal
            ),
            groups=self._coordinators(GroupCoordinatorService),
            transactions=self._coordinators(TransactionCoordinatorService),
            metadata=self.metadata,
        )
        if exists:
            self.create()

    def _coordinators(self, cls: type[T]) -> T:
        return stand_in(
            cls,
            partition_for=lambda _, key: int(key),
            leads=lambda _, partition: LEADERS[partition] == 1 and self.coordinates,
        )

    def create(self) -> None:
        partitions = tuple(PartitionRegistration((1,), (1,), leader, 0, 0) for leader in LEADERS)
        topics = {
            Uuid(name.encode()[:16]): TopicImage(name, Uuid(name.encode()[:16]), partitions)
            for name in (OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)
        }
        ids = {topic.name: id for id, topic in topics.items()}
        self.metadata.image = replace(self.metadata.image, topics_by_id=Map(topics), topic_ids=Map(ids))

    def answer(self, version: int, key_type: int, keys: Sequence[str]) -> FindCoordinatorResponse:
        """As a client gets it."""
        request = FindCoordinatorRequest(key_type=key_type, key=keys[0], coordinator_keys=list(keys))
        try:
            return as_read(
                find_coordinator.handle(
                    self.services, RequestContext(listener="PLAINTEXT"), request, version
                ),
                version,
            )
        except KafkaError as error:
            return as_read(find_coordinator.build_error(request, version, error), version)

    def find(self, key_type: int, *keys: str) -> Found:
        answer = self.answer(4, key_type, keys)
        assert [one.key for one in answer.coordinators] == list(keys)
        return [(ErrorCode(one.error_code), one.node_id) for one in answer.coordinators]


UNAVAILABLE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_leaders_are_named(key_type: int) -> None:
    broker = Broker(exists=True)
    found = broker.find(key_type, HERE, ELSEWHERE, NOWHERE)
    assert found == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 2), UNAVAILABLE]
    assert not broker.begun


@pytest.mark.parametrize(
    ("key_type", "topic"), [(GROUP, "__consumer_offsets"), (TRANSACTION, "__transaction_state")]
)
def test_topic_of_coordinators_is_created_behind_the_answer(key_type: int, topic: str) -> None:
    broker = Broker()
    assert broker.find(key_type, HERE, ELSEWHERE) == [UNAVAILABLE] * 2
    assert broker.begun == [topic]
    broker.create()
    assert broker.find(key_type, HERE, ELSEWHERE) == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 2)]


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_broker_does_not_name_itself_before_it_coordinates(key_type: int) -> None:
    broker = Broker(exists=True, coordinates=False)
    assert broker.find(key_type, HERE, ELSEWHERE) == [UNAVAILABLE, (ErrorCode.NONE, 2)]
    broker.coordinates = True
    assert broker.find(key_type, HERE) == [(ErrorCode.NONE, 1)]


def test_client_is_told_why_there_is_no_coordinator() -> None:
    broker = Broker()
    (being_created,) = broker.answer(4, GROUP, [HERE]).coordinators
    assert being_created.error_message == "__consumer_offsets is being created"
    broker.refusal = "the replication factor is larger than the number of brokers"
    for version in (3, 4):
        answer = broker.answer(version, GROUP, [HERE])
        told = answer.coordinators[0] if version >= 4 else answer
        assert told.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert told.error_message is not None and broker.refusal in told.error_message
    assert len(broker.begun) == 3, "tried again"


@pytest.mark.parametrize("version", VERSIONS)
def test_message_of_success_is_kafkas(version: int) -> None:
    """Kafka has a word for it in the versions that ask for one coordinator, and none in the later ones."""
    answer = Broker(exists=True).answer(version, GROUP, [ELSEWHERE])
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.NONE, 2, "host", 9092)
    assert found.error_message == ("NONE" if 1 <= version <= 3 else "")


@pytest.mark.parametrize("version", VERSIONS)
def test_key_type_of_share_groups_is_refused(version: int) -> None:
    answer = Broker(exists=True).answer(version, 2, [HERE])
    found = answer.coordinators[0] if version >= 4 else answer
    expected = ErrorCode.INVALID_REQUEST if version >= 1 else ErrorCode.NONE  # version 0 knows groups only
    assert found.error_code == expected
