"""Many keys, some coordinators: each has its own result, and a coordinator that fails is looked for again."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.coordinators import GROUP_KEY, TRANSACTION_KEY, ask_coordinators, find_coordinator
from pykraft.kafka_client.errors import ClientTimeoutError
from pykraft.kafka_client.results import BrokerDescription
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
)
from tests.kafka_client.scripted import HOST, Answer, ScriptedCluster

MOST_KEYS = 200
"""In one FindCoordinator."""


class Coordinators:
    """Every key is coordinated by the broker that its last digit names (mod 3, from 1)."""

    def __init__(self, scripted: ScriptedCluster) -> None:
        self.scripted = scripted
        self.errors: dict[str, list[ErrorCode]] = {}
        self.left_out: set[str] = set()
        self.asked: list[tuple[int, list[str]]] = []
        self.answers: dict[str, list[str | KafkaError]] = {}
        scripted.script(ApiKey.FIND_COORDINATOR, self._find)

    def broker_of(self, key: str) -> int:
        return int(key[-1]) % 3 + 1

    def _find(self, _: int, request: FindCoordinatorRequest, version: int) -> Answer:
        found = []
        for key in request.coordinator_keys:
            errors = self.errors.get(key)
            if errors:
                found.append(Coordinator(key=key, error_code=errors.pop(0), error_message="why"))
            elif key not in self.left_out:
                broker = self.broker_of(key)
                found.append(Coordinator(key=key, node_id=broker, host=HOST, port=broker))
        return FindCoordinatorResponse(coordinators=found)

    async def ask(self, coordinator: BrokerDescription, keys: Sequence[str]) -> Mapping[str, Any]:
        self.asked.append((coordinator.id, list(keys)))
        planned = {key: self.answers[key].pop(0) if self.answers.get(key) else f"of {key}" for key in keys}
        return {key: answer for key, answer in planned.items() if answer != ""}

    def results(self, *keys: str, timeout_ms: int = 5_000, key_type: int = GROUP_KEY) -> dict[str, Any]:
        cluster = self.scripted.client()
        return run(ask_coordinators(cluster, "it", keys, self.ask, cluster.deadline(timeout_ms), key_type))


@pytest.fixture
def coordinators(scripted: ScriptedCluster) -> Coordinators:
    return Coordinators(scripted)


def code(result: Any) -> ErrorCode:
    assert isinstance(result, KafkaError)
    return result.code


@pytest.mark.parametrize("count", [1, 2, MOST_KEYS - 1, MOST_KEYS, MOST_KEYS + 1, 2 * MOST_KEYS + 1])
def test_many_keys_are_looked_for_some_at_a_time(coordinators: Coordinators, count: int) -> None:
    keys = [f"k{number}" for number in range(count)]
    assert coordinators.results(*keys, *keys[:5]) == {key: f"of {key}" for key in keys}
    requests = coordinators.scripted.requests(ApiKey.FIND_COORDINATOR)
    sizes = [len(request.coordinator_keys) for _, _, request in requests]
    whole, rest = divmod(count, MOST_KEYS)
    assert sizes == [MOST_KEYS] * whole + [rest] * (rest > 0)
    assert sorted(key for _, some in coordinators.asked for key in some) == sorted(keys), "once each"
    assert all(coordinators.broker_of(key) == broker for broker, some in coordinators.asked for key in some)


@pytest.mark.parametrize("key_type", [GROUP_KEY, TRANSACTION_KEY])
def test_kind_of_the_keys_is_told(coordinators: Coordinators, key_type: int) -> None:
    coordinators.results("k1", "k2", key_type=key_type)
    ((_, _, request),) = coordinators.scripted.requests(ApiKey.FIND_COORDINATOR)
    assert request.key_type == key_type


def test_error_of_a_key_is_its_own(coordinators: Coordinators) -> None:
    """Final ones at once, in the lookup and of the coordinator; a key that is left out is an error, too."""
    refused = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")
    coordinators.errors["k1"] = [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 9
    coordinators.answers |= {"k2": [refused], "k3": [""]}
    found = coordinators.results("k1", "k2", "k3", "k4")
    assert list(found) == ["k1", "k2", "k3", "k4"], "in the order asked"
    assert code(found["k1"]) is ErrorCode.GROUP_AUTHORIZATION_FAILED and "why" in str(found["k1"])
    assert found["k2"] is refused
    assert "leaves it out" in str(found["k3"]) and found["k4"] == "of k4"
    assert coordinators.scripted.network.slept_ms == []


def test_passing_error_of_a_key_is_asked_for_again_alone(coordinators: Coordinators) -> None:
    moved = KafkaError(ErrorCode.NOT_COORDINATOR, "moved")
    coordinators.errors["k1"] = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    coordinators.answers["k2"] = [moved, moved]
    found = coordinators.results("k1", "k2", "k3")
    assert found == {key: f"of {key}" for key in ("k1", "k2", "k3")}
    asked = [key for _, some in coordinators.asked for key in some]
    assert sorted(asked) == ["k1", "k2", "k2", "k2", "k3"]


def test_passing_error_until_the_deadline_leaves_the_others_results(coordinators: Coordinators) -> None:
    coordinators.answers["k2"] = [KafkaError(ErrorCode.NOT_COORDINATOR, "moved")] * 99
    found = coordinators.results("k1", "k2", timeout_ms=1_000)
    assert found["k1"] == "of k1" and isinstance(found["k2"], ClientTimeoutError)
    assert "NOT_COORDINATOR" in str(found["k2"])


def test_lookup_that_answers_for_other_keys_is_an_error(coordinators: Coordinators) -> None:
    coordinators.left_out = {"k1"}
    found = coordinators.results("k1", "k2")
    assert {code(one) for one in found.values()} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert coordinators.asked == []


def test_coordinator_is_found_by_one_key(coordinators: Coordinators) -> None:
    coordinators.errors["k1"] = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    cluster = coordinators.scripted.client()
    found = run(find_coordinator(cluster, "k1", cluster.deadline(5_000)))
    assert (found.id, found.host, found.port) == (2, HOST, 2)


# -- the link of one key -------------------------------------------------------------------------------


def lookups(coordinators: Coordinators) -> int:
    return len(coordinators.scripted.requests(ApiKey.FIND_COORDINATOR))


def beat(link: CoordinatorLink) -> int:
    response = run(link.call(HeartbeatRequest(), 60_000))
    return response.error_code


def test_link_keeps_its_coordinator_until_it_fails(coordinators: Coordinators) -> None:
    scripted, link = coordinators.scripted, CoordinatorLink(coordinators.scripted.client(), "k1")
    answers: list[Answer] = [HeartbeatResponse()] * 2
    scripted.script(ApiKey.HEARTBEAT, lambda *_: answers.pop(0))
    assert lookups(coordinators) == 0, "nothing is asked before it is needed"
    assert (beat(link), beat(link), lookups(coordinators)) == (0, 0, 1)
    answers += [ConnectionResetError("gone"), HeartbeatResponse()]
    with pytest.raises(KafkaError):
        beat(link)
    assert (beat(link), lookups(coordinators)) == (0, 2)
    link.forget()
    answers.append(HeartbeatResponse())
    assert (beat(link), lookups(coordinators)) == (0, 3)


def test_link_looks_again_when_its_coordinator_cannot_be_reached(coordinators: Coordinators) -> None:
    scripted, link = coordinators.scripted, CoordinatorLink(coordinators.scripted.client(), "k1")
    scripted.script(ApiKey.HEARTBEAT, lambda *_: HeartbeatResponse())
    scripted.brokers[2].up = False
    with pytest.raises(KafkaError, match="cannot connect"):
        beat(link)
    scripted.brokers[2].up = True
    assert (beat(link), lookups(coordinators)) == (0, 2)
    assert [broker for broker, _, _ in scripted.requests(ApiKey.HEARTBEAT)] == [2]
