"""The benchmark of groups, without Apache Kafka: rows of several families run against this broker."""

from pathlib import Path

import pytest

from tests.interop.benchmark_rows import check_rows_run

FAMILIES = ("classic", "commits", "groups", "heartbeats")
"""Without those that take a minute each, in which members wait for their next heartbeats."""

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_run_and_what_was_started_is_stopped(tmp_path: Path, family: str) -> None:
    check_rows_run("groups.py", ["--rows", family], tmp_path, "groups")
