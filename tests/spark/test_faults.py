"""One round of the fault runs of streams, as ``make spark-faults`` plays many, and what judges them."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykraft.jepsen_like.faults.spark_rounds.findings import Copy, Record, Seen, anomalies
from pykraft.jepsen_like.faults.spark_rounds.plan import FaultKind, plan_round
from pykraft.jepsen_like.faults.spark_rounds.rounds import running
from pykraft.jepsen_like.faults.spark_rounds.session_processes import processes_of
from pykraft.jepsen_like.faults.spark_rounds.tally import read_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDS_DRIVER = {FaultKind.KILL_DRIVER, FaultKind.KILL_PYTHON, FaultKind.STALL_DRIVER}
A, B, C = Record(0, 0, 10), Record(0, 1, 11), Record(1, 0, 12)


def test_plan_is_that_of_its_seed_and_ends_the_driver_in_every_way() -> None:
    assert plan_round(7, 1, 20) == plan_round(7, 1, 20) != plan_round(8, 1, 20)
    first = [{fault.kind for fault in plan_round(7, number, 20)[:4]} for number in (1, 2, 3)]
    assert set().union(*first) & ENDS_DRIVER == ENDS_DRIVER
    for kinds in first:
        assert kinds - ENDS_DRIVER == {FaultKind.KILL_WORKERS, FaultKind.MOVE, FaultKind.GROW}


def seen(
    source: list[Record],
    sink: list[Record],
    parquet: list[Record],
    *,
    acknowledged: dict[int, tuple[int, int]],
) -> Seen:
    return Seen(acknowledged, 13, source, [Copy(record.partition, record) for record in sink], parquet)


ALL = {10: (0, 0), 11: (0, 1), 12: (1, 0)}


def test_each_record_once_is_clean_also_without_an_answer() -> None:
    assert anomalies(seen([A, B, C], [C, A, B], [B, C, A], acknowledged={10: (0, 0)})) == []
    assert anomalies(seen([], [], [], acknowledged={})) == []


@pytest.mark.parametrize(
    ("what", "source", "sink", "parquet"),
    [
        ("1 acknowledged and not where the broker has said: 12", [A, B], [A, B], [A, B]),
        ("1 missing in the sink topic", [A, B, C], [A, C], [A, B, C]),
        ("1 more than once in the sink topic", [A, B, C], [A, B, B, C], [A, B, C]),
        ("1 missing in the Parquet sink", [A, B, C], [A, B, C], [A, B]),
        ("1 more than once in the Parquet sink", [A, B, C], [A, B, C], [A, B, C, C]),
        ("1 out of order in the sink topic", [A, B, C], [B, A, C], [A, B, C]),
    ],
)
def test_anomaly_is_named(what: str, source: list[Record], sink: list[Record], parquet: list[Record]) -> None:
    (found,) = anomalies(seen(source, sink, parquet, acknowledged=ALL))
    assert found.startswith(what)


def test_record_that_nobody_sent_and_an_open_transaction_are_named() -> None:
    never, again = Record(2, 0, 99), Record(2, 1, 10)
    source = [A, never, again]
    found = anomalies(Seen({}, 13, source, [Copy(0, one) for one in source], source, ["sink-1"]))
    assert [one.split(":")[0] for one in found] == [
        "1 twice in the source",
        "1 in the source and never sent",
        "1 a transaction is left open in",
    ]


def test_failure_of_a_query_is_counted_and_a_loss_is_an_anomaly(tmp_path: Path) -> None:
    errors = tmp_path / "errors.jsonl"
    assert read_failures(errors) == ({}, [])
    lines = (
        '{"query": "q", "error": "failed\\npykraft.X.FencedError: epoch 7 of 9\\n\\tat y"}',
        '{"query": "q", "error": "failed\\npykraft.X.FencedError: epoch 8 of 9\\n\\tat y"}',
        '{"query": "q", "error": "StreamDataLossError: gone"}',
    )
    errors.write_text("\n".join(lines) + "\n", encoding="utf-8")
    reasons, losses = read_failures(errors)
    assert reasons == {"pykraft.X.FencedError: epoch N of N": 2, "StreamDataLossError: gone": 1}
    assert losses == ["a query reports a loss: StreamDataLossError: gone"]


@pytest.mark.interop
@pytest.mark.spark
@pytest.mark.slow
def test_round_of_faults_loses_and_repeats_nothing(spark_session: "SparkSession", tmp_path: Path) -> None:
    with running(tmp_path, spark_session) as rounds:
        assert rounds.play(1, 1, 12.0) == []
        tally = rounds.tally
        assert tally.copied >= tally.acknowledged > 0
        assert tally.driver_starts > 1
        leaders = rounds.driver.session_ids
    assert all(processes_of(session_id) == [] for session_id in leaders)
