"""The ``pykraft`` command as a process, and a development cluster to use it on."""

import asyncio
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from pykraft.testing.processes.waits import PATIENCE_S
from tests.node.sites import Site, create, run_node

COMMAND = (sys.executable, "-m", "pykraft.node")
TIMEOUT_S = PATIENCE_S

Pykraft = Callable[..., subprocess.CompletedProcess[str]]


class Background:
    """A ``pykraft`` command that keeps running. Its output is read as it arrives."""

    def __init__(self, arguments: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.printed = ""
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(environment),
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self._output: IO[bytes] = self.process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ)

    def wait_for(self, text: str, timeout_s: float = TIMEOUT_S) -> str:
        """Read until a line with ``text`` is complete; returns that line."""
        deadline = time.monotonic() + timeout_s
        while True:
            for line in self.printed.split("\n")[:-1]:
                if text in line:
                    return line
            left = deadline - time.monotonic()
            assert left > 0 and self._selector.select(left), f"no {text!r} in time:\n{self.printed}"
            data = os.read(self._output.fileno(), 65536)
            assert data, f"ended without {text!r}:\n{self.printed}"
            self.printed += data.decode("utf-8", "replace")

    def stop(self, number: signal.Signals = signal.SIGINT, timeout_s: float = TIMEOUT_S) -> int:
        """Signal the process; returns its exit status. The rest of its output is in ``printed``."""
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=timeout_s)
        self.printed += rest.decode("utf-8", "replace")
        return self.process.returncode

    def kill(self) -> None:
        self._selector.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._output.close()


@contextmanager
def background(*arguments: str, **environment: str) -> Iterator[Background]:
    running = Background(arguments, environment)
    try:
        yield running
    finally:
        running.kill()


@pytest.fixture
def terminal_can_hang_up() -> Iterator[None]:
    """Children receive SIGHUP, even if these tests were started by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture(scope="session")
def pykraft() -> Pykraft:
    """Run one command to its end."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def start_pykraft() -> Callable[..., object]:
    """``with start_pykraft("dev", …) as running:`` a command that keeps running; killed at the end."""
    return background


@pytest.fixture(scope="session")
def dev_server() -> Iterator[str]:
    """The bootstrap servers of a development cluster of one node."""
    with background("dev", "--port", "0") as running:
        yield running.wait_for("Bootstrap servers:").split(": ")[1]
        assert running.stop() == 0, running.printed


@pytest.fixture
def server_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a server.properties for a combined node; keyword arguments replace properties (_ for .)."""

    def write(name: str = "server", **properties: str) -> Path:
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(tmp_path / f"{name}-data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        } | {key.replace("_", "."): value for key, value in properties.items()}
        file = tmp_path / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in values.items()), encoding="utf-8")
        return file

    return write


@pytest.fixture(scope="session")
def used_sites(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Site]:
    """Two nodes that have run and stopped, with voters by id and with voters in the log; topics t1 and t2."""
    sites = {log_voters: Site(tmp_path_factory.mktemp("site"), log_voters) for log_voters in (False, True)}
    for site in sites.values():
        site.format()
        assert asyncio.run(run_node(site, lambda site=site: create(site, "t1", "t2"))) == []  # type: ignore[misc]
    return sites


@pytest.fixture
def site(request: pytest.FixtureRequest, used_sites: dict[bool, Site], tmp_path: Path) -> Iterator[Site]:
    """A copy of a used site; with voters in the log where a test says so."""
    used = used_sites[getattr(request, "param", False)]
    kept = used.root
    used.root = tmp_path / "copy"
    shutil.copytree(kept, used.root)
    yield used
    used.root = kept
