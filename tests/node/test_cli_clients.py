"""``pykraft producer`` and ``consumer`` with errors: one line, an exit code, and no record lost."""

from __future__ import annotations

import io
import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer

from pykraft.node.cli import librdkafka
from pykraft.node.cli.root import cli

pytestmark = pytest.mark.slow

Pykraft = Callable[..., Any]
_topics = (f"clients-{n}" for n in itertools.count(1))


@pytest.fixture
def topic() -> str:
    return next(_topics)


@pytest.fixture
def read(pykraft: Pykraft, dev_server: str) -> Callable[[str, int], list[str]]:
    """The first records of a topic of one partition."""

    def run(topic: str, count: int) -> list[str]:
        result = pykraft(
            *("consumer", "--bootstrap-server", dev_server, "--topic", topic, "--partition", "0"),
            *("--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000"),
        )
        assert result.returncode == 0, result.stderr
        lines: list[str] = result.stdout.splitlines()
        return lines

    return run


@pytest.mark.parametrize("tool", ["producer", "consumer"])
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
    pykraft: Pykraft, tool: str, servers: str, said: str
) -> None:
    result = pykraft(tool, "--bootstrap-server", servers, "--topic", "t", stdin="x\n")
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"Error: {said}")


@pytest.mark.parametrize("servers", ["nonsense", "a..b:1", ""])
def test_invalid_address_is_a_usage_error(pykraft: Pykraft, servers: str) -> None:
    result = pykraft("producer", "--bootstrap-server", servers, "--topic", "t", stdin="x\n")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_lines_before_a_bad_one_are_delivered(
    pykraft: Pykraft, dev_server: str, topic: str, read: Callable[[str, int], list[str]]
) -> None:
    result = pykraft(
        *("producer", "--bootstrap-server", dev_server, "--topic", topic),
        *("--property", "parse.key=true", "--property", "key.separator=:"),
        stdin="a:1\nb:2\nno separator\nc:3\n",
    )
    assert (result.returncode, result.stderr) == (1, "Error: no key separator in line 3\n")
    assert read(topic, 2) == ["1", "2"]


def test_lines_before_one_that_is_too_large_are_delivered(
    pykraft: Pykraft, dev_server: str, topic: str, read: Callable[[str, int], list[str]]
) -> None:
    lines = f"1\n2\n{'x' * 2_000_000}\n4\n"
    result = pykraft("producer", "--bootstrap-server", dev_server, "--topic", topic, stdin=lines)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: line 3 cannot be sent: ") and "too large" in line
    assert read(topic, 2) == ["1", "2"]


class InterruptedInput(io.BytesIO):
    """Lines, and then Ctrl-C."""

    def __next__(self) -> bytes:
        line = self.readline()
        if not line:
            raise KeyboardInterrupt
        return line


@pytest.fixture
def invoke() -> Iterator[Callable[..., Result]]:
    """Run a command in this process."""
    before = signal.getsignal(signal.SIGTERM)
    yield lambda *arguments, stdin=b"": CliRunner().invoke(cli, arguments, input=stdin)
    signal.signal(signal.SIGTERM, before)


def test_interrupted_producer_delivers_what_it_has_read(
    invoke: Callable[..., Result], dev_server: str, topic: str, read: Callable[[str, int], list[str]]
) -> None:
    result = invoke(
        *("producer", "--bootstrap-server", dev_server, "--topic", topic),
        *("--producer-property", "linger.ms=200000"),
        stdin=InterruptedInput(b"1\n2\n"),
    )
    assert (result.exit_code, result.stderr) == (1, "Error: interrupted\n")
    assert read(topic, 2) == ["1", "2"]


@pytest.mark.parametrize(
    ("tool", "said"),
    [("producer", "Error: 2 of 2 records were not delivered: no broker"), ("consumer", "Error: no broker")],
)
def test_cluster_that_stops_ends_the_command_with_one_line(
    invoke: Callable[..., Result],
    start_pykraft: Pykraft,
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    tool: str,
    said: str,
) -> None:
    with start_pykraft("dev", "--port", "0") as running:
        bootstrap = running.wait_for("Bootstrap servers:").split(": ")[1]
        first_answer = librdkafka.Connection.first_answer

        def answer_and_die(
            connection: librdkafka.Connection, client: Consumer | Producer, topic: str
        ) -> frozenset[int]:
            partitions = first_answer(connection, client, topic)
            assert running.stop() == 0
            return partitions

        monkeypatch.setattr(librdkafka.Connection, "first_answer", answer_and_die)
        monkeypatch.setattr(librdkafka, "_OUTAGE_TIMEOUT_S", 0.1)
        result = invoke(tool, "--bootstrap-server", bootstrap, "--topic", topic, stdin=b"1\n2\n")
    assert result.exit_code == 1 and result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(said) and f"of {bootstrap} responds: " in line


def test_missing_partition_is_not_waited_for(pykraft: Pykraft, dev_server: str, topic: str) -> None:
    on_topic = ("--bootstrap-server", dev_server, "--topic", topic)
    assert pykraft("topics", *on_topic, "--create").returncode == 0
    result = pykraft("consumer", *on_topic, "--partition", "7", "--from-beginning")
    assert (result.returncode, result.stderr) == (1, f"Error: topic {topic} has no partition 7\n")


@pytest.mark.parametrize("tool", ["producer", "consumer"])
def test_setting_unknown_to_librdkafka_is_a_usage_error(pykraft: Pykraft, dev_server: str, tool: str) -> None:
    result = pykraft(
        *(tool, "--bootstrap-server", dev_server, "--topic", "t", f"--{tool}-property", "no.such=1"),
        stdin="x\n",
    )
    assert result.returncode == 2
    assert 'No such configuration property: "no.such"' in result.stderr


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
