"""Kafka's own jars, downloaded once from Maven Central into the user's cache directory.

Without Java, Maven or the network the tests that need them are skipped with a message.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

FETCH_TIMEOUT_S: Final = 60
RUN_TIMEOUT_S: Final = 60
_SLF4J: Final = "org.slf4j:slf4j-nop:1.7.36"


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
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(base) / "pykraft-interop"
    installed = cache / name
    if installed.exists():
        return installed
    need(what, "mvn")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as directory:
        (Path(directory) / "pom.xml").write_text(_pom([*artifacts, _SLF4J]), encoding="utf-8")
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
        try:
            done = run(command, FETCH_TIMEOUT_S, Path(directory))
        except subprocess.TimeoutExpired:
            pytest.skip(f"{what} NOT TESTED: Maven took more than {FETCH_TIMEOUT_S} s")
        if done.returncode != 0:
            pytest.skip(f"{what} NOT TESTED: Maven failed: {(done.stdout + done.stderr)[-500:]}")
        (Path(directory) / "jars").rename(installed)
    return installed


def _pom(artifacts: Iterable[str]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in (item.split(":") for item in artifacts)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>interop</groupId><artifactId>interop</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
