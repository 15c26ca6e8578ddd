"""The logs of a broker without the broker: their manager, and what tests fill them with."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypedDict, Unpack

from pykraft.broker.logs.log_config import build_log_config
from pykraft.broker.logs.log_dirs import LogDirs
from pykraft.broker.logs.log_loading import OpenLog
from pykraft.broker.logs.log_manager import LogManager
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import assign_offset, read_header
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.disk import Disk
from pykraft.runtime.tasks import FatalHandler, Workers
from tests.unexpected import unexpected

CONFIG = build_log_config({}, {})
OLD_ID, NEW_ID = Uuid(b"a" * 16), Uuid(b"b" * 16)
KEY = ("t", 0)
ONE_DIR = ("/d",)


class ManagerOptions(TypedDict, total=False):
    """What tests set of a manager of logs."""

    default_config: LogConfig
    on_fatal: FatalHandler
    on_damage: Callable[[tuple[str, int]], None]


def _undamaged(key: tuple[str, int]) -> None:
    raise AssertionError(f"{key} is damaged")


def manager(
    disk: Disk,
    dirs: tuple[str, ...] = ONE_DIR,
    executor: Executor | None = None,
    **options: Unpack[ManagerOptions],
) -> LogManager:
    usual = ManagerOptions(default_config=CONFIG, on_fatal=unexpected, on_damage=_undamaged)
    chosen: Any = usual | options
    log_dirs = LogDirs(dirs, {path: Uuid(path.encode().ljust(16, b"/")) for path in dirs})
    return LogManager(disk, log_dirs, clock=SystemClock(), workers=Workers(executor), **chosen)


async def started(
    disk: Disk,
    dirs: tuple[str, ...] = ONE_DIR,
    executor: Executor | None = None,
    **options: Unpack[ManagerOptions],
) -> LogManager:
    logs = manager(disk, dirs, executor, **options)
    await logs.start()
    return logs


async def create(
    logs: LogManager, records: int = 0, key: tuple[str, int] = KEY, topic_id: Uuid = OLD_ID
) -> OpenLog:
    (opened,) = await logs.open_or_create([(*key, topic_id, CONFIG)])
    fill(opened.log, records)
    return opened


def fill(log: Log, count: int, records: int = 1) -> None:
    for _ in range(count):
        data = bytearray(encode_batch([RecordInput(None, b"v" * 50, (), 1)] * records))
        assign_offset(data, 0, log.log_end_offset, 3)
        log.append(data, [read_header(data)], now_ms=0)
