"""A broker with thousands of logs: what it does for all of them it does in turns of the event loop."""

import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykraft.broker.logs.checkpoint_files import CheckpointFiles, Offsets, StoredOffsets
from pykraft.broker.logs.log_table import LogTable
from pykraft.broker.replicas.leading import log_starts
from pykraft.broker.replicas.leading.log_starts import LogStarts
from pykraft.broker.replicas.maintenance import LogMaintenance
from pykraft.log_store import checkpoint
from pykraft.log_store.log.log import Log
from pykraft.runtime.paced import STEPS_PER_TURN
from pykraft.runtime.simulated.memory_disk import MemoryDisk
from pykraft.runtime.tasks import TaskSupervisor, Workers
from tests.broker.data_cluster import DataPlaneTools
from tests.broker.log_managers import CONFIG, OLD_ID, manager
from tests.broker.slices import Turns
from tests.stand_ins import interpreted_only
from tests.unexpected import unexpected

LOGS = 3_000
KEYS = [("t", index) for index in range(LOGS)]


@dataclass
class LookedAt:
    """Of a log and of its partition, what is looked at in each."""

    turns: Turns
    key: tuple[str, int] = ("t", 0)
    truncation_count: int = 0
    log_start_offset: int = 5

    @property
    def topic(self) -> str:
        return self.key[0]

    @property
    def index(self) -> int:
        return self.key[1]

    @property
    def log(self) -> "LookedAt":
        return self

    @property
    def recovery_point(self) -> int:
        self.turns.note()
        return 9

    @property
    def segment_base_offsets(self) -> Sequence[int]:
        return [0]

    def log_start_stored(self, offset: int = 5) -> None:
        assert offset == 5
        self.turns.note()


class Partition(LookedAt):
    """A partition is a key of a table."""

    __hash__ = object.__hash__


class Held:
    """Of a partition, its log. It is noted when it is looked at first."""

    def __init__(self, turns: Turns, log: Log) -> None:
        self._turns: Turns | None = turns
        self._log = log

    @property
    def log(self) -> Log:
        if self._turns is not None:
            self._turns.note()
            self._turns = None
        return self._log


class WatchedDisk(MemoryDisk):
    """``by_the_loop``: the files that the thread of the event loop has written."""

    def __init__(self) -> None:
        super().__init__()
        self._loop_thread = threading.get_ident()
        self.by_the_loop: list[str] = []

    def write_atomic(self, path: str, data: bytes) -> None:
        if threading.get_ident() == self._loop_thread:
            self.by_the_loop.append(path)
        super().write_atomic(path, data)


Work = Callable[[CheckpointFiles, Any], Awaitable[None]]
WORKS: list[tuple[str, Work, Offsets]] = [
    (
        checkpoint.RECOVERY_POINT_CHECKPOINT,
        lambda files, logs: files.write_recovery_points(),
        dict.fromkeys(KEYS, 9),
    ),
    (
        checkpoint.LOG_START_OFFSET_CHECKPOINT,
        lambda files, logs: files.write_log_starts(),
        dict.fromkeys(KEYS, 5),
    ),
    (
        checkpoint.REPLICATION_OFFSET_CHECKPOINT,
        lambda files, logs: files.write_high_watermarks(dict.fromkeys(KEYS, 7), logs),
        dict.fromkeys(KEYS, 7),
    ),
    *[
        (
            name,
            lambda files, logs: files.forget(KEYS[:16]),
            dict.fromkeys(KEYS[16:], 3),
        )
        for name in (
            checkpoint.RECOVERY_POINT_CHECKPOINT,
            checkpoint.LOG_START_OFFSET_CHECKPOINT,
            checkpoint.REPLICATION_OFFSET_CHECKPOINT,
            checkpoint.CLEANER_OFFSET_CHECKPOINT,
            checkpoint.GAP_OFFSET_CHECKPOINT,
        )
    ],
]


