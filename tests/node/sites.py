"""The directories of one node that has run, and functions that change them."""

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import NewTopic
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY
from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.node.config import ServerConfig, load_server_config
from pykraft.node.format import format_directories
from pykraft.node.node import Node
from pykraft.node.run import make_world
from pykraft.runtime.disk import Buffer
from pykraft.runtime.free_ports import free_ports
from pykraft.runtime.os_disk import OsDisk, OsFile
from pykraft.testing.processes.waits import PATIENCE_S

HOST = "127.0.0.1"
TIMEOUT_S = PATIENCE_S
SEGMENT = f"{0:020d}.log"

Damage = Callable[[Path], Path]


class Site:
    """The directories of one node, alone in its cluster, and how to run it."""

    def __init__(self, root: Path, log_voters: bool) -> None:
        self.root = root
        broker, controller = free_ports(2)
        self.broker = f"{HOST}:{broker}"
        self._lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.broker},CONTROLLER://{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "broker.heartbeat.interval.ms": "200",
            "broker.session.timeout.ms": "1000",
        }
        if not log_voters:
            self._lines["controller.quorum.voters"] = f"1@{HOST}:{controller}"
        self._log_voters = log_voters

    @property
    def first(self) -> Path:
        return self.root / "a"

    @property
    def second(self) -> Path:
        return self.root / "b"

    @property
    def metadata(self) -> Path:
        return self.first / METADATA_LOG_DIRECTORY

    def config(self, **overrides: str) -> ServerConfig:
        lines = self._lines | {"log.dirs": f"{self.first},{self.second}"}
        lines |= {key.replace("_", "."): value for key, value in overrides.items()}
        return load_server_config("\n".join(f"{key}={value}" for key, value in lines.items()))

    def format(self) -> None:
        numbers = iter(range(1, 100))
        format_directories(
            OsDisk(),
            self.config(),
            "cluster-1",
            BOOTSTRAP_FEATURES,
            lambda: bytes([next(numbers)] * 16),  # type: ignore[arg-type,return-value]
            0,
            standalone=self._log_voters,
        )

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in sorted(self.root.rglob("*")) if path.is_file()}


async def run_node(
    site: Site, work: Callable[[], Any] | None = None, disk: OsDisk | None = None, **overrides: str
) -> list[BaseException]:
    """Start the node, do ``work`` in a thread, stop it; the fatal faults it reported."""
    fatal: list[BaseException] = []
    halted = asyncio.Event()

    def on_fatal(error: BaseException) -> None:
        fatal.append(error)
        halted.set()

    async with asyncio.timeout(TIMEOUT_S):
        config = site.config(**overrides)
        node = Node(config, make_world(config, on_fatal, disk=disk))
        try:
            await node.start()
            if work is not None:
                await asyncio.to_thread(work)
            if isinstance(disk, FaultyDisk):
                await halted.wait()
                disk.broken = False  # a real process would have ended here
        finally:
            await node.stop()
    return fatal


def create(site: Site, *names: str) -> None:
    with AdminClient(site.broker) as admin:
        for name in names:
            (created,) = admin.create_topics([NewTopic(name, 1, 1)], timeout_ms=5_000)
            created.check()


def topics(site: Site) -> set[str]:
    with AdminClient(site.broker) as admin:
        return {topic.name for topic in admin.list_topics()}


def flip_a_byte(path: Path, position: int) -> Path:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
    return path


class FaultyFile(OsFile):
    """A file that fails as configured in its disk."""

    disk: "FaultyDisk"

    def append(self, data: Buffer) -> None:
        self.disk.check("append", self.path)
        super().append(data)

    def flush(self) -> None:
        self.disk.check("flush", self.path)
        super().flush()


class FaultyDisk(OsDisk):
    """Real files; once ``broken`` is set, one operation on files of one name fails."""

    def __init__(self, operation: str, part: str, number: int) -> None:
        super().__init__()
        self._operation = operation
        self._part = part
        self._number = number
        self.broken = False

    def check(self, operation: str, path: str) -> None:
        if self.broken and operation == self._operation and self._part in path:
            raise OSError(self._number, errno.errorcode[self._number], path)

    def open(self, path: str, *, create: bool = True) -> OsFile:
        plain = super().open(path, create=create)
        plain.close()
        file = FaultyFile(path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))
        file.disk = self
        return file
