"""``pykraft producer`` on a node in the process of the test."""

import os
import pty
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from pykraft.kafka_client.producer.partitioner import partition_of_key
from pykraft.node.cli.console.producer import producer_settings, setting_options
from pykraft.testing import Cluster, ErrorCode
from tests.node.cli_runner import invoke


@click.command()
@setting_options
def show_settings() -> None:
    for name, value in producer_settings({"linger.ms": "7", "batch.size": "1"}).items():
        print(f"{name}={value}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), {"linger.ms=7", "batch.size=1", "enable.idempotence=true", "partitioner=murmur2_random"}),
        (("--compression-codec", "--batch-size=2"), {"compression.type=gzip", "batch.size=2", "linger.ms=7"}),
        (("--compression-codec", "zstd"), {"compression.type=zstd"}),
        (("--request-required-acks", "-1"), {"acks=-1", "enable.idempotence=true"}),
        (("--request-required-acks", "1"), {"acks=1", "enable.idempotence=false"}),
        (("--message-send-max-retries", "0"), {"retries=0", "enable.idempotence=false"}),
        (("--timeout", "5", "--retry-backoff-ms", "3"), {"linger.ms=5", "retry.backoff.ms=3"}),
        (("--request-timeout-ms", "4"), {"request.timeout.ms=4"}),
        (("--metadata-expiry-ms", "6"), {"metadata.max.age.ms=6"}),
        (("--max-memory-bytes", "8", "--max-block-ms", "0"), {"buffer.memory=8", "max.block.ms=0"}),
        (("--max-partition-memory-bytes", "9"), {"batch.size=9"}),
        (("--socket-buffer-size", "-1"), {"send.buffer.bytes=-1"}),
    ],
)  # fmt: skip
def test_flags_set_properties_and_take_precedence(arguments: tuple[str, ...], expected: set[str]) -> None:
    shown = CliRunner().invoke(show_settings, arguments)
    assert shown.exit_code == 0, shown.output
    assert expected <= set(shown.stdout.splitlines())


@pytest.mark.kafka(partitions=5)
def test_key_has_the_partition_that_javas_producer_gives_it(kafka: Cluster, kafka_topic: str) -> None:
    keys = [f"key-{n}" for n in range(20)]
    sent = invoke(
        *("producer", "--bootstrap-server", kafka.bootstrap_servers, "--topic", kafka_topic),
        *("--reader-property", "parse.key=true"),
        stdin="".join(f"{key}\t.\n" for key in keys).encode(),
    )
    assert (sent.exit_code, sent.output) == (0, "")
    found = {(it.key or b"").decode(): it.partition for it in kafka.read(kafka_topic, 20)}
    assert found == {key: partition_of_key(key.encode(), 5) for key in keys}


def test_record_that_a_broker_refuses_ends_the_command(kafka: Cluster, kafka_topic: str) -> None:
    kafka.refuse("Produce", ErrorCode.INVALID_RECORD)
    sent = invoke(
        *("producer", "--bootstrap-server", kafka.bootstrap_servers, "--topic", kafka_topic, "--sync"),
        stdin=b"1\n2\n",
    )
    assert sent.exit_code == 1
    assert sent.stderr.startswith("Error: stopped after line 1; 1 of 1 records were not delivered: ")


def test_record_that_finds_no_room_is_refused_after_max_block_ms(kafka: Cluster, kafka_topic: str) -> None:
    sent = invoke(
        *("producer", "--bootstrap-server", kafka.bootstrap_servers, "--topic", kafka_topic),
        *("--max-memory-bytes", "1024", "--max-block-ms", "1", "--command-property", "metric.reporters=x"),
        stdin=b"small\n" + b"x" * 5000,
    )
    assert sent.exit_code == 1
    assert sent.stderr.splitlines() == [
        "warning: metric.reporters has no effect here",
        "Error: line 2 was not sent: the buffer is full",
    ]
    assert [it.value for it in kafka.read(kafka_topic)] == [b"small"]


@pytest.mark.slow
def test_lines_that_are_typed_have_a_prompt(kafka: Cluster, kafka_topic: str) -> None:
    ours, theirs = pty.openpty()
    command = (sys.executable, "-m", "pykraft.node", "producer", "--topic", kafka_topic)
    with subprocess.Popen(
        [*command, "--bootstrap-server", kafka.bootstrap_servers], stdin=theirs, stdout=theirs, stderr=theirs
    ) as typing:
        os.close(theirs)
        assert os.read(ours, 1) == b">"
        os.write(ours, b"typed\n\x04")
        shown = b""
        while chunk := _read(ours):
            shown += chunk
        assert typing.wait() == 0, shown
    os.close(ours)
    assert shown.replace(b"\r", b"") == b"typed\n>"
    assert [it.value for it in kafka.read(kafka_topic)] == [b"typed"]


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1000)
    except OSError:  # the other side is closed
        return b""
