"""How long `pykraft spark check-history` takes for a large history, and the checkers in one process.

The history is made up: producers, two readers of each log, a last read and three replicas, as the workload
`append` records them, and one lost write, which both must find. An operation is an invocation with its
answer.

    python benchmarks/check_history.py [--operations 5000000] [--logs 60] [--in-process]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pykraft.jepsen_like.faults.checkers.findings import Anomaly
from pykraft.jepsen_like.faults.checkers.history import Report, examine
from pykraft.jepsen_like.faults.history import Event, read_history
from pykraft.jepsen_like.faults.runs.spark_check import check_histories
from pykraft.spark.jobs.session import job_session

_PRODUCERS: Final = 12
_READERS: Final = 2
_POLLED: Final = 20
"""Records of one poll."""
_READ_AT_ONCE: Final = 5_000
"""Records of an event of the last read, or of a replica."""
_OPERATIONS_OF_A_RECORD: Final = 1 + _READERS / _POLLED


def made_up(records: int, logs: int) -> Iterator[Event]:
    """``records`` are acknowledged; the first of the last log is lost."""
    of_a_log = records // logs
    written: list[list[str]] = [[] for _ in range(logs)]
    time_us = 0
    for number in range(of_a_log):
        for log in range(logs):
            key, producer = f"log-{log}", f"p{(number + log) % _PRODUCERS}"
            value = f"{producer}-{log}-{number}"
            stamp = {"timestamp_ms": number}
            yield Event("invoke", producer, time_us, "send", key, value, detail=stamp)
            yield Event("ok", producer, time_us + 500, "send", key, value, number)
            written[log].append(value)
            time_us += 20
        if number % _POLLED == _POLLED - 1:
            yield from _polls(written, number + 1, time_us)
    for log, values in enumerate(written):
        is_last = log == logs - 1
        yield from _whole_log(f"log-{log}", [*enumerate(values)], time_us, lacks_first=is_last)


def _polls(written: list[list[str]], end: int, time_us: int) -> Iterator[Event]:
    for log, values in enumerate(written):
        records = [(offset, values[offset]) for offset in range(end - _POLLED, end)]
        for reader in range(_READERS):
            process, key = f"c{log}-{reader}", f"log-{log}"
            yield Event("invoke", process, time_us, "poll", key)
            yield Event(
                "ok", process, time_us + 300, "poll", key, records=records, detail={"high_watermark": end}
            )


def _whole_log(
    key: str, records: list[tuple[int, str]], time_us: int, *, lacks_first: bool
) -> Iterator[Event]:
    seen = records[1:] if lacks_first else records
    if lacks_first:
        yield Event("ok", "final", time_us, "final-start", key, offset=0)
    for start in range(0, len(seen), _READ_AT_ONCE):
        yield Event("ok", "final", time_us, "final", key, records=seen[start : start + _READ_AT_ONCE])
    yield Event("ok", "final", time_us, "final-end", key, offset=len(records))
    for node in range(1, 4):
        for start in range(0, len(records), _READ_AT_ONCE):
            part = records[start : start + _READ_AT_ONCE]
            yield Event("ok", f"replica-{node}", time_us, "replica", key, records=part)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--operations", type=int, default=5_000_000, help="default: %(default)s")
    parser.add_argument("--logs", type=int, default=60, help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--in-process", action="store_true", help="the same without Spark, once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="history-") as directory:
        path = Path(directory) / "history.jsonl"
        records = int(options.operations / _OPERATIONS_OF_A_RECORD)
        with path.open("w", encoding="utf-8") as file:
            file.writelines(event.to_json() + "\n" for event in made_up(records, options.logs))
        size_mb = path.stat().st_size / 1e6
        print(f"{options.operations:,} operations on {options.logs} logs, {size_mb:,.0f} MB", flush=True)
        start = time.monotonic()
        with job_session("check-history", "local[2]") as session:
            print(f"start of Spark: {time.monotonic() - start:.1f} s", flush=True)
            for _ in range(options.rounds):
                start = time.monotonic()
                (found,) = check_histories(session, [path])
                print(f"in Spark, local[2]: {time.monotonic() - start:.1f} s, {_told(found)}", flush=True)
        if options.in_process:
            start = time.monotonic()
            report = examine(read_history(path))
            print(f"in one process: {time.monotonic() - start:.1f} s, {_told(report)}", flush=True)
            print(f"equal reports: {report == found}")


def _told(report: Report) -> str:
    lost = sum(one.count for one in report.findings if one.kind is Anomaly.LOST_WRITE)
    return f"{lost} lost write, {sum(one.count for one in report.findings) - lost} other findings"


if __name__ == "__main__":
    main()
