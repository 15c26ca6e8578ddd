"""Damage and faults of a node's disks: each ends in a clear message and a safe stop, or in a repair.

A node that has run is copied, damaged, and started again. What is refused is left as it was found, so that it
can be looked at, and put right.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pykraft.jepsen_like.awaiting import PATIENCE_S, wait_until
from pykraft.jepsen_like.free_ports import free_ports
from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.admin_results import ElectionType, NewTopic
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import iter_headers
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY
from pykraft.metadata_log.bootstrap import FILE_NAME as BOOTSTRAP_FEATURES_FILE
from pykraft.metadata_log.features import BOOTSTRAP_FEATURES
from pykraft.node.config import ServerConfig, load_server_config
from pykraft.node.errors import StartError
from pykraft.node.format import format_directories
from pykraft.node.node import Node
from pykraft.node.run import make_world
from pykraft.quorum.bootstrap import BOOTSTRAP_CHECKPOINT
from pykraft.quorum.flushed_mark import FLUSHED_OFFSET_FILE
from pykraft.runtime.disk import Buffer, UnreadableError
from pykraft.runtime.os_disk import OsDisk, OsFile
from pykraft.runtime.properties import ConfigError

pytestmark = pytest.mark.slow

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
                disk.broken = False  # a process would have ended here
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


@pytest.fixture(scope="module")
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


with_both_kinds_of_voters = pytest.mark.parametrize(
    "site", [False, True], ids=["voters by id", "voters in the log"], indirect=True
)


def flip_a_byte(path: Path, position: int) -> Path:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
    return path


def wrong_cluster(site: Site) -> Path:
    path = site.second / "meta.properties"
    path.write_text(path.read_text().replace("cluster-1", "cluster-2"))
    return site.second


def reused_node_id(site: Site) -> Path:
    path = site.second / "meta.properties"
    path.write_text(path.read_text().replace("node.id=1", "node.id=2"))
    return site.second


def missing_directory(site: Site) -> Path:
    shutil.rmtree(site.second)
    return site.second


def copied_directory(site: Site) -> Path:
    shutil.copy(site.first / "meta.properties", site.second)
    return site.second


def second_metadata_log(site: Site) -> Path:
    shutil.copytree(site.metadata, site.second / METADATA_LOG_DIRECTORY)
    return site.second


def missing_metadata_log(site: Site) -> Path:
    shutil.rmtree(site.metadata)
    return site.metadata


def emptied_metadata_log(site: Site) -> Path:
    missing_metadata_log(site)
    site.metadata.mkdir()
    return site.metadata


def metadata_log_without_its_records(site: Site) -> Path:
    for path in site.metadata.iterdir():
        if path.name not in ("quorum-state", BOOTSTRAP_CHECKPOINT):
            path.unlink()
    return site.metadata / FLUSHED_OFFSET_FILE


def corrupt_quorum_state(site: Site) -> Path:
    path = site.metadata / "quorum-state"
    path.write_text(path.read_text()[:-5])
    return path


def missing_quorum_state(site: Site) -> Path:
    (site.metadata / "quorum-state").unlink()
    return Path("quorum-state")


def corrupt_features(site: Site) -> Path:
    return flip_a_byte(site.first / BOOTSTRAP_FEATURES_FILE, 70)


def log_corrupt_in_the_middle(site: Site) -> Path:
    path = site.metadata / SEGMENT
    (_, _), (second, _), *_ = iter_headers(path.read_bytes())
    return flip_a_byte(path, second + 70)


def metadata_replaced_by_zeros(site: Site) -> Path:
    path = site.metadata / SEGMENT
    path.write_bytes(bytes(path.stat().st_size))
    return path


DAMAGES: dict[str, tuple[Callable[[Site], Path], type[Exception], str]] = {
    "wrong cluster id": (wrong_cluster, ConfigError, "cluster-2"),
    "reused node id": (reused_node_id, ConfigError, "belongs to node 2"),
    "missing directory": (missing_directory, ConfigError, "is not formatted"),
    "copied directory": (copied_directory, ConfigError, "has the directory id"),
    "extra metadata log": (second_metadata_log, ConfigError, "holds a metadata log"),
    "missing metadata log": (missing_metadata_log, ConfigError, "its metadata log is gone"),
    "emptied metadata log": (emptied_metadata_log, ConfigError, "its metadata log is gone"),
    "no records": (metadata_log_without_its_records, StartError, "not as formatting leaves it"),
    "corrupt quorum-state": (corrupt_quorum_state, StartError, "is corrupt"),
    "missing quorum-state": (missing_quorum_state, StartError, "lost or replaced"),
    "corrupt bootstrap.checkpoint": (corrupt_features, StartError, "is damaged"),
    "log corrupt in the middle": (log_corrupt_in_the_middle, StartError, "at position"),
}


@with_both_kinds_of_voters
@pytest.mark.parametrize("case", DAMAGES)
def test_damage_is_refused_by_name_and_left_as_it_was(site: Site, case: str) -> None:
    damage, kind, message = DAMAGES[case]
    named = damage(site)
    before = site.files()
    with pytest.raises(kind) as refused:
        asyncio.run(run_node(site))
    assert message in str(refused.value) and str(named) in str(refused.value)
    after = site.files()
    assert {path: after.get(path) for path in before} == before


def test_damaged_partition_costs_that_partition_until_somebody_lets_it_begin_empty(site: Site) -> None:
    (directory,) = [*site.first.glob("t1-0"), *site.second.glob("t1-0")]
    flip_a_byte(directory / "partition.metadata", 15)

    def work() -> None:
        with AdminClient(site.broker) as admin:

            def leader(topic: str) -> int | None:
                return admin.describe_topics([topic])[0].partitions[0].leader

            wait_until("the other partition is led again", lambda: leader("t2") == 1, 10)
            (lost,) = admin.describe_topics(["t1"])[0].partitions
            assert (lost.leader, lost.isr, lost.offline_replicas) == (None, (), (1,))
            (outcome,) = admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition("t1", 0)])
            assert outcome.error is None
            (begun,) = admin.describe_topics(["t1"])[0].partitions
            assert (begun.leader, begun.isr, begun.offline_replicas) == (1, (1,), ())
            wait_until("the partition begins anew", directory.is_dir, 10)

    assert asyncio.run(run_node(site, work)) == []
    assert (directory.parent / "t1-0.00000000-damaged" / "partition.metadata").exists()


@pytest.mark.parametrize("site", [True], indirect=True)
def test_corrupt_first_voters_are_refused_by_name(site: Site) -> None:
    path = flip_a_byte(site.metadata / BOOTSTRAP_CHECKPOINT, 70)
    with pytest.raises(StartError) as refused:
        asyncio.run(run_node(site))
    assert str(path) in str(refused.value)


@pytest.fixture
def snapshots(site: Site) -> list[Path]:
    """The site has written snapshots and let go of the log before the last; t20 is its newest topic."""
    names = [f"t{n}" for n in range(3, 21)]
    overrides = {
        "metadata_log_max_record_bytes_between_snapshots": "500",
        "metadata_log_segment_bytes": "700",
        "metadata_max_retention_bytes": "1",
    }

    def work() -> None:
        create(site, *names)
        wait_until("the log is shortened", lambda: not (site.metadata / SEGMENT).exists(), PATIENCE_S)

    assert asyncio.run(run_node(site, work, **overrides)) == []
    return sorted(path for path in site.metadata.glob("*.checkpoint") if path.name != BOOTSTRAP_CHECKPOINT)


def test_node_starts_from_its_snapshot_when_the_log_before_it_is_gone(
    site: Site, snapshots: list[Path]
) -> None:
    found: set[str] = set()
    assert snapshots and asyncio.run(run_node(site, lambda: found.update(topics(site)))) == []
    assert found >= {f"t{n}" for n in range(1, 21)}


def test_corrupt_snapshot_is_refused_by_name_and_left_as_it_was(site: Site, snapshots: list[Path]) -> None:
    damaged = flip_a_byte(snapshots[-1], 300)
    before = damaged.read_bytes()
    with pytest.raises(StartError) as refused:
        asyncio.run(run_node(site))
    assert str(damaged) in str(refused.value) and "at position" in str(refused.value)
    assert damaged.read_bytes() == before


def test_missing_snapshot_is_refused_when_the_log_does_not_reach_back(
    site: Site, snapshots: list[Path]
) -> None:
    for path in snapshots:
        path.unlink()
    with pytest.raises(StartError) as refused:
        asyncio.run(run_node(site))
    assert "snapshot" in str(refused.value)


def test_half_written_snapshot_is_removed(site: Site, snapshots: list[Path]) -> None:
    half = snapshots[-1].with_name(snapshots[-1].name + ".part")
    half.write_bytes(snapshots[-1].read_bytes()[:100])
    assert asyncio.run(run_node(site)) == []
    assert not half.exists()


def test_torn_tail_is_cut_off_and_nothing_acknowledged_is_lost(site: Site) -> None:
    path = site.metadata / SEGMENT
    whole = path.read_bytes()
    torn = encode_batch([RecordInput(None, b"x" * 100, (), 0)], base_offset=10_000, leader_epoch=1)
    path.write_bytes(whole + torn[:80])
    found: set[str] = set()
    assert asyncio.run(run_node(site, lambda: found.update(topics(site)))) == []
    assert found >= {"t1", "t2"}
    assert path.read_bytes().startswith(whole)


def test_log_newer_than_the_code_halts_the_node_with_a_message(site: Site) -> None:
    path = site.metadata / SEGMENT
    *_, (_, last) = iter_headers(path.read_bytes())
    newer = encode_batch(
        [RecordInput(None, b"\x93\x63\x00\x00", (), 0)],
        base_offset=last.next_offset,
        leader_epoch=last.partition_leader_epoch,
    )
    path.write_bytes(path.read_bytes() + newer)
    (site.metadata / FLUSHED_OFFSET_FILE).unlink()  # it knows of no such record
    with pytest.raises((StartError, TimeoutError, ExceptionGroup)) as refused:
        asyncio.run(start_until_halted(site))
    assert "the log is newer than the code" in str(refused.value)


def test_single_voter_that_lost_what_it_had_flushed_starts_when_somebody_has_decided_so(site: Site) -> None:
    path, mark = site.metadata / SEGMENT, site.metadata / FLUSHED_OFFSET_FILE
    flip_a_byte(path, path.stat().st_size - 1)
    for _ in range(2):
        with pytest.raises(StartError, match="records are lost") as refused:
            asyncio.run(run_node(site))
        assert str(mark) in str(refused.value), "the way out"
    mark.unlink()
    found: set[str] = set()
    assert asyncio.run(run_node(site, lambda: found.update(topics(site)))) == []
    assert found >= {"t1"}


async def start_until_halted(site: Site) -> None:
    """Start a node; a fatal fault ends the wait, as it ends the process."""
    loop = asyncio.get_running_loop()
    halted: asyncio.Future[None] = loop.create_future()

    def on_fatal(error: BaseException) -> None:
        if not halted.done():
            halted.set_exception(StartError(str(error)))

    config = site.config()
    node = Node(config, make_world(config, on_fatal))
    start = asyncio.ensure_future(node.start())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.wait([start, halted], return_when=asyncio.FIRST_COMPLETED)
        if halted.done():
            start.cancel()
            halted.result()
        await start
    finally:
        await asyncio.wait([start])
        await node.stop()


class FaultyFile(OsFile):
    """Fails as its disk is told."""

    disk: FaultyDisk

    def append(self, data: Buffer) -> None:
        self.disk.check("append", self.path)
        super().append(data)

    def flush(self) -> None:
        self.disk.check("flush", self.path)
        super().flush()


class FaultyDisk(OsDisk):
    """Real files, on which one operation on files of one name fails once ``broken`` is set."""

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


FAULTS = {
    "full disk under the metadata log": ("append", f"{METADATA_LOG_DIRECTORY}/{SEGMENT}", errno.ENOSPC),
    "EIO on fsync of the metadata log": ("flush", f"{METADATA_LOG_DIRECTORY}/{SEGMENT}", errno.EIO),
    "EIO on append to the metadata log": ("append", f"{METADATA_LOG_DIRECTORY}/{SEGMENT}", errno.EIO),
}


@pytest.mark.parametrize("case", FAULTS)
def test_fault_of_a_running_disk_halts_the_node_and_loses_nothing_acknowledged(site: Site, case: str) -> None:
    operation, part, number = FAULTS[case]
    disk = FaultyDisk(operation, part, number)
    outcome: list[object] = []

    def work() -> None:
        create(site, "t3")
        disk.broken = True
        with AdminClient(site.broker) as admin:
            try:
                outcome.extend(admin.create_topics([NewTopic("t4", 1, 1)], timeout_ms=1_500))
            except Exception as error:
                outcome.append(error)

    fatal = asyncio.run(run_node(site, work, disk))
    assert isinstance(fatal[0], OSError) and fatal[0].errno == number
    (answer,) = outcome
    assert isinstance(answer, Exception) or getattr(answer, "error", None) is not None, "acknowledged in vain"
    found: set[str] = set()
    assert asyncio.run(run_node(site, lambda: found.update(topics(site)))) == []
    assert found >= {"t1", "t2", "t3"}


class BadSectorFile(OsFile):
    """Cannot be read."""

    def pread(self, position: int, length_bytes: int) -> bytes:
        raise UnreadableError(errno.EIO, "medium error", self.path)


class BadSectorDisk(OsDisk):
    """Real files, of which those with one name cannot be read."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def open(self, path: str, *, create: bool = True) -> OsFile:
        file = super().open(path, create=create)
        if self._part not in path:
            return file
        file.close()
        return BadSectorFile(path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC))

    def read(self, path: str) -> bytes:
        if self._part in path:
            raise UnreadableError(errno.EIO, "medium error", path)
        return super().read(path)


@pytest.mark.parametrize("name", [SEGMENT, "quorum-state"])
def test_bad_sector_under_the_metadata_refuses_the_start(site: Site, name: str) -> None:
    disk = BadSectorDisk(f"{METADATA_LOG_DIRECTORY}/{name}")
    before = site.files()
    with pytest.raises(StartError, match=f"medium error.*{name}"):
        asyncio.run(run_node(site, disk=disk))
    assert site.files() == before
    assert asyncio.run(run_node(site)) == []


@pytest.mark.parametrize("name", [SEGMENT, "partition.metadata"])
def test_bad_sector_under_a_partition_costs_no_node_at_any_start(site: Site, name: str) -> None:
    (directory,) = site.root.glob("*/t1-0")
    with (directory / SEGMENT).open("ab") as file:
        file.write(encode_batch([RecordInput(None, b"v", (), 0)], base_offset=0, leader_epoch=0))
    found: set[str] = set()
    for _ in range(2):
        fatal = asyncio.run(run_node(site, lambda: found.update(topics(site)), BadSectorDisk(f"t1-0/{name}")))
        assert fatal == [] and found >= {"t1", "t2"}
    assert len(list(site.root.glob("*/t1-0.00000000-damaged"))) == 1
