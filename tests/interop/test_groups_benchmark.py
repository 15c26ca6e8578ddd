"""The benchmark of groups, without Apache Kafka: rows of several families run against this broker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from comparison.results import load

SCRIPT = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "groups.py"
TIMEOUT_S = 800
FAMILIES = ("classic", "commits", "groups", "heartbeats")
"""Without those that take a minute each, in which members wait for their next heartbeats."""

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_run_and_what_was_started_is_stopped(tmp_path: Path, family: str) -> None:
    command = [sys.executable, str(SCRIPT), "--quick", "--rounds", "1", "--systems", "pykraft"]
    command += ["--rows", family, "--out", str(tmp_path / "out"), "--directory", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            process.terminate()  # it stops its nodes
            raise
    assert process.returncode == 0, output
    (results,) = load([tmp_path / "out" / "results.json"])
    (measured,) = results.families
    assert measured.failures == []
    assert measured.rows
    assert not list(tmp_path.glob("groups-*")), "the nodes' data is left"
