"""Runs rows of a benchmark that plays systems in turns, against this broker alone, as short as possible."""

import subprocess
import sys
from pathlib import Path

from comparison.results import load

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
TIMEOUT_S = 800


def check_rows_run(script: str, arguments: list[str], directory: Path, prefix: str) -> None:
    """That rows come out, and that what was started is stopped: no node's data is left, as ``prefix``…"""
    command = [sys.executable, str(BENCHMARKS / script), "--quick", "--rounds", "1", "--systems", "pykraft"]
    command += [*arguments, "--out", str(directory / "out"), "--directory", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            process.terminate()  # it stops its nodes
            raise
    assert process.returncode == 0, output
    (results,) = load([directory / "out" / "results.json"])
    (measured,) = results.families
    assert measured.failures == []
    assert measured.rows
    assert not list(directory.glob(f"{prefix}-*")), "the nodes' data is left"
