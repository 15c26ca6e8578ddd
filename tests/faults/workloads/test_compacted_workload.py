"""The compacted workload in virtual time, on logs that are compacted rightly, and on some that are not."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence

import pytest
from msgspec.structs import replace

from pykraft.jepsen_like.faults.checkers.counting import count_run
from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import examine
from pykraft.jepsen_like.faults.checkers.self_test.compacted import COMPACTED_PLANTS, clean_compacted
from pykraft.jepsen_like.faults.clients.confluent import ConfluentClients
from pykraft.jepsen_like.faults.clients.interface import (
    OperationError,
    Polled,
    ProducerConfig,
    RefusedError,
    UnknownOutcomeError,
)
from pykraft.jepsen_like.faults.history import NEMESIS, Event, MemoryHistory
from pykraft.jepsen_like.faults.record_text import parse_pair, record_text
from pykraft.jepsen_like.faults.workloads.compacted import (
    DELETE_RETENTION_MS,
    CompactedConfig,
    CompactedWorkload,
)
from pykraft.jepsen_like.faults.workloads.workload import Limits
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.testing.processes.waits import PATIENCE_S
from tests.faults.played import kinds, play
from tests.mock_cluster import MockCluster

CONFIG = CompactedConfig(partitions=1, writers=2, keys_each=4, readers=2, puts_per_s=10.0)
PLACE = TopicPartition("compacted", 0)

Entry = tuple[int, str]
"""Offset and text."""
Compact = Callable[[Sequence[Entry], Mapping[int, float]], list[Entry]]
"""``(log, since when each offset may be removed if it deletes its key, in s)`` → what is left."""


def newest_of_each_key(log: Sequence[Entry]) -> dict[str, int]:
    return {parse_pair(text)[0]: offset for offset, text in log}


def compact_rightly(log: Sequence[Entry], may_go_s: Mapping[int, float]) -> list[Entry]:
    newest, now_s = newest_of_each_key(log), asyncio.get_running_loop().time()
    return [
        (offset, text)
        for offset, text in log
        if newest[parse_pair(text)[0]] == offset
        and (parse_pair(text)[1] is not None or now_s < may_go_s.get(offset, now_s + 1))
    ]


def keep_the_oldest(log: Sequence[Entry], may_go_s: Mapping[int, float]) -> list[Entry]:
    return [*{parse_pair(text)[0]: (offset, text) for offset, text in reversed(log)}.values()][::-1]


def forget_tombstones(log: Sequence[Entry], may_go_s: Mapping[int, float]) -> list[Entry]:
    return [entry for entry in compact_rightly(log, {}) if parse_pair(entry[1])[1] is not None]


def forget_tombstones_first(log: Sequence[Entry], may_go_s: Mapping[int, float]) -> list[Entry]:
    """What they delete stays."""
    return [entry for entry in log if parse_pair(entry[1])[1] is not None]


def close_the_gaps(log: Sequence[Entry], may_go_s: Mapping[int, float]) -> list[Entry]:
    return [(place, text) for place, (_, text) in enumerate(compact_rightly(log, may_go_s))]


class Log:
    """One partition, its producers and its readers; all but the last records are compacted every second."""

    prefix = ""

    def __init__(self, compact: Compact, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self._compact = compact
        self._entries: list[Entry] = []
        self._may_go_s: dict[int, float] = {}
        self._end = 0
        self.cleaning: asyncio.Task[None] | None = None

    async def clean(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(1.0)
            dirty, active = self._entries[:-5], self._entries[-5:]
            for offset, _ in dirty:
                self._may_go_s.setdefault(offset, loop.time() + DELETE_RETENTION_MS / 1000)
            self._entries = self._compact(dirty, self._may_go_s) + active

    def producer(self, config: ProducerConfig) -> "Producer":
        return Producer(self, self._rng)

    def reader(self, name: str, positions: Mapping[TopicPartition, int]) -> "Reader":
        return Reader(self, positions[PLACE])

    def wall_ms(self) -> int:
        return 0

    def append(self, text: str) -> int:
        self._entries.append((self._end, text))
        self._end += 1
        return self._end - 1

    def read(self, position: int, count: int) -> list[Entry]:
        return [entry for entry in self._entries if entry[0] >= position][:count]

    @property
    def end(self) -> int:
        return self._end


class Producer:
    fatal = None

    def __init__(self, log: Log, rng: random.Random) -> None:
        self._log = log
        self._rng = rng
        self._open: list[asyncio.Future[int | None]] = []

    def send(
        self, partition: TopicPartition, value: str | None, timestamp_ms: int, key: str | None = None
    ) -> asyncio.Future[int | None]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[int | None] = loop.create_future()
        chance = self._rng.random()
        assert key is not None
        text = record_text(key.encode(), None if value is None else value.encode())
        offset = self._log.append(text) if chance > 0.1 else None
        error: OperationError | None = None
        if chance < 0.05:
            error = RefusedError("too large")
        elif chance < 0.15:
            error = UnknownOutcomeError("no answer")
        loop.call_later(self._rng.uniform(0.0, 0.2), _resolve, answer, offset, error)
        self._open.append(answer)
        return answer

    async def flush(self, timeout_s: float) -> None:
        await asyncio.wait(self._open or [asyncio.get_running_loop().create_task(asyncio.sleep(0))])

    async def close(self) -> None:
        for answer in self._open:
            if not answer.done():
                answer.set_exception(UnknownOutcomeError("closed"))


def _resolve(answer: asyncio.Future[int | None], offset: int | None, error: OperationError | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(offset)


class Reader:
    def __init__(self, log: Log, position: int) -> None:
        self._log = log
        self._position = position

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        await asyncio.sleep(0.05)
        found = self._log.read(self._position, 3)
        if not found:
            return {}
        self._position = found[-1][0] + 1
        return {PLACE: Polled(tuple(found))}

    async def end_offset(self, partition: TopicPartition) -> int:
        return self._log.end

    async def close(self) -> None: ...


def run(compact: Compact, run_s: float = 90.0, seed: int = 1) -> list[Event]:
    def make(history: MemoryHistory) -> CompactedWorkload:
        log = Log(compact, seed)
        log.cleaning = asyncio.get_running_loop().create_task(log.clean())
        return CompactedWorkload(log, CONFIG, seed, history)  # type: ignore[arg-type]

    return play("compacted", make, run_s)


def test_a_log_that_is_compacted_rightly_has_no_finding() -> None:
    for seed in range(3):
        events = run(compact_rightly, seed=seed)
        report = examine(events)
        assert (report.findings, report.unjudged_deletions) == ((), 0)
        done = {(event.op, event.type) for event in events}
        assert {("put", kind) for kind in ("ok", "fail", "info")} <= done
        puts = [str(event.value) for event in events if (event.op, event.type) == ("put", "ok")]
        final = [text for e in events if e.process == "final-0" for _, text in e.records or ()]
        assert 10 < len(final) < len(puts) / 4, "nothing was compacted"
        deleted = {text for text in puts if parse_pair(text)[1] is None}
        left = {parse_pair(text)[0] for text in final}
        assert len(deleted - left) > 10, "deletions stay for ever"


@pytest.mark.parametrize(
    ("compact", "expected"),
    [
        (keep_the_oldest, Anomaly.STALE_MAP_READ),
        (forget_tombstones, Anomaly.TOMBSTONE_LOST),
        (forget_tombstones_first, Anomaly.RESURRECTED_KEY),
        (close_the_gaps, Anomaly.INCONSISTENT_OFFSETS),
    ],
)
def test_wrong_compaction_is_found(compact: Compact, expected: Anomaly) -> None:
    assert expected in kinds(run(compact, run_s=30.0))


def test_acknowledged_puts_are_counted() -> None:
    events = run(compact_rightly, run_s=20.0)
    verdict = count_run(events, 60)
    assert verdict.tally.acknowledged == sum((e.op, e.type) == ("put", "ok") for e in events) > 100
    assert any("acknowledged puts" in shortfall for shortfall in verdict.shortfalls)


def test_keys_and_deletions_pass_through_librdkafka() -> None:
    """On its mock cluster, which does not compact."""
    cluster = MockCluster(3)
    config = CompactedConfig(puts_per_s=400.0, replace_every_s=0.5, read_every_s=0.1)

    async def body(history: MemoryHistory) -> None:
        clients = ConfluentClients(cluster.bootstrap_servers)
        workload = CompactedWorkload(clients, config, 1, history)
        workload.start()
        async with asyncio.timeout(PATIENCE_S):
            while sum((event.op, event.type) == ("put", "ok") for event in history.events) < 300:
                await asyncio.sleep(0.05)
        await workload.finish(Limits(answers_s=PATIENCE_S, read_s=PATIENCE_S, settle_s=PATIENCE_S))
        clients.close()

    history = MemoryHistory(lambda: time.monotonic_ns() // 1000)
    cluster.producer.list_topics("compacted", timeout=10)
    asyncio.run(body(history))
    assert examine(history.events).findings == ()
    read = [text for event in history.events if event.op == "map-read" for _, text in event.records or ()]
    assert {parse_pair(text)[1] is None for text in read} == {True, False}
    assert len({event.process for event in history.events if event.op == "put"}) > config.writers


# --- what is not judged ------------------------------------------------------------------------------------


def planted(kind: Anomaly, what: str) -> list[Event]:
    (plant,) = [plant for named, of, plant in COMPACTED_PLANTS if of == kind and what in named]
    return plant(clean_compacted(0))


def fault(kind: str, begin_us: int, end_us: int) -> list[Event]:
    detail = {"number": 0, "kind": kind, "for_s": 1.0}
    return [
        Event("ok", NEMESIS, begin_us, kind, value="2", detail=detail),
        Event("ok", NEMESIS, end_us, "repaired", value="2", detail=detail),
    ]


def test_deletions_are_not_judged_where_clocks_were_wrong() -> None:
    jump = fault("clock-jump", 1_000_000, 2_000_000)
    for kind, what in ((Anomaly.TOMBSTONE_LOST, "early"), (Anomaly.RESURRECTED_KEY, "replica")):
        report = examine([*jump, *planted(kind, what)])
        assert (report.findings, report.unjudged_deletions) == ((), 1)
    assert kinds([*jump, *planted(Anomaly.STALE_MAP_READ, "older")]) == {Anomaly.STALE_MAP_READ}


@pytest.mark.parametrize(("lasts_s", "is_judged"), [(20, True), (28, False)])
def test_a_deleted_key_may_be_back_where_a_replica_was_away_for_longer(lasts_s: int, is_judged: bool) -> None:
    away = fault("kill", 1_000_000, (1 + lasts_s) * 1_000_000)
    report = examine([*away, *planted(Anomaly.RESURRECTED_KEY, "replica")])
    assert bool(report.findings) is is_judged
    assert bool(report.unjudged_deletions) is not is_judged


def test_what_disks_have_lost_is_not_demanded() -> None:
    """The records of the log were not guaranteed until the end of the read in which a value is missing."""
    history = planted(Anomaly.STALE_MAP_READ, "older")
    end = next(n for n, event in enumerate(history) if event.op == "map-end")
    lost = Event("info", "disks", history[end].time_us, "exempted", key="map-0")
    assert kinds([*history[: end + 1], lost, *history[end + 1 :]]) == set()


def test_a_read_that_did_not_reach_the_end_shows_nothing() -> None:
    history = planted(Anomaly.STALE_MAP_READ, "older")
    assert kinds([event for event in history if event.op != "map-end"]) == set()


def test_a_later_put_of_unknown_outcome_may_have_superseded_what_is_missing() -> None:
    """It is behind the end of the read, where the reader did not look."""
    history = planted(Anomaly.STALE_MAP_READ, "older")
    start = next(n for n, event in enumerate(history) if event.op == "map-start")
    detail = {"number": 6}
    late = Event("invoke", "w.0", history[start].time_us, "put", "map-0", "a=late", detail=detail)
    history = [
        replace(event, detail={"number": event.detail["number"] + 1})
        if event.op == "put" and event.process == "w.0" and event.detail and event.detail["number"] > 5
        else event
        for event in history
    ]
    assert kinds([*history[: start + 1], late, *history[start + 1 :]]) == set()


def test_text_of_a_record_says_whether_it_deletes_its_key() -> None:
    for key, value, text in ((b"k", b"v=1", "k=v=1"), (b"k", b"", "k="), (b"k", None, "k")):
        assert record_text(key, value) == text
        assert parse_pair(text) == ("k", None if value is None else value.decode())
    assert record_text(None, b"v") == "v"
    assert record_text(None, None) == ""
