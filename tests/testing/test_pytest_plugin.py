"""The pytest plugin, in sessions of pytest of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest
from pykraft.testing import KafkaError

def test_topic(kafka, kafka_topic):
    kafka.produce(kafka_topic, "v")
    assert [one.value for one in kafka.read(kafka_topic)] == [b"v"]

def test_another(kafka, kafka_cluster, kafka_topic):
    assert kafka is kafka_cluster and kafka.read(kafka_topic) == []
    kafka.kill(1)

@pytest.mark.kafka(partitions=3, configs={"cleanup.policy": "compact"})
def test_healed(kafka, kafka_topic):
    kafka.produce(kafka_topic, ("k", "v"), partition=2)

@pytest.mark.kafka(properties={"message.max.bytes": "1000"})
@pytest.mark.parametrize("size", [10, 2000])
def test_properties(kafka, kafka_topic, size):
    try:
        kafka.produce(kafka_topic, b"x" * size)
    except KafkaError:
        assert size == 2000
    else:
        assert size == 10
"""


COROUTINES = """
import asyncio, inspect
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        names = inspect.signature(pyfuncitem.obj).parameters
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True
"""
TESTS_WITH_COROUTINES = """
import asyncio

async def test_async(kafka_async, kafka, kafka_topic):
    reading = asyncio.create_task(kafka_async.read(kafka_topic, 1))
    await kafka_async.produce(kafka_topic, "v")
    assert [one.value for one in await reading] == [b"v"]
    assert kafka_async.cluster is kafka

async def test_blocking(kafka, kafka_topic):
    kafka.read(kafka_topic, 1)
"""


def run(directory: Path, tests: str, *arguments: str, ini: str = "") -> subprocess.CompletedProcess[str]:
    (directory / "test_it.py").write_text(tests)
    (directory / "pytest.ini").write_text(f"[pytest]\n{ini}")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = ["-q", "-p", "pykraft.pytest_plugin", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n", "2")])
def test_fixtures_give_clusters_and_topics(tmp_path: Path, workers: tuple[str, ...]) -> None:
    done = run(tmp_path, TESTS, "--strict-markers", *workers)
    assert "5 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_options_are_those_of_the_ini_file_and_failures_show_what_processes_printed(tmp_path: Path) -> None:
    tests = "def test_it(kafka):\n    assert kafka.nodes == (1, 2)\n    assert False"
    ini = "kafka_nodes = 2\nkafka_processes = true\nkafka_properties =\n    num.partitions=3\n"
    done = run(tmp_path, tests, ini=ini)
    assert "1 failed" in done.stdout and "Kafka node 2" in done.stdout and "is up at" in done.stdout


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ("nodes=1, node=2", "takes names only, and no node"),
        ("1", "takes names only, and no values"),
    ],
)
def test_marker_with_unknown_names_is_refused(tmp_path: Path, marker: str, said: str) -> None:
    done = run(tmp_path, f"import pytest\n@pytest.mark.kafka({marker})\ndef test_it(kafka):\n    pass")
    assert said in done.stdout and done.returncode != 0


def test_coroutines_have_a_fixture_and_are_told_of_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(COROUTINES)
    done = run(tmp_path, TESTS_WITH_COROUTINES)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "RuntimeError: read() waits" in done.stdout and "fixture kafka_async" in done.stdout
