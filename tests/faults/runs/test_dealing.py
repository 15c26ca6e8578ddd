"""Lines of a history are dealt out to tasks by the logs that they are of."""

from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.history import Event, write_history
from pykraft.jepsen_like.faults.runs.spark_check import Part, _deal

BUCKETS = 4


@pytest.mark.parametrize("key", ["log-0", 'a"log-0', "a\\log-0", "líog-0"])
def test_a_line_goes_to_the_one_task_of_its_log_whatever_its_name(key: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    write_history(path, [Event("invoke", "p", 0, "send", key, "v"), Event("ok", "p", 1, "send", key, "v", 0)])
    dealt = dict(_deal(Part(0, str(path), 0, path.stat().st_size), BUCKETS))
    (chunk,) = dealt.values()
    assert BUCKETS not in dealt, "that is the one of what is of no log"
    assert chunk.lines + b"\n" == path.read_bytes()
