"""Opens and compacts a log directory as a broker does, and says what is in it."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from pykraft.broker.config import CleanerConfig
from pykraft.broker.logs.log_cleaner import LogCleaner
from pykraft.broker.logs.log_manager import LogManager
from pykraft.kafka_protocol.markers import ABORT, COMMIT, read_kind
from pykraft.kafka_protocol.record_codec import decode_batch
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.runtime.clock import SystemClock
from pykraft.runtime.os_disk import OsDisk
from pykraft.runtime.tasks import TaskSupervisor, Workers
from tests.interop.java_jars import KafkaTools
from tests.interop.kafka_logs import Committed, log_files
from tests.unexpected import unexpected

DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"
TOPIC: Final = "written"
CONFIG: Final = LogConfig(
    internal_segment_bytes=16384,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)
T = TypeVar("T")


def with_logs(data: Path, body: Callable[[LogManager], Awaitable[T]]) -> T:
    """Run ``body`` on the logs of a directory, as a broker opens and closes them."""

    async def run() -> T:
        logs = LogManager(
            OsDisk(), [str(data)], CONFIG, SystemClock(), Workers(), unexpected, lambda key: None
        )
        await logs.start()
        assert not logs.offline
        result = await body(logs)
        await logs.stop(1, {key: opened.log.log_end_offset for key, opened in logs.logs.items()})
        return result

    return asyncio.run(run())


async def compact(logs: LogManager) -> int:
    """Rounds of the cleaner until nothing is left to do; the end of what is clean."""
    opened = logs.logs[TOPIC, 0]
    cleaner = LogCleaner(
        logs,
        lambda one: one.log.log_end_offset if one is opened else None,
        CleanerConfig,
        SystemClock(),
        Workers(),
        TaskSupervisor(unexpected),
    )
    while await cleaner.clean_dirtiest():
        pass
    return logs.checkpoints.cleaned_offset(opened) or 0


def read_committed(log: Log) -> Committed:
    """As a consumer: data of transactions counts when their marker says so."""
    found: Committed = {}
    pending: dict[int, Committed] = {}
    for header, batch in log.iter_batches(0):
        if header.is_control:
            kind = read_kind(header, batch)
            assert kind in (ABORT, COMMIT, None)
            records = pending.pop(header.producer_id, {})
            if kind == COMMIT:
                found |= records
        else:
            here = pending.setdefault(header.producer_id, {}) if header.is_transactional else found
            for record in decode_batch(batch, header):
                assert record.key is not None
                here[record.offset] = record.key, record.value
    assert not any(pending.values())
    return dict(sorted(found.items()))


def check_with_kafkas_tool(tools: KafkaTools, partition: Path) -> None:
    """It finds no fault, and each batch continues the one before."""
    batches: list[tuple[str, str]] = []
    for path in log_files(partition):
        if path.stat().st_size == 0:
            continue  # the tool fails on empty indexes
        output = tools.check(DUMP, "--deep-iteration", "--print-data-log", "--files", path)
        assert "isvalid: false" not in output
        batches += re.findall(r"^baseOffset: (\d+) lastOffset: (\d+)", output, re.MULTILINE)
        for kind in ("index", "timeindex"):
            output = tools.check(DUMP, "--files", path.with_suffix(f".{kind}"))
            assert "Mismatches" not in output and "Misses" not in output and "Found" not in output
        if path.with_suffix(".txnindex").exists():
            tools.check(DUMP, "--files", path.with_suffix(".txnindex"))
    assert [int(base) for base, _ in batches[1:]] == [int(last) + 1 for _, last in batches[:-1]]
