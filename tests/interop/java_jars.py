"""Kafka's own jars, downloaded once from Maven Central into the user's cache directory.

Without Java, Maven or the network the tests that need them are skipped with a message.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from comparison.maven import MavenError, cache_directory, download

FETCH_TIMEOUT_S: Final = 60
RUN_TIMEOUT_S: Final = 60
CLIENTS_VERSION: Final = "4.1.0"


@dataclass(frozen=True)
class KafkaTools:
    """The command-line tools of Apache Kafka, run as their scripts run them."""

    jars: Path

    def run(self, main_class: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run one tool to its end, whatever its exit status."""
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{self.jars}/*", main_class]
        return run([*command, *map(str, arguments)], RUN_TIMEOUT_S)

    def check(self, main_class: str, *arguments: object) -> str:
        """The output of a tool that must succeed."""
        done = self.run(main_class, *arguments)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout


def run(
    command: Sequence[str], timeout_s: float, directory: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=directory
    )


def need(what: str, *programs: str) -> None:
    """Skip the test with a clear message unless all of these programs are installed."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{what} NOT TESTED: {program} is not installed")


def fetch_jars(what: str, name: str, artifacts: Iterable[str]) -> Path:
    """The directory of these ``group:artifact:version`` and their dependencies; without it skip ``what``."""
    installed = cache_directory() / name
    if not installed.exists():
        try:
            download(artifacts, installed, FETCH_TIMEOUT_S)
        except MavenError as error:
            pytest.skip(f"{what} NOT TESTED: {error}")
    return installed


def compile_client(name: str, classes: Path) -> str:
    """Compile ``name``.java of this directory with Kafka's client into ``classes``; the path of both."""
    return compile_java("JAVA CLIENTS", name, classes, "kafka-clients", CLIENTS_VERSION)


def compile_java(what: str, name: str, classes: Path, artifact: str, version: str) -> str:
    """Compile ``name``.java of this directory with an artifact of Apache Kafka; the path of both."""
    need(what, "java", "javac")
    jars = fetch_jars(what, f"{artifact}-{version}", [f"org.apache.kafka:{artifact}:{version}"])
    source = Path(__file__).with_name(f"{name}.java")
    done = run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(source)], RUN_TIMEOUT_S, classes)
    assert done.returncode == 0, done.stderr
    return f"{classes}:{jars}/*"
