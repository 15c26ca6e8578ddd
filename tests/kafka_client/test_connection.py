"""One connection: negotiation, correlation, timeouts, clear errors."""

from collections.abc import Callable

import pytest

from pykraft.kafka_client.blocking import run
from pykraft.kafka_client.connection import Connection
from pykraft.kafka_client.errors import (
    ClientTimeoutError,
    ConnectionFailedError,
    MalformedAnswerError,
    UnsupportedByBrokerError,
)
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from pykraft.runtime.address import Address
from tests.kafka_client.scripted import Answer, Handler, ScriptedCluster


def open_connection(scripted: ScriptedCluster, broker_id: int = 1) -> Connection:
    return run(Connection.open(scripted.network, Address("broker", broker_id), "test", 60_000))


def test_newest_version_that_both_sides_support_is_used(scripted: ScriptedCluster) -> None:
    scripted.brokers[1].ranges[ApiKey.METADATA] = (0, 8)
    connection = open_connection(scripted)
    run(connection.call(MetadataRequest(topics=None), 60_000))
    assert [version for _, version, _ in scripted.requests(ApiKey.METADATA)] == [8]


def test_ceiling_lowers_the_version(scripted: ScriptedCluster) -> None:
    connection = open_connection(scripted)
    assert connection.version_for(MetadataRequest(), max_version=5) == 5


def refuse_until(accepted: int, answered_in: Callable[[int], int]) -> Handler:
    """A broker that answers ApiVersions above ``accepted`` with UNSUPPORTED_VERSION, encoded as given."""

    def handler(request: ApiVersionsRequest, version: int) -> Answer:
        keys = [ApiVersion(api_key=18, min_version=0, max_version=accepted)]
        if version > accepted:
            return ApiVersionsResponse(error_code=35, api_keys=keys).encode(answered_in(version))
        return ApiVersionsResponse(api_keys=keys)

    return handler


@pytest.mark.parametrize("accepted", [0, 2, 3])
@pytest.mark.parametrize("answered_in", [lambda asked: 0, lambda asked: asked], ids=["v0", "as asked"])
def test_refused_api_versions_request_is_sent_again_in_a_lower_version(
    scripted: ScriptedCluster, accepted: int, answered_in: Callable[[int], int]
) -> None:
    scripted.brokers[1].handlers[ApiKey.API_VERSIONS] = refuse_until(accepted, answered_in)
    connection = open_connection(scripted)
    assert connection.versions == {18: (0, accepted)}
    assert [v for _, v, _ in scripted.requests(ApiKey.API_VERSIONS)] == [4, accepted]


def test_rejected_client_name_falls_back_to_version_0(scripted: ScriptedCluster) -> None:
    scripted.brokers[1].handlers[ApiKey.API_VERSIONS] = lambda request, version: ApiVersionsResponse(
        error_code=42 if version >= 3 else 0
    )
    open_connection(scripted)
    assert [v for _, v, _ in scripted.requests(ApiKey.API_VERSIONS)] == [4, 0]


def test_api_the_broker_lacks_is_a_clear_error(scripted: ScriptedCluster) -> None:
    connection = open_connection(scripted)
    connection.versions.pop(ApiKey.METADATA)
    with pytest.raises(UnsupportedByBrokerError, match="broker:1 does not serve METADATA"):
        connection.version_for(MetadataRequest())


def test_disjoint_version_ranges_are_a_clear_error(scripted: ScriptedCluster) -> None:
    connection = open_connection(scripted)
    connection.versions[ApiKey.METADATA] = (20, 22)
    with pytest.raises(UnsupportedByBrokerError, match="versions 20 to 22"):
        connection.version_for(MetadataRequest())


def test_unreachable_address_is_named_in_the_error(scripted: ScriptedCluster) -> None:
    scripted.brokers[2].up = False
    with pytest.raises(ConnectionFailedError, match="cannot connect to broker:2"):
        open_connection(scripted, 2)


def test_missing_response_is_a_timeout_and_closes_the_connection(scripted: ScriptedCluster) -> None:
    connection = open_connection(scripted)
    scripted.brokers[1].handlers[ApiKey.METADATA] = lambda request, version: TimeoutError()
    with pytest.raises(ClientTimeoutError, match="did not answer METADATA in time"):
        run(connection.call(MetadataRequest(topics=None), 60_000))
    assert connection.closed


def test_broken_connection_names_the_request(scripted: ScriptedCluster) -> None:
    connection = open_connection(scripted)
    scripted.brokers[1].handlers[ApiKey.METADATA] = lambda request, version: ConnectionResetError("gone")
    with pytest.raises(ConnectionFailedError, match="broke during METADATA: gone"):
        run(connection.call(MetadataRequest(topics=None), 60_000))
    with pytest.raises(ConnectionFailedError, match="is closed"):
        run(connection.call(MetadataRequest(topics=None), 60_000))


def test_malformed_answer_is_final_and_closes_the_connection(scripted: ScriptedCluster) -> None:
    connection = open_connection(scripted)
    scripted.brokers[1].handlers[ApiKey.METADATA] = lambda request, version: b"\x00\x01"
    with pytest.raises(MalformedAnswerError) as caught:
        run(connection.call(MetadataRequest(topics=None), 60_000))
    assert not caught.value.code.retriable
    assert connection.closed


def test_answer_to_another_request_is_refused(
    scripted: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = open_connection(scripted)
    broker = scripted.brokers[1]
    monkeypatch.setattr(broker, "answer", lambda frame: b"\x00\x00\x00\x63\x00")
    with pytest.raises(MalformedAnswerError, match="answered request 99"):
        run(connection.call(MetadataRequest(topics=None), 60_000))


def test_requests_sent_ahead_are_answered_in_order(scripted: ScriptedCluster) -> None:
    connection = open_connection(scripted)
    scripted.add_topic("a", {0: (1, 0)})
    run(connection.send(MetadataRequest(topics=[]), 60_000))
    run(connection.send(MetadataRequest(topics=None), 60_000))
    assert run(connection.receive(MetadataResponse, 60_000)).topics == []
    assert [topic.name for topic in run(connection.receive(MetadataResponse, 60_000)).topics] == ["a"]


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", [Address("a", 1)]),
        (" a:1 , b:2,", [Address("a", 1), Address("b", 2)]),
        ("[::1]:9092", [Address("::1", 9092)]),
        ("a:1,a:1", [Address("a", 1)]),
    ],
)
def test_bootstrap_servers_are_parsed(text: str, addresses: list[Address]) -> None:
    assert parse_bootstrap_servers(text) == tuple(addresses)


@pytest.mark.parametrize("text", ["", " , ", "host", "host:", ":9", "h:0", "h:65536", "h:x", "::1:9092"])
def test_malformed_bootstrap_servers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"bootstrap\.servers"):
        parse_bootstrap_servers(text)
