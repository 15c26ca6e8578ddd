"""Kafka's own Java clients: producer, both group protocols, administration.

The jars come from Maven Central into the user's cache directory, once; without a JDK, Maven or the network
the tests are skipped, and say so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pykraft.jepsen_like.process_cluster import ProcessCluster

pytestmark = pytest.mark.interop

Fresh = Callable[[str], str]
VERSION = "4.1.0"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>interop</groupId><artifactId>interop</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{VERSION}</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
</dependencies></project>
"""
FETCH_TIMEOUT_S = 60
RUN_TIMEOUT_S = 60


def run(command: list[str], timeout_s: float, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=directory
    )


@pytest.fixture(scope="module")
def jars() -> Path:
    for tool in ("java", "javac"):
        if shutil.which(tool) is None:
            pytest.skip(f"JAVA CLIENTS NOT TESTED: {tool} is not installed")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    cache = Path(base) / "pykraft-interop"
    installed = cache / f"kafka-clients-{VERSION}"
    if not installed.exists():
        if shutil.which("mvn") is None:
            pytest.skip("JAVA CLIENTS NOT TESTED: mvn is not installed")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as directory:
            (Path(directory) / "pom.xml").write_text(POM, encoding="utf-8")
            command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"]
            try:
                done = run(command, FETCH_TIMEOUT_S, Path(directory))
            except subprocess.TimeoutExpired:
                pytest.skip(f"JAVA CLIENTS NOT TESTED: Maven took more than {FETCH_TIMEOUT_S} s")
            if done.returncode != 0:
                pytest.skip(f"JAVA CLIENTS NOT TESTED: Maven failed: {(done.stdout + done.stderr)[-500:]}")
            (Path(directory) / "jars").rename(installed)
    return installed


@pytest.fixture(scope="module")
def classpath(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The jars and the compiled client."""
    classes = tmp_path_factory.mktemp("classes")
    source = Path(__file__).with_name("JavaClient.java")
    done = run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(source)], RUN_TIMEOUT_S, classes)
    assert done.returncode == 0, done.stderr
    return f"{classes}:{jars}/*"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_clients_administer_produce_and_share_a_group(
    trio: ProcessCluster, fresh: Fresh, classpath: str, tmp_path: Path, protocol: str
) -> None:
    arguments = [trio.bootstrap_servers, fresh("java"), fresh("group"), protocol]
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "JavaClient", *arguments]
    done = run(command, RUN_TIMEOUT_S, tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "brokers": [1, 2, 3],
        "voters": 3,
        "group_version": 1,
        "elected": True,
        "logs": 4,
        "add": "UnsupportedVersionException",
        "remove": "UnsupportedVersionException",
        "unregister": "BrokerIdNotRegisteredException",
        "cancel": "NoReassignmentInProgressException",
        "feature": "InvalidUpdateVersionException",
        "values": 200,
        "members": 2,
        "latest": 200,
        "committed": 200,
        "done": True,
    }
