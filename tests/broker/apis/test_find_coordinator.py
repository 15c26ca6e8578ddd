"""FindCoordinator: nobody waits for it, and whoever is named is ready, or as good as ready."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.broker.apis.coordination import find_coordinator
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.config import BrokerConfig
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.address import Address
from tests.broker.answers import as_read

GROUP, TRANSACTION = 0, 1
HERE, ELSEWHERE, NOWHERE = "0", "1", "2"
"""Keys of the partitions that are led by this broker (1), by another (2) and by none."""
LEADERS = (1, 2, -1)
Found = list[tuple[ErrorCode, int]]
VERSIONS = range(FindCoordinatorRequest.MIN_VERSION, FindCoordinatorRequest.MAX_VERSION + 1)


class Broker:
    """Broker 1. The topics are created when :meth:`create` is called."""

    def __init__(self, *, exists: bool = False, coordinates: bool = True) -> None:
        self.topic: Any = None
        self.coordinates = coordinates
        self.begun: list[str] = []
        self.refusal: str | None = None
        if exists:
            self.create()
        self.services = SimpleNamespace(
            config=BrokerConfig(node_id=1, cluster_id="c", log_dirs=(), listeners=()),
            creations=SimpleNamespace(
                begin=lambda context, names: self.begun.extend(names), refusal=lambda name: self.refusal
            ),
            groups=self._coordinators(),
            transactions=self._coordinators(),
            metadata=SimpleNamespace(
                image=SimpleNamespace(topic=lambda name: self.topic),
                endpoint=lambda broker, listener: Address("host", 9092) if broker > 0 else None,
            ),
        )

    def _coordinators(self) -> SimpleNamespace:
        return SimpleNamespace(
            partition_for=int, leads=lambda partition: LEADERS[partition] == 1 and self.coordinates
        )

    def create(self) -> None:
        self.topic = SimpleNamespace(partitions=[SimpleNamespace(leader=leader) for leader in LEADERS])

    def answer(self, version: int, key_type: int, keys: Sequence[str]) -> FindCoordinatorResponse:
        """As a client gets it."""
        request = FindCoordinatorRequest(key_type=key_type, key=keys[0], coordinator_keys=list(keys))
        services = cast(BrokerServices, self.services)
        try:
            return as_read(find_coordinator.handle(services, RequestContext(), request, version), version)
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
