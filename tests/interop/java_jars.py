"""Kafka's own jars, downloaded once from Maven Central into the user's cache directory.

Without Java, Maven or the network the tests that need them are skipped with a message.
"""

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Timer
from typing import Final

import pytest

from pykraft.testing.processes.kafka_jars import NoKafkaError, find_server
from pykraft.testing.processes.maven import MavenError, cache_directory, download

FETCH_TIMEOUT_S: Final = 60
RUN_TIMEOUT_S: Final = 60
CLIENTS_VERSION: Final = "4.3.0"


class KafkaTools:
    """The command-line tools of Apache Kafka.

    One JVM runs them all, one after another (``ToolRunner.java``), since to start one takes a second or more.
    Without a compiler each runs in its own, as their scripts run them.
    """

    def __init__(self, jars: Path) -> None:
        self.jars = jars
        self._java = ("java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*")
        self._runner: subprocess.Popen[str] | None = None
        self._turn = Lock()

    def run(self, main_class: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run one tool to its end, whatever its exit status."""
        if shutil.which("javac") is None:
            return self.run_alone(main_class, *arguments)
        command = [main_class, *map(str, arguments)]
        with self._turn:
            answer = self._ask(json.dumps(command))
        status, out, err = json.loads(answer)
        return subprocess.CompletedProcess(command, status, out, err)

    def run_alone(self, main_class: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """The same in a JVM of its own."""
        return run([*self._java, main_class, *map(str, arguments)], RUN_TIMEOUT_S)

    def check(self, main_class: str, *arguments: object) -> str:
        """The output of a tool that must succeed."""
        done = self.run(main_class, *arguments)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout

    def close(self) -> None:
        """End the JVM. The next tool starts a new one."""
        if self._runner is not None:
            self._runner.kill()
            self._runner.communicate()
            self._runner = None

    def _ask(self, line: str) -> str:
        runner = self._runner or self._start()
        assert runner.stdin is not None and runner.stdout is not None
        late = Timer(RUN_TIMEOUT_S, runner.kill)
        late.start()
        try:
            print(line, file=runner.stdin, flush=True)
            answer = runner.stdout.readline()
        finally:
            late.cancel()
        if not answer:
            runner.kill()
            _, errors = runner.communicate()
            self._runner = None
            pytest.fail(f"no answer in {RUN_TIMEOUT_S} s, or the JVM has ended: {line}\n{errors}")
        return answer

    def _start(self) -> subprocess.Popen[str]:
        classes = compiled("ToolRunner", self.jars)
        java, *options, _, jars = self._java
        command = [java, *options, "-cp", f"{classes}:{jars}", "ToolRunner"]
        self._runner = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        return self._runner


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


def fetch_server(what: str) -> Path:
    """The directory of Apache Kafka's server and tools; without it skip ``what``."""
    try:
        return find_server(timeout_s=FETCH_TIMEOUT_S)
    except NoKafkaError as error:
        pytest.skip(f"{what} NOT TESTED: {error}")


def compile_client(name: str) -> str:
    """Compile ``name``.java of this directory with Kafka's client; the path of both."""
    return compile_java("JAVA CLIENTS", name, "kafka-clients", CLIENTS_VERSION)


def compile_java(what: str, name: str, artifact: str, version: str) -> str:
    """Compile ``name``.java of this directory with an artifact of Apache Kafka; the path of both."""
    need(what, "java", "javac")
    jars = fetch_jars(what, f"{artifact}-{version}", [f"org.apache.kafka:{artifact}:{version}"])
    return f"{compiled(name, jars)}:{jars}/*"


def compiled(name: str, jars: Path) -> Path:
    """The classes of ``name``.java, compiled once for this source, these jars and this compiler."""
    source = Path(__file__).with_name(f"{name}.java")
    version = run(["javac", "-version"], RUN_TIMEOUT_S).stdout.strip()
    key = hashlib.sha256(f"{jars.name}\n{version}\n".encode() + source.read_bytes()).hexdigest()[:16]
    classes = cache_directory() / "classes" / f"{name}-{key}"
    if not classes.exists():
        classes.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=classes.parent) as directory:
            fresh = Path(directory) / "fresh"
            command = ["javac", "-cp", f"{jars}/*", "-d", str(fresh), str(source)]
            done = run(command, RUN_TIMEOUT_S, Path(directory))
            assert done.returncode == 0, done.stderr
            with suppress(OSError):  # another process was first
                fresh.rename(classes)
    return classes
