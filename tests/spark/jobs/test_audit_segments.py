"""Segment files of replicas, written with every anomaly that the audit knows, and without."""

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

import pytest
from click.testing import CliRunner, Result

from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.record_codec import RecordInput, encode_batch
from pykraft.kafka_protocol.records import HEADER_BYTES, assign_offset, read_header, write_crc
from pykraft.log_store.interface import LogConfig
from pykraft.log_store.log.log import Log
from pykraft.node.cli.root import cli
from pykraft.node.cli.spark import audit_segments as spark_audit_segments
from pykraft.runtime.os_disk import OsDisk
from pykraft.spark.jobs import audit_records, audit_segment_file
from pykraft.spark.jobs import audit_segments as audit_job
from pykraft.spark.jobs.audit_files import AuditPlan, LogDir, plan_audit
from pykraft.spark.jobs.audit_findings import Found, Kind
from pykraft.spark.jobs.audit_scan import SegmentScan
from pykraft.spark.jobs.audit_segments import Audit, audit_segments
from tests.log_store.cleaned_logs import clean
from tests.spark.lists import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Record = tuple[int, bytes | None]
"""Offset and value; the key is the offset modulo 10."""
Findings = dict[tuple[Kind, str, str], tuple[int, int]]
"""Kind, partition and replicas → count, and the first offset."""
RECORD_COUNT_OFFSET = HEADER_BYTES - 4
COUNT = 10
"""Records of a batch."""


@pytest.fixture
def session() -> Session:
    """Spark's part is only to exchange rows between tasks."""
    return Session()


def batch(base: int, count: int = COUNT, *, epoch: int = 3, text: str = "v", codec: int = 0) -> bytes:
    inputs = [
        RecordInput(b"k%d" % (base + n), b"%s%d" % (text.encode(), n), (), 1000 + n) for n in range(count)
    ]
    return encode_batch(inputs, base_offset=base, leader_epoch=epoch, compression=Compression(codec))


def batches(start: int, end: int, epoch: int = 3) -> list[bytes]:
    return [batch(base, epoch=epoch) for base in range(start, end, COUNT)]


def write(directory: Path, base_offset: int, content: Sequence[bytes]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(content))
    return path


def write_log(directory: Path, epoch: int = 3) -> None:
    """Offsets 0 to 299 in three segments."""
    for base in range(0, 300, 100):
        write(directory, base, batches(base, base + 100, epoch))


