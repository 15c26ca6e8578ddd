"""FindCoordinator: whoever is named is ready, or as good as ready."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.broker.apis import find_coordinator
from pykraft.broker.apis.services import BrokerServices
from pykraft.broker.config import BrokerConfig
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.find_coordinator import FindCoordinatorRequest
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.address import Address
from tests.group_coordinator.tools import ManualClock

GROUP, TRANSACTION = 0, 1
HERE, ELSEWHERE, NOWHERE = "0", "1", "2"
"""Keys of the partitions that are led by this broker (1), by another (2) and by none."""
LEADERS = (1, 2, -1)
Found = list[tuple[ErrorCode, int]]


class Broker:
    """Broker 1, which loads what it leads for ``load_ms`` after the topic has been created."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, exists: bool, load_ms: int = 0) -> None:
        self.clock = ManualClock()
        self.topic: Any = None
        self._loaded_at_ms = self.clock.monotonic_ms() + load_ms
        if exists:
            self._create()

        async def create(*_: object, **__: object) -> object:
            return self._create()

        async def sleep(delay_ms: float) -> None:
            self.clock.now_ms += int(delay_ms)

        monkeypatch.setattr(find_coordinator, "create_topic", create)
        coordinators = SimpleNamespace(partition_for=int, serves=self._serves)
        self.services = SimpleNamespace(
            config=BrokerConfig(node_id=1, cluster_id="c", log_dirs=(), listeners=()),
            clock=self.clock,
            tasks=SimpleNamespace(sleep=sleep),
            groups=coordinators,
            transactions=coordinators,
            metadata=SimpleNamespace(
                image=SimpleNamespace(topic=lambda name: self.topic),
                endpoint=lambda broker, listener: Address("host", 9092) if broker > 0 else None,
            ),
        )

    def _create(self) -> object:
        self.topic = SimpleNamespace(partitions=[SimpleNamespace(leader=leader) for leader in LEADERS])
        return self.topic

    def _serves(self, partition: int) -> bool:
        return LEADERS[partition] == 1 and self.clock.monotonic_ms() >= self._loaded_at_ms

    def find(self, key_type: int, *keys: str) -> Found:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        services = cast(BrokerServices, self.services)
        answer = asyncio.run(find_coordinator.handle(services, RequestContext(), request, 4))
        assert [one.key for one in answer.coordinators] == list(keys)
        return [(ErrorCode(one.error_code), one.node_id) for one in answer.coordinators]


UNAVAILABLE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_leaders_are_named(monkeypatch: pytest.MonkeyPatch, key_type: int) -> None:
    broker = Broker(monkeypatch, exists=True)
    found = broker.find(key_type, HERE, ELSEWHERE, NOWHERE)
    assert found == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 2), UNAVAILABLE]


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_coordinator_of_a_new_topic_is_named_when_it_is_ready(
    monkeypatch: pytest.MonkeyPatch, key_type: int
) -> None:
    """Another broker is named when the client asks again, after its usual pause."""
    broker = Broker(monkeypatch, exists=False, load_ms=100)
    assert broker.find(key_type, HERE, ELSEWHERE) == [(ErrorCode.NONE, 1), UNAVAILABLE]
    assert broker.find(key_type, ELSEWHERE) == [(ErrorCode.NONE, 2)]


def test_coordinator_that_loads_for_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, exists=False, load_ms=60_000)
    assert broker.find(GROUP, HERE) == [UNAVAILABLE]
    assert broker.find(GROUP, HERE) == [(ErrorCode.NONE, 1)]
