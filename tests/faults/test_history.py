"""Histories are written to files and read back."""

import threading
from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.checkers.self_test.plants import clean_history
from pykraft.jepsen_like.faults.history import (
    Event,
    HistoryError,
    HistoryWriter,
    event_from_json,
    read_history,
    write_history,
)


def _comparable(event: Event) -> tuple[object, ...]:
    records = None if event.records is None else [tuple(record) for record in event.records]
    return (event.type, event.process, event.time_us, event.op, event.key, event.value, event.offset, records)


def test_history_reads_back_as_written(tmp_path: Path) -> None:
    events = clean_history(10)
    write_history(tmp_path / "history.jsonl", events)
    assert [_comparable(e) for e in read_history(tmp_path / "history.jsonl")] == [
        _comparable(e) for e in events
    ]


def test_line_leaves_out_what_is_unknown() -> None:
    line = Event("invoke", "p1", 5, "send", "t-0", "p1-0").to_json()
    assert line == '{"type":"invoke","process":"p1","time_us":5,"op":"send","key":"t-0","value":"p1-0"}'
    assert event_from_json(line) == Event("invoke", "p1", 5, "send", "t-0", "p1-0")


def test_torn_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    write_history(path, clean_history(3))
    whole = len(list(read_history(path)))
    path.write_text(path.read_text()[:-10])
    assert len(list(read_history(path))) == whole - 1


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"type":"ok"}',
        '{"type":"maybe","process":"p","time_us":1,"op":"send"}',
        '{"type":"ok","process":"p","time_us":1,"op":"send","colour":1}',
        '{"type":"ok","process":"p","time_us":1,"op":"poll","records":[1]}',
    ],
)
def test_bad_line_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(f"{clean_history(1)[0].to_json()}\n{line}\n")
    with pytest.raises(HistoryError, match=r"history\.jsonl:2: "):
        list(read_history(path))


def test_writer_keeps_whole_lines_from_many_threads(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with HistoryWriter(path) as writer:

        def work(name: str) -> None:
            for number in range(500):
                writer.record("ok", name, "send", key="t-0", value=f"{name}-{number}", offset=number)

        threads = [threading.Thread(target=work, args=(f"p{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = list(read_history(path))
    assert len(events) == 2_000
    times = [event.time_us for event in events if event.process == "p2"]
    assert times == sorted(times)
    writer.record("ok", "late", "send")
    assert len(list(read_history(path))) == 2_000
