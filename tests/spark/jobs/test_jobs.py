"""Jobs: files into topics, topics into files, and lag, each against a real broker."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.node.cli.root import cli
from pykraft.spark.jobs.export import Export, export
from pykraft.spark.jobs.lag_report import lag_report
from pykraft.spark.jobs.load import Load, load
from pykraft.spark.jobs.query import innermost_error
from pykraft.spark.writing.written_rows import WriteError
from tests.narrowing import present

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_file(directory: Path, name: str, numbers: range) -> None:
    directory.mkdir(exist_ok=True)
    lines = (json.dumps({"key": f"k{number}", "number": number}) for number in numbers)
    (directory / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def loading(servers: str, topic: str, directory: Path, **changes: Any) -> Load:
    settings: dict[str, Any] = {
        "bootstrap_servers": servers,
        "topic": topic,
        "path": f"{directory}/in",
        "format": "json",
        "options": {},
        "schema": None,
        "key": "key",
        "value": None,
        "checkpoint": f"{directory}/checkpoint",
        "delivery_guarantee": "exactly_once",
        "max_files_per_trigger": 1,
    }
    return Load(**settings | changes)


def exporting(servers: str, topic: str, directory: Path, most: int | None = None) -> Export:
    return Export(
        bootstrap_servers=servers,
        topics=topic,
        is_pattern=False,
        directory=f"{directory}/out",
        isolation_level="read_committed",
        with_headers=True,
        max_offsets_per_trigger=most,
    )


@pytest.mark.interop
@pytest.mark.spark
def test_rows_of_files_reach_other_files_once_each(
    spark_session: "SparkSession", servers: str, topic: str, tmp_path: Path
) -> None:
    """Both jobs are run again, after more has come, and after a micro-batch whose end was not stored."""
    write_file(tmp_path / "in", "1.json", range(100))
    write_file(tmp_path / "in", "2.json", range(100, 150))
    assert load(spark_session, loading(servers, topic, tmp_path)) == 150
    assert export(spark_session, exporting(servers, topic, tmp_path, 60)) == 150
    write_file(tmp_path / "in", "3.json", range(150, 200))
    assert load(spark_session, loading(servers, topic, tmp_path)) == 50
    for checkpoint in ("checkpoint", "out/_checkpoint"):
        stored = tmp_path / checkpoint / "commits"
        newest = max(int(path.name) for path in stored.glob("[0-9]*"))
        (stored / str(newest)).unlink()
        (stored / f".{newest}.crc").unlink()
    load(spark_session, loading(servers, topic, tmp_path))
    export(spark_session, exporting(servers, topic, tmp_path))
    assert load(spark_session, loading(servers, topic, tmp_path)) == 0
    assert export(spark_session, exporting(servers, topic, tmp_path)) == 0
    found = spark_session.read.parquet(f"{tmp_path}/out")
    rows = {json.loads(row.value)["number"]: bytes(row.key).decode() for row in found.collect()}
    assert (found.count(), rows) == (200, {number: f"k{number}" for number in range(200)})
    assert {"topic", "date", "headers"} <= set(found.columns)


@pytest.mark.interop
@pytest.mark.spark
def test_files_are_loaded_once_though_there_are_more_cores(
    spark_session: "SparkSession", servers: str, topic: str, tmp_path: Path
) -> None:
    """The end of the micro-batch was not stored. The setting stands for the number of cores."""
    cores = "spark.sql.leafNodeDefaultParallelism"
    for number in range(4):
        write_file(tmp_path / "in", f"{number}.json", range(number, number + 1))
    job = loading(servers, topic, tmp_path, max_files_per_trigger=4)
    try:
        for count in ("1", "4"):
            spark_session.conf.set(cores, count)
            assert load(spark_session, job) == 4
            for stored in (tmp_path / "checkpoint" / "commits").iterdir():
                stored.unlink()
    finally:
        spark_session.conf.unset(cores)
    assert spark_session.conf.get("spark.sql.files.minPartitionNum", None) is None
    records = spark_session.read.format("pykraft").option("kafka.bootstrap.servers", servers)
    assert records.option("subscribe", topic).load().count() == 4


@pytest.mark.interop
@pytest.mark.spark
def test_column_that_the_files_do_not_have_is_refused(
    spark_session: "SparkSession", servers: str, topic: str, tmp_path: Path
) -> None:
    write_file(tmp_path / "in", "1.json", range(3))
    with pytest.raises(WriteError, match="no column 'id', only key, number"):
        load(spark_session, loading(servers, topic, tmp_path, key="id"))


@pytest.mark.interop
@pytest.mark.spark
def test_lag_is_that_of_the_offsets_and_times(
    spark_session: "SparkSession", servers: str, topic: str, tmp_path: Path
) -> None:
    write_file(tmp_path / "in", "1.json", range(100))
    load(spark_session, loading(servers, topic, tmp_path, delivery_guarantee="at_least_once"))
    records = spark_session.read.format("pykraft").option("kafka.bootstrap.servers", servers)
    newest = records.option("subscribe", topic).load().selectExpr("unix_millis(max(timestamp))").first()
    assert newest is not None
    now_ms = newest[0] + 5_000
    with AdminClient(servers) as admin:
        asked = {TopicPartition(topic, index): -1 for index in range(3)}
        ends = {one: present(found.offset) for one, found in admin.list_offsets(asked).items()}
        read = {one: OffsetAndMetadata(end - 4) for one, end in ends.items()}
        read[TopicPartition(topic, 0)] = OffsetAndMetadata(ends[TopicPartition(topic, 0)])
        admin.alter_group_offsets("readers", read)
    report = lag_report(spark_session, servers, ["readers"], 100_000, now_ms)
    assert [(one.partition, one.lag, one.end_offset) for one in report] == [
        (index, 0 if index == 0 else 4, ends[TopicPartition(topic, index)]) for index in range(3)
    ]
    assert sum(one.records_per_s for one in report) == pytest.approx(1.0)
    assert report[0].behind_ms is None
    assert all(one.behind_ms is not None and 5_000 <= one.behind_ms < 65_000 for one in report[1:])
    assert lag_report(spark_session, servers, ["nobody"], 1_000, now_ms) == []


def test_failed_query_is_told_by_its_innermost_error() -> None:
    text = "[STREAM_FAILED] x\nTraceback\npykraft.spark.OtherRowsError: rows differ\n\tat y\n== Plan =="
    assert innermost_error(text) == "pykraft.spark.OtherRowsError: rows differ"
    assert innermost_error("[STREAM_FAILED] failed\n== Plan ==") == "[STREAM_FAILED] failed"


def test_single_file_is_refused(tmp_path: Path) -> None:
    """Spark's streams read directories."""
    file = tmp_path / "rows.csv"
    file.touch()
    arguments = ["--bootstrap-server", "127.0.0.1:9", "--topic", "t", "--format", "csv", "--checkpoint", "c"]
    result = CliRunner().invoke(cli, ["spark", "load", *arguments, str(file)])
    assert result.exit_code == 2
    assert f"{file} is a file: give its directory, or a pattern" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "--out", "x"], "give either --topic or --topics-pattern"),
        (["export", "--out", "x", "--topic", "t", "--topics-pattern", "t"], "give either"),
        (
            ["load", "--topic", "t", "--format", "csv", "--checkpoint", "c", "--option", "header", "p"],
            "NAME=VALUE",
        ),
        (["load", "--topic", "t", "--format", "avro", "--checkpoint", "c", "p"], "'avro' is not one of"),
        (["lag-report", "--window-s", "0"], "0 is not in the range"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(
        cli, ["spark", arguments[0], "--bootstrap-server", "localhost:1", *arguments[1:]]
    )
    assert (result.exit_code, message in result.output) == (2, True), result.output