@pytest.mark.parametrize(("name", "work", "expected"), WORKS, ids=range(len(WORKS)))
async def test_offsets_of_many_logs_are_gathered_in_turns_and_written_beside_the_event_loop(
    name: str, work: Work, expected: Offsets
) -> None:
    turns, disk = Turns(0), WatchedDisk()
    disk.make_dirs("/d")
    logs = cast("Any", {key: LookedAt(turns, key) for key in KEYS})
    before: list[Offsets] = [dict.fromkeys(KEYS, 3) for _ in range(5)]
    with ThreadPoolExecutor(1) as executor:
        files = CheckpointFiles(
            disk,
            "/d",
            StoredOffsets(False, *before),
            lambda: logs,
            lambda: (),
            Workers(executor),
            lambda path, error: unexpected(error),
        )
        await work(files, logs)
    turns.stop()
    assert checkpoint.read_offset_checkpoint(disk, f"/d/{name}") == expected
    assert not disk.by_the_loop
    assert turns.most <= STEPS_PER_TURN


async def test_logs_that_need_no_flush_are_looked_at_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogMaintenance, "high_watermarks", lambda maintenance: {})
    turns = Turns(0)
    work = manager(MemoryDisk()).work

    async def write(high_watermarks: Offsets) -> None:
        pass

    logs: Any = SimpleNamespace(work=work, checkpoints=SimpleNamespace(write=write))
    maintenance = LogMaintenance.__new__(LogMaintenance)
    maintenance._logs = logs
    log = Log.open(MemoryDisk(), "t-0", CONFIG, now_ms=0)
    maintenance._table = cast("Any", [Held(turns, log) for _ in KEYS])
    await maintenance._checkpoint()
    turns.stop()
    assert turns.noted.total() == LOGS
    assert turns.most <= STEPS_PER_TURN
    assert not work.failures


@interpreted_only
async def test_those_who_wait_for_many_log_starts_are_told_in_turns(
    data_plane: DataPlaneTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_starts, "PAUSE_MS", 0)
    turns, told = Turns(0), []

    async def store(keys: Any) -> None:
        assert list(keys) == KEYS

    tasks = TaskSupervisor(unexpected)
    logs: Any = SimpleNamespace(
        work=manager(MemoryDisk()).work, checkpoints=SimpleNamespace(store_log_starts=store)
    )
    fetchers: Any = SimpleNamespace(fetch_soon=lambda partition: told.append(partition.key))
    starts = LogStarts(logs, fetchers, tasks)
    for key in KEYS:
        starts.store(cast("Any", Partition(turns, key)))
    await data_plane.until(lambda: not starts._is_writing)
    turns.stop()
    assert told == KEYS
    assert turns.most <= STEPS_PER_TURN
    await tasks.close()


def opened(key: tuple[str, int], log_dir: str) -> Any:
    return SimpleNamespace(topic_partition=key, log_dir=log_dir, log=object())


def test_logs_of_a_directory_are_known_while_logs_come_move_and_go() -> None:
    table = LogTable()
    here = table.logs_in("/a")
    first, second, moved = opened(("t", 0), "/a"), opened(("t", 1), "/a"), opened(("t", 1), "/b")
    table.put(first)
    table.put(second)
    assert here == {("t", 0): first.log, ("t", 1): second.log} and not table.logs_in("/b")
    table.put(moved)
    assert here == {("t", 0): first.log} and table.logs_in("/b") == {("t", 1): moved.log}
    assert table.take_out(("t", 0)) is first
    assert not here and table.logs == {("t", 1): moved}


async def test_directory_whose_logs_were_deleted_gets_the_new_ones() -> None:
    logs = manager(MemoryDisk(), ("/a", "/b"))
    await logs.start()
    await logs.open_or_create([("t", index, OLD_ID, CONFIG) for index in range(6)])
    await logs.delete([("t", 0), ("t", 2), ("t", 4)])
    created = await logs.open_or_create([("u", index, OLD_ID, CONFIG) for index in range(4)])
    assert [one.log_dir for one in created] == ["/a", "/a", "/a", "/a"]
    await logs.stop(1, {})
