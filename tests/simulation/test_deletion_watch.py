"""The watch of deleted records finds a replica that brings them back."""

from types import SimpleNamespace
from typing import Any, cast

from pykraft.jepsen_like.simulation.cluster.checks.deletion_watch import (
    LOG_START,
    LOW_WATERMARK,
    STAYS_DELETED,
    DeletionWatch,
)
from pykraft.kafka_protocol.ids import Uuid

TOPIC_ID = Uuid(b"i" * 16)
ONE, TWO = cast(Any, SimpleNamespace(id=1)), cast(Any, SimpleNamespace(id=2))


def _watch() -> tuple[DeletionWatch, list[str], set[tuple[int, Uuid, int]]]:
    """Broker 1 is in sync, 2 is not; records below 5 of 10 were deleted."""
    known = SimpleNamespace(isr=(1,), elr=(), leader_epoch=3)
    model = SimpleNamespace(
        topics={TOPIC_ID: SimpleNamespace(name="t", partitions=[known])},
        brokers={1: SimpleNamespace(fenced=False), 2: SimpleNamespace(fenced=False)},
    )
    found: list[str] = []
    damaged: set[tuple[int, Uuid, int]] = set()
    watch = DeletionWatch(cast(Any, model), lambda name, detail: found.append(name), damaged)
    watch.committed(_replica(0))
    watch.answered("t", 0, 5)
    return watch, found, damaged


def _replica(log_start: int, *, epoch: int = 3) -> Any:
    log = SimpleNamespace(log_start_offset=log_start, log_end_offset=10)
    return SimpleNamespace(topic_id=TOPIC_ID, index=0, log=log, high_watermark=10, leader_epoch=epoch)


def test_replica_that_has_deleted_the_records_is_accepted() -> None:
    watch, found, _ = _watch()
    watch.opened(ONE, _replica(5))
    watch.leads(ONE, _replica(6))
    watch.served(ONE, _replica(5), 5)
    watch.moved(ONE, _replica(10))
    watch.answered("t", 0, 10)
    assert not found


def test_replica_that_still_has_them_is_found() -> None:
    watch, found, _ = _watch()
    watch.opened(ONE, _replica(4))
    watch.leads(ONE, _replica(4))
    watch.served(ONE, _replica(4), 4)
    assert found == [STAYS_DELETED] * 3


def test_replica_that_nobody_counts_on_may_still_have_them() -> None:
    watch, found, damaged = _watch()
    watch.opened(TWO, _replica(4))
    watch.served(TWO, _replica(4), 4)
    watch.leads(ONE, _replica(4, epoch=2))
    damaged.add((1, TOPIC_ID, 0))
    watch.leads(ONE, _replica(4))
    damaged.clear()
    watch.exempt((TOPIC_ID, 0))
    watch.leads(ONE, _replica(4))
    assert not found


def test_limits_of_log_start_and_low_watermark() -> None:
    watch, found, _ = _watch()
    watch.moved(ONE, _replica(11))
    watch.answered("t", 0, 11)
    assert found == [LOG_START, LOW_WATERMARK]
