"""Requests about groups and transactional ids: they go to the coordinator of each, which is looked up again
when it has moved.

A request may name many of these keys: they are looked up together (KIP-699), asked for by coordinator, and
each has a result or an error of its own. One key's error never hides another's result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from pykraft.kafka_client.cluster import Cluster, is_passing
from pykraft.kafka_client.connection import Connection, R
from pykraft.kafka_client.errors import UnsupportedByBrokerError, check
from pykraft.kafka_client.results import BrokerDescription
from pykraft.kafka_protocol.codec.schema import Request
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.groups import Coordinator, FindCoordinatorRequest
from pykraft.runtime.address import Address

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
_KEYS_IN_A_REQUEST: Final = 200
_KEY_TYPE_VERSION: Final = 1
_SEVERAL_KEYS_VERSION: Final = 4

T = TypeVar("T")
Ask = Callable[[BrokerDescription, Sequence[str]], Awaitable[Mapping[str, T | KafkaError]]]
"""``(coordinator, its keys)`` → the results; raises :class:`KafkaError` for the whole request."""


async def find_coordinator(cluster: Cluster, group_id: str, deadline_ms: int) -> BrokerDescription:
    what = f"coordinator of group {group_id}"
    return await cluster.retrying(
        what, lambda: ask_for_coordinator(cluster, group_id, deadline_ms), deadline_ms
    )


async def ask_for_coordinator(
    cluster: Cluster, key: str, deadline_ms: int, key_type: int = GROUP_KEY
) -> BrokerDescription:
    """One attempt; the caller retries. ``key``: a group's id, or what ``key_type`` says."""
    found = (await _ask_for_coordinators(cluster, [key], deadline_ms, key_type))[key]
    if isinstance(found, KafkaError):
        raise found
    return found


async def ask_coordinator(
    cluster: Cluster,
    coordinator: BrokerDescription,
    request: Request[R],
    deadline_ms: int,
    *,
    max_version: int | None = None,
) -> R:
    """One attempt."""
    connection = await connection_to(cluster, coordinator, deadline_ms)
    by = cluster.request_deadline(deadline_ms)
    return await connection.call(request, by, max_version=max_version)


async def connection_to(cluster: Cluster, coordinator: BrokerDescription, deadline_ms: int) -> Connection:
    return await cluster.connection(Address(coordinator.host, coordinator.port), deadline_ms)


async def ask_coordinators(
    cluster: Cluster,
    what: str,
    keys: Iterable[str],
    ask: Ask[T],
    deadline_ms: int,
    key_type: int = GROUP_KEY,
) -> dict[str, T | KafkaError]:
    """The result of every key, or the error that is final or lasted until the deadline."""
    wanted = list(dict.fromkeys(keys))
    pending = list(wanted)
    results: dict[str, T | KafkaError] = {}

    def settle(found: Mapping[str, T | KafkaError]) -> None:
        for key, result in found.items():
            results[key] = result
            if not (isinstance(result, KafkaError) and is_passing(result)):
                pending.remove(key)

    async def attempt() -> None:
        for some in _slices(pending):
            by_coordinator: dict[BrokerDescription, list[str]] = {}
            located = await _ask_for_coordinators(cluster, some, deadline_ms, key_type)
            for key, coordinator in located.items():
                if isinstance(coordinator, KafkaError):
                    settle({key: coordinator})
                else:
                    by_coordinator.setdefault(coordinator, []).append(key)
            for coordinator, its_keys in by_coordinator.items():
                settle(await _ask_one(ask, coordinator, its_keys))
        if pending:
            reason = results[pending[0]]
            assert isinstance(reason, KafkaError)
            raise reason

    try:
        await cluster.retrying(what, attempt, deadline_ms)
    except KafkaError as error:
        for key in pending:
            results[key] = error
    return {key: results[key] for key in wanted}


async def _ask_one(
    ask: Ask[T], coordinator: BrokerDescription, keys: Sequence[str]
) -> dict[str, T | KafkaError]:
    try:
        found = await ask(coordinator, keys)
    except KafkaError as error:
        return dict.fromkeys(keys, error)
    missing = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator's answer leaves it out")
    return {key: found.get(key, missing) for key in keys}


async def _ask_for_coordinators(
    cluster: Cluster, keys: Sequence[str], deadline_ms: int, key_type: int = GROUP_KEY
) -> dict[str, BrokerDescription | KafkaError]:
    """One attempt, for all of them at once where the broker can."""
    request = FindCoordinatorRequest(key=keys[0], key_type=key_type, coordinator_keys=list(keys))
    connection = await cluster.any_broker(deadline_ms)
    version = connection.version_for(request)
    if key_type != GROUP_KEY and version < _KEY_TYPE_VERSION:
        raise UnsupportedByBrokerError("the broker finds coordinators of groups only")
    if len(keys) > 1 and version < _SEVERAL_KEYS_VERSION:
        return {
            key: (await _ask_for_coordinators(cluster, [key], deadline_ms, key_type))[key] for key in keys
        }
    response = await cluster.ask_any(request, deadline_ms)
    if not response.coordinators:
        check(response.error_code, response.error_message, f"FindCoordinator of {keys[0]}")
        return {keys[0]: BrokerDescription(response.node_id, response.host, response.port, None)}
    if len(keys) == 1:
        return {keys[0]: _located(response.coordinators[0])}
    found = {coordinator.key: _located(coordinator) for coordinator in response.coordinators}
    if found.keys() != set(keys):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "FindCoordinator: not the keys of the request")
    return found


def _located(result: Coordinator) -> BrokerDescription | KafkaError:
    if result.error_code:
        code = ErrorCode(result.error_code)
        return KafkaError(code, result.error_message or f"FindCoordinator of {result.key}: {code.name}")
    return BrokerDescription(result.node_id, result.host, result.port, None)


def _slices(items: Sequence[str]) -> list[Sequence[str]]:
    return [items[at : at + _KEYS_IN_A_REQUEST] for at in range(0, len(items), _KEYS_IN_A_REQUEST)]
