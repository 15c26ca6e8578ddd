"""The comparison with Apache Kafka, without Apache Kafka: a row of every family runs against this broker."""

from pathlib import Path

import pytest
from vs_kafka import FAMILIES

from tests.interop.benchmark_rows import check_rows_run

ROWS = (
    "^start$|^after start|^produce 16 KiB$|^consume 100 B, zstd, 16 KiB|^1 producer$|one record each$"
    "|^one in flight$|^1 partition$|^create a topic$|^classic group$|^consumer group$|^1 client, 1 partition$"
)

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.mark.parametrize("family", [family.name for family in FAMILIES])
def test_rows_run_and_what_was_started_is_stopped(tmp_path: Path, family: str) -> None:
    check_rows_run("vs_kafka.py", ["--rows", family, "--match", ROWS], tmp_path, "vs-kafka")