def change(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def audit(
    session: Session, root: Path, *, compacted: Sequence[str] = (), **stored: dict[tuple[str, int], int]
) -> tuple[AuditPlan, Audit]:
    """The directories in ``root`` are replicas, by their names."""
    log_dirs = [LogDir(replica=path.name, path=path, **stored) for path in sorted(root.iterdir())]
    plan = plan_audit(log_dirs, [], compacted)
    return plan, audit_segments(cast("SparkSession", session), plan)


def findings(plan: AuditPlan, found: Audit) -> Findings:
    def brief(one: Found) -> tuple[int, int]:
        return one.count, one.places[0].offset

    named = ((subject, f"{plan.logs[subject.log].topic}", one) for subject, one in found.tally)
    return {(subject.kind, topic, subject.replicas): brief(one) for subject, topic, one in named}


def position(path: Path, base_offset: int) -> int:
    return path.read_bytes().index(struct.pack(">q", base_offset))


def test_each_planted_anomaly_is_found_and_nothing_else(session: Session, tmp_path: Path) -> None:
    """A topic for each, all in one audit: its name is that of what was done to replica b."""
    topics = {
        "clean": {},
        "flip": {(Kind.CRC_MISMATCH, "b"): (1, 150)},
        "flip-at-end": {(Kind.CRC_MISMATCH, "b"): (1, 290), (Kind.EARLIER_END, "b"): (10, 290)},
        "length": {(Kind.MALFORMED_BATCH, "b"): (1, 150)},
        "length-of-a-batch": {(Kind.CRC_MISMATCH, "b"): (1, 150)},
        "length-in-newest": {(Kind.MALFORMED_BATCH, "b"): (1, 250)},
        "length-zero": {(Kind.MALFORMED_BATCH, "b"): (1, 150)},
        "magic": {(Kind.MALFORMED_BATCH, "b"): (1, 150)},
        "torn": {(Kind.TORN_TAIL, "b"): (1, 290), (Kind.EARLIER_END, "b"): (10, 290)},
        "zeros": {(Kind.TORN_TAIL, "b"): (1, 300)},
        "half-zeros": {(Kind.TORN_TAIL, "b"): (1, 290), (Kind.EARLIER_END, "b"): (10, 290)},
        "torn-in-the-middle": {(Kind.MALFORMED_BATCH, "b"): (1, 190)},
        "twice": {(Kind.OVERLAP, "b"): (1, 140)},
        "offset-up": {
            (Kind.OVERLAP, "b"): (1, 153),
            (Kind.GAP, "b"): (1, 140),
            (Kind.MISSING_RECORDS, "b"): (10, 140),
        },
        "offset-down": {
            (Kind.OVERLAP, "b"): (1, 133),
            (Kind.GAP, "b"): (1, 140),
            (Kind.MISSING_RECORDS, "b"): (10, 140),
        },
        "below": {
            (Kind.BELOW_BASE_OFFSET, "b"): (1, 90),
            (Kind.GAP, "b"): (1, 100),
            (Kind.MISSING_RECORDS, "b"): (10, 100),
        },
        "into-next": {(Kind.OVERLAP, "b"): (1, 200)},
        "epoch-down": {(Kind.EPOCH_GOES_BACK, "b"): (1, 140), (Kind.EPOCH_DIFFERS, "a / b"): (10, 140)},
        "epoch-between": {
            (Kind.EPOCH_GOES_BACK, "b"): (1, 200),
            (Kind.EPOCH_DIFFERS, "a / b"): (100, 100),
        },
        "content": {(Kind.DIVERGENCE, "a / b"): (10, 140)},
        "count": {(Kind.MALFORMED_BATCH, "b"): (1, 140), (Kind.MISSING_RECORDS, "b"): (9, 141)},
        "borders": {},
        "one-record": {(Kind.DIVERGENCE, "a / b"): (1, 145)},
        "codec": {},
        "segment-gone": {(Kind.GAP, "b"): (1, 100), (Kind.MISSING_RECORDS, "b"): (100, 100)},
        "late": {(Kind.LATER_START, "b"): (100, 100)},
        "lagging": {(Kind.EARLIER_END, "b"): (100, 200)},
        "empty": {(Kind.EARLIER_END, "b"): (300, 0)},
    }
    for topic in topics:
        for replica in "ab":
            write_log(tmp_path / replica / f"{topic}-0")

    def path(topic: str, base_offset: int = 100) -> Path:
        return tmp_path / "b" / f"{topic}-0" / f"{base_offset:020d}.log"

    def rewrite(topic: str, replaced: dict[int, bytes]) -> None:
        write(path(topic).parent, 100, [replaced.get(n, batch(n)) for n in range(100, 200, COUNT)])

    for topic, base, offset in (("flip", 100, 150), ("flip-at-end", 200, 290)):
        change(path(topic, base), position(path(topic, base), offset) + 80, b"\xff")
    for topic, base, length in (
        ("length", 100, 30),
        ("length-of-a-batch", 100, 70),
        ("length-in-newest", 200, 1 << 30),
        ("length-zero", 100, 0),
    ):
        at = position(path(topic, base), base + 50)
        change(path(topic, base), at + 8, struct.pack(">i", length))
    change(path("magic"), position(path("magic"), 150) + 16, b"\x01")
    newest = path("torn", 200)
    newest.write_bytes(newest.read_bytes()[:-20])
    path("zeros", 200).write_bytes(path("zeros", 200).read_bytes() + bytes(1000))
    newest = path("half-zeros", 200)
    newest.write_bytes(newest.read_bytes()[:-20] + bytes(20))
    path("torn-in-the-middle").write_bytes(path("torn-in-the-middle").read_bytes()[:-20])
    rewrite("twice", {140: batch(140) * 2})
    for topic, base in (("offset-up", 153), ("offset-down", 133)):
        moved = bytearray(batch(140))
        assign_offset(moved, 0, base, 3)
        rewrite(topic, {140: bytes(moved)})
    moved = bytearray(batch(100))
    assign_offset(moved, 0, 90, 3)
    rewrite("below", {100: bytes(moved)})
    write(path("into-next").parent, 100, batches(100, 210))
    rewrite("epoch-down", {140: batch(140, epoch=2)})
    write(path("epoch-between").parent, 100, batches(100, 200, epoch=4))
    rewrite("content", {140: batch(140, text="w")})
    miscounted = bytearray(batch(140))
    struct.pack_into(">i", miscounted, RECORD_COUNT_OFFSET, 9)
    write_crc(miscounted, 0, len(miscounted))
    rewrite("count", {140: bytes(miscounted)})
    rewrite("borders", {140: batch(140, 4) + encode(144, range(4, 10))})
    rewrite("one-record", {140: batch(140, 4) + encode(144, [4, 99, *range(6, 10)])})
    rewrite("codec", {140: batch(140, codec=Compression.ZSTD), 150: batch(150, codec=Compression.LZ4)})
    path("segment-gone").unlink()
    path("late", 0).unlink()
    path("lagging", 200).write_bytes(b"")
    for base in (100, 200):
        path("empty", base).unlink()
    path("empty", 0).write_bytes(b"")

    plan, found = audit(session, tmp_path)
    expected = {
        (kind, topic, who): one for topic, kinds in topics.items() for (kind, who), one in kinds.items()
    }
    assert findings(plan, found) == expected
    assert found.unreadable == ()
    total = found.totals[0]
    assert (total.replica, total.partitions, total.segments) == ("a", len(topics), 3 * len(topics))
    assert (total.batches, total.records) == (30 * len(topics), 300 * len(topics))
    assert total.size_bytes == sum(file.stat().st_size for file in tmp_path.glob("a/*/*.log"))


def encode(base: int, numbers: Sequence[int]) -> bytes:
    """The records that a batch from 140 has from ``base`` on."""
    inputs = [
        RecordInput(b"k%d" % (base + n), b"v%d" % number, (), 1000 + base - 140 + n)
        for n, number in enumerate(numbers)
    ]
    return encode_batch(inputs, base_offset=base, leader_epoch=3)


def test_every_bit_flip_in_a_batch_is_an_anomaly_of_its_replica(session: Session, tmp_path: Path) -> None:
    """Also in the fields that no CRC covers: base offset, length, leader epoch."""
    size_bytes = len(batch(110))
    for number in range(size_bytes):
        for replica in "ab":
            path = write(tmp_path / replica / f"t{number}-0", 100, batches(100, 130))
        at = position(path, 110) + number
        change(path, at, bytes([path.read_bytes()[at] ^ (1 << number % 8)]))
    plan, found = audit(session, tmp_path)
    anomalies = [subject for subject, _ in found.tally if subject.kind.is_anomaly]
    assert {plan.logs[one.log].topic for one in anomalies} == {f"t{number}" for number in range(size_bytes)}
    assert {one.replicas for one in anomalies} <= {"b", "a / b"}


@pytest.mark.parametrize("block_bytes", [61, 100, 1000])
def test_batches_may_be_larger_than_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(audit_segment_file, "_BLOCK_BYTES", block_bytes)
    content = [batch(0), batch(10, 400), batch(410), batch(420, 300), batch(720)]
    path = write(tmp_path / "t-0", 0, content)
    change(path, len(content[0]) + 8, struct.pack(">i", 1 << 20))  # batch 10
    change(path, position(path, 420) + 2000, b"\xff")
    (segment,) = plan_audit([LogDir(replica="a", path=tmp_path)], [], []).segments
    scan = SegmentScan(segment, "a")
    assert [one.base_offset for one in scan.batches()] == [0, 410, 720]
    assert scan.report.holes == [(10, 410), (420, 720)]
    found = {subject.kind: one.places[0].offset for subject, one in scan.report.tally}
    assert found == {Kind.MALFORMED_BATCH: 10, Kind.CRC_MISMATCH: 420}


def test_difference_above_the_high_watermark_is_a_note_if_leader_epochs_tell_it(
    session: Session, tmp_path: Path
) -> None:
    for topic in ("epochs", "one-epoch"):
        write(tmp_path / "a" / f"{topic}-0", 0, [*batches(0, 100), batch(100), batch(110, epoch=3)])
    write(tmp_path / "b" / "epochs-0", 0, [*batches(0, 100), batch(100, epoch=4, text="w")])
    write(tmp_path / "b" / "one-epoch-0", 0, [*batches(0, 100), batch(100, text="w")])
    lagging = {(Kind.EARLIER_END, topic, "b"): (10, 110) for topic in ("epochs", "one-epoch")}
    stored = {("epochs", 0): 100, ("one-epoch", 0): 100}
    assert findings(*audit(session, tmp_path, high_watermarks=stored)) == lagging | {
        (Kind.UNREPLICATED_TAIL, "epochs", "a / b"): (10, 100),
        (Kind.DIVERGENCE, "one-epoch", "a / b"): (10, 100),
    }
    without = findings(*audit(session, tmp_path, high_watermarks={("epochs", 0): 101}))
    assert without[Kind.DIVERGENCE, "epochs", "a / b"] == (1, 100)


def test_below_the_log_start_nothing_is_compared(session: Session, tmp_path: Path) -> None:
    for replica in "abc":
        write_log(tmp_path / replica / "t-0")
    write(tmp_path / "b" / "t-0", 0, [batch(0, text="w"), *batches(10, 100)])
    assert (Kind.DIVERGENCE, "t", "a, c / b") in findings(*audit(session, tmp_path))
    assert findings(*audit(session, tmp_path, log_starts={("t", 0): 5})) == {
        (Kind.DIVERGENCE, "t", "a, c / b"): (5, 5)
    }
    assert findings(*audit(session, tmp_path, log_starts={("t", 0): 10})) == {}


def rewritten(random: Random, records: Sequence[RecordInput], *, is_compacted: bool) -> list[bytes]:
    """The same records in batches of other sizes, some of them dropped, if it is compacted."""
    content, begin = [], 0
    while begin < len(records):
        end = min(len(records), begin + random.randint(1, 9))
        offset = begin
        while offset < end:
            stop = offset + 1
            while stop < end and not (is_compacted and random.random() < 0.3):
                stop += 1
            codec = random.choice(list(Compression))
            content.append(
                encode_batch(records[offset:stop], base_offset=offset, leader_epoch=1, compression=codec)
            )
            offset = stop + (is_compacted and random.random() < 0.5)
        begin = max(end, offset)
    return content


def test_logs_that_are_compacted_each_on_its_own_differ_only_where_a_record_does(
    session: Session, tmp_path: Path
) -> None:
    """Sixty random logs on three replicas; in every second one a record was changed on one of them."""
    random = Random(7)
    expected: Findings = {}
    for number in range(60):
        topic, is_compacted = f"t{number}", number % 4 < 2
        records = [
            RecordInput(b"k%d" % random.randrange(5), random.randbytes(9), (("h", b"x"),), n)
            for n in range(80)
        ]
        for replica in "abc":
            mine, changed = list(records), 10 + number
            if replica == "b" and number % 2:
                mine[changed] = mine[changed]._replace(value=b"other")
                expected[Kind.DIVERGENCE, topic, "a, c / b"] = (1, changed)
            folder = tmp_path / replica / f"{topic}-0"
            write(folder, 0, rewritten(random, mine, is_compacted=is_compacted))
            write(folder, 80, [batch(80)])
    ends = {(f"t{number}", 0): 80 for number in range(60)}
    found = findings(*audit(session, tmp_path, compacted_ends=ends))
    for number in range(1, 60, 2):
        topic = f"t{number}"
        if number % 4 < 2:  # a replica may not have kept the record that was changed
            groups = {who: one for (kind, name, who), one in found.items() if name == topic}
            assert set(groups.values()) <= {(1, 10 + number)}
            del expected[Kind.DIVERGENCE, topic, "a, c / b"]
            found = {key: one for key, one in found.items() if key[1] != topic}
    assert found == expected
    undeclared = findings(*audit(session, tmp_path))
    missing = {topic for kind, topic, _ in undeclared if kind is Kind.MISSING_RECORDS}
    assert missing == {f"t{number}" for number in range(60) if number % 4 < 2}
    declared = findings(*audit(session, tmp_path, compacted=sorted(missing)))
    assert Kind.MISSING_RECORDS not in {kind for kind, _, _ in declared}


def test_logs_that_pykraft_compacted_at_different_times_are_alike(session: Session, tmp_path: Path) -> None:
    config = LogConfig(internal_segment_bytes=4096, cleanup_policy=frozenset({"compact"}))
    cleaned = {}
    for replica, rounds in (("a", (40,)), ("b", (25, 40)), ("c", ())):
        random = Random(3)
        directory = tmp_path / replica / "t-0"
        with closing(Log.open(OsDisk(), str(directory), config, now_ms=0)) as log:
            for number in range(1, 41):
                inputs = [RecordInput(b"%d" % random.randrange(20), random.randbytes(50)) for _ in range(9)]
                data = encode_batch(inputs, base_offset=log.log_end_offset, leader_epoch=number // 10)
                log.append(data, [read_header(data)], now_ms=number)
                if number in rounds:
                    cleaned[replica] = clean(log)
    plan, found = audit(session, tmp_path, compacted_ends={("t", 0): max(cleaned.values())})
    assert findings(plan, found) == {}
    records = {one.replica: one.records for one in found.totals}
    assert records["a"] < records["c"] == 360


def test_folders_and_files_that_are_out_of_use_are_skipped_with_a_reason(tmp_path: Path) -> None:
    for name in ("t-0", "t-1.0ab-delete", f"t-2.{'a' * 32}-future", "t-3-stray", "t-4.17-damaged", "odd"):
        write(tmp_path / "a" / name, 0, [batch(0)])
    write(tmp_path / "other" / "t-0", 0, [batch(0)])
    (tmp_path / "a" / "t-0" / f"{9:020d}.log.swap").write_bytes(b"")
    (tmp_path / "a" / "t-0" / f"{0:020d}.log.deleted").write_bytes(b"")
    (tmp_path / "a" / "t-5").mkdir()
    dirs = [LogDir(replica="a", path=tmp_path / name) for name in ("a", "other")]
    plan = plan_audit(dirs, [], [])
    assert [(one.path, one.limit) for one in plan.segments] == [
        (str(tmp_path / "a" / "t-0" / f"{0:020d}.log"), None)
    ]
    reasons = (
        "replacement",
        "no segment",
        "delete",
        "future",
        "stray",
        "damaged",
        "name",
        "another directory",
    )
    assert len(plan.skipped) == len(reasons)
    assert all(any(reason in line for line in plan.skipped) for reason in reasons), plan.skipped
    assert [log.topic for log in plan_audit(dirs, ["u"], []).logs] == []


def test_small_segments_share_a_task_and_large_ones_have_their_own(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for replica in "ab":
        write_log(tmp_path / replica / "t-0")
    sizes = [path.stat().st_size for path in tmp_path.glob("*/t-0/*.log")]
    monkeypatch.setattr(audit_job, "_OPEN_BYTES", 1)
    for most, tasks in ((sum(sizes) + 5, 1), (sum(sizes) + 4, 2), (2 * min(sizes), 6), (1, 6)):
        monkeypatch.setattr(audit_job, "TASK_BYTES", most)
        monkeypatch.setattr(audit_job, "COMPARED_BYTES", -(-sum(sizes) // 6))
        session.log.clear()
        assert findings(*audit(session, tmp_path)) == {}
        grouped = ["grouped in 6"] * 2
        assert session.log == [f"{tasks} tasks in {tasks}", "persisted", *grouped, "unpersisted"]
    monkeypatch.setattr(audit_job, "COMPARED_BYTES", sum(sizes))
    session.log.clear()
    audit(session, tmp_path)
    assert "grouped in 2" in session.log, "at least one for each core"


def test_many_batches_and_records_are_exchanged_in_parts(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_job, "_ROWS", 3)
    monkeypatch.setattr(audit_records, "_ROWS", 7)
    for replica, epoch in (("a", 3), ("b", 4)):
        write_log(tmp_path / replica / "t-0", epoch)
    assert findings(*audit(session, tmp_path)) == {(Kind.EPOCH_DIFFERS, "t", "a / b"): (300, 0)}


def test_audit_of_nothing_finds_nothing(session: Session, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    plan, found = audit(session, tmp_path)
    assert findings(plan, found) == {} and found.unreadable == ()
    assert [(one.replica, one.partitions, one.batches) for one in found.totals] == [("a", 0, 0)]


def test_segment_that_vanishes_between_the_steps_is_named(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for replica, text in (("a", "v"), ("b", "w")):
        write(tmp_path / replica / "t-0", 0, [batch(0, text=text)])
    gone = tmp_path / "b" / "t-0" / f"{0:020d}.log"
    note_ends = audit_job._note_ends

    def vanish(*given: Any) -> None:
        gone.unlink()
        note_ends(*given)

    monkeypatch.setattr(audit_job, "_note_ends", vanish)
    _, found = audit(session, tmp_path)
    assert found.unreadable == (f"{gone}: No such file or directory",)


@pytest.mark.spark
def test_command_says_what_it_found(
    spark_session: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def existing_session(*_: str) -> "Iterator[SparkSession]":
        yield spark_session

    monkeypatch.setattr(spark_audit_segments, "spark_session", existing_session)

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(cli, ["spark", "audit-segments", *map(str, arguments)])

    for replica in "ab":
        write_log(tmp_path / replica / "t-0")
        write_log(tmp_path / replica / "other-0")
    a, b = f"one={tmp_path / 'a'}", f"two={tmp_path / 'b'}"
    clean_run = run(a, b)
    assert (clean_run.exit_code, "no anomaly" in clean_run.output) == (0, True), clean_run.output
    broken = tmp_path / "b" / "t-0" / f"{100:020d}.log"
    change(broken, position(broken, 150) + 80, b"\xff")
    told = run(a, b)
    assert told.exit_code == 1, told.output
    assert "crc-mismatch: " in told.output and str(broken) in told.output
    assert run(a, b, "--topic", "other").exit_code == 0
    found = json.loads(run(a, b, "--json").output)
    (anomaly,) = found["anomalies"]
    assert (anomaly["kind"], anomaly["replica"], anomaly["count"]) == ("crc-mismatch", "two", 1)
    assert anomaly["examples"][0]["position"] == position(broken, 150)
    assert found["replicas"][0] == found["replicas"][1] | {
        "replica": "one",
        "batches": 60,
        "records": 600,
    }
    # What cannot be read is not clean; a link to nothing is a file that vanished.
    (tmp_path / "a" / "other-0" / f"{300:020d}.log").symlink_to(tmp_path / "nowhere")
    unread = run(a, b, "--topic", "other")
    assert (unread.exit_code, "could not be read: " in unread.output) == (4, True), unread.output
    assert run(a, b).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["{}/none"], 2, "there is no directory"),
        (["x={}/none"], 2, "there is no directory"),
        (["{}", "{}/."], 2, "is given twice"),
        (["{}"], 4, "there is no segment in a TOPIC-PARTITION folder"),
        (["{}", "--topic", "t"], 4, "no log directory holds topic t"),
        (["{}/bad"], 4, "replication-offset-checkpoint"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_starts(
    tmp_path: Path, arguments: Sequence[str], exit_code: int, message: str
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "replication-offset-checkpoint").write_text("7\n")
    result = CliRunner().invoke(
        cli, ["spark", "audit-segments", *(one.format(tmp_path) for one in arguments)]
    )
    assert (result.exit_code, message in result.output) == (exit_code, True), result.output
