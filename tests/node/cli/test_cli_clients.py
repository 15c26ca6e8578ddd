"""Commands that meet errors: one line, an exit code, and no record lost."""

import io
import signal
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import ClusterMetadata

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.node.cli.cluster import broker_api_versions
from pykraft.node.cli.console import librdkafka
from pykraft.node.cli.shared import reach
from pykraft.testing import Cluster
from tests.node.cli_runner import answer, invoke, output, refusal


@pytest.mark.parametrize("tool", ["producer --topic t", "consumer --topic t", "topics --list"])
@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ("127.0.0.1:1", "no process listens at 127.0.0.1:1"),
        ("no-such-host.invalid:1", "cannot resolve no-such-host.invalid: "),
        (
            "no-such-host.invalid:1,127.0.0.1:1",
            "no process listens at 127.0.0.1:1; cannot resolve no-such-host",
        ),
    ],
)
def test_unreachable_cluster_is_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, tool: str, servers: str, said: str
) -> None:
    monkeypatch.setattr(reach, "_TIMEOUT_S", 0.1)
    result = invoke(*tool.split(), "--bootstrap-server", servers, stdin=b"x\n")
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {said}")


@pytest.mark.parametrize("servers", ["nonsense", "a..b:1", ""])
def test_invalid_address_is_a_usage_error(servers: str) -> None:
    assert invoke("producer", "--bootstrap-server", servers, "--topic", "t", stdin=b"x\n").exit_code == 1


def test_lines_before_one_that_is_too_large_are_delivered(kafka: Cluster, kafka_topic: str) -> None:
    result = invoke(
        *("producer", "--bootstrap-server", kafka.bootstrap_servers, "--topic", kafka_topic),
        stdin=b"1\n2\n%b\n4\n" % (b"x" * 2_000_000),
    )
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: line 3 cannot be sent: ") and "too large" in line
    assert [it.value for it in kafka.read(kafka_topic)] == [b"1", b"2"]


class InterruptedInput(io.BytesIO):
    """Lines, and then Ctrl-C."""

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line:
            raise KeyboardInterrupt
        return line


def test_interrupted_producer_delivers_what_it_has_read(kafka: Cluster, kafka_topic: str) -> None:
    result = invoke(
        *("producer", "--bootstrap-server", kafka.bootstrap_servers, "--topic", kafka_topic),
        *("--timeout", "200000"),
        stdin=InterruptedInput(b"1\n2\n"),
    )
    assert (result.exit_code, result.output) == (128 + signal.SIGINT, "")
    assert [it.value for it in kafka.read(kafka_topic)] == [b"1", b"2"]


@pytest.fixture
def stopping_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a cluster that stops when a command has had its first answer."""
    first_answer = librdkafka.Connection.first_answer
    with Cluster() as cluster:

        def answer_and_die(
            connection: librdkafka.Connection, client: Consumer | Producer, topic: str | None
        ) -> ClusterMetadata:
            answer = first_answer(connection, client, topic)
            cluster.kill(1)
            return answer

        monkeypatch.setattr(librdkafka.Connection, "first_answer", answer_and_die)
        monkeypatch.setattr(librdkafka, "_OUTAGE_TIMEOUT_S", 0.1)
        yield cluster.bootstrap_servers


@pytest.mark.parametrize(
    ("tool", "said"),
    [("producer", "Error: 2 of 2 records were not delivered: no broker"), ("consumer", "Error: no broker")],
)
def test_cluster_that_stops_ends_the_command_with_one_line(
    stopping_cluster: str, tool: str, said: str
) -> None:
    result = invoke(tool, "--bootstrap-server", stopping_cluster, "--topic", "t", stdin=b"1\n2\n")
    assert result.exit_code == 1 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(said) and f"of {stopping_cluster} responds: " in line


def test_outage_that_librdkafka_does_not_report_ends_the_command(
    stopping_cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(librdkafka.Connection, "_handle_error", lambda connection, error: None)
    monkeypatch.setattr(librdkafka, "_CONFIRM_EVERY_S", 0.1)
    result = invoke("consumer", "--bootstrap-server", stopping_cluster, "--topic", "t")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: no broker of {stopping_cluster} responds: ")


def test_client_is_named_by_its_properties(
    kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKRAFT_BOOTSTRAP_SERVER", kafka.bootstrap_servers)
    (tmp_path / "me").write_text("client.id=me\n", "utf-8")
    with kafka.refuse("DescribeCluster", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, client_id="me"):
        said = refusal("cluster", "cluster-id", "--config", tmp_path / "me")
        assert output("cluster", "cluster-id"), "another client is not refused"
    assert "CLUSTER_AUTHORIZATION_FAILED" in said


def test_broker_that_cannot_be_asked_is_listed_with_its_error(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(connecting: Coroutine[Any, Any, None]) -> None:
        connecting.close()
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "cannot connect")

    monkeypatch.setenv("PYKRAFT_BOOTSTRAP_SERVER", kafka.bootstrap_servers)
    monkeypatch.setattr(broker_api_versions, "run", refuse)
    assert output("broker-api-versions").endswith(" -> ERROR: cannot connect\n")
    assert answer("broker-api-versions")[0]["error"] == "NETWORK_EXCEPTION: cannot connect"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "missing", "package"),
    [
        (("producer", "--help"), "confluent_kafka", "confluent-kafka"),
        (("consumer", "--bootstrap-server", "h:1", "--topic", "t"), "confluent_kafka", "confluent-kafka"),
        (("jepsen", "run"), "rich", "rich"),
    ],
)
def test_command_without_its_package_names_what_to_install(
    arguments: tuple[str, ...], missing: str, package: str
) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from pykraft.node.__main__ import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"Error: this command needs {package}: pip install {package}, or ")
    assert len(result.stderr.splitlines()) == 1
