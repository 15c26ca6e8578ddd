"""The comparison of Spark's three ways to a topic: its tables, what is published of it, and that it runs."""

import subprocess
import sys
from pathlib import Path

import pytest
from spark_comparison.results import Results, Row, render
from spark_comparison.rows import ABOUT

from tests.spark_here import skip_without_spark

ROOT = Path(__file__).resolve().parents[2]
RUN = dict.fromkeys(("date", "command", "pykraft", "machine", "spark"), "x")


def test_table_shows_medians_and_ratios() -> None:
    seconds = {"pykraft": [0.5, 0.4, 0.6], "confluent": [2.0, 2.0, 2.0], "connector": [1.0, 1.1, 0.9]}
    results = Results(RUN, 3, [Row("batch", "1 KiB, lz4", 1000, 2_000_000, seconds)])
    text = render(results, ABOUT)
    assert "| batch, 1 KiB | 500 ms | 0.25 | 0.50 |" in text
    assert "Medians of 3 rounds" in text


def test_side_that_was_not_measured_is_a_dash() -> None:
    results = Results(RUN, 1, [Row("planning", "1,000 partitions", 0, 0, {"pykraft": [0.25]})])
    assert "| planning, 1,000 partitions | 250 ms | - | - |" in render(results, ABOUT)


def test_one_codec_of_several_is_shown() -> None:
    of_codecs = [
        Row("batch", f"1 KiB, {codec}", 0, 0, {"pykraft": [1.0]}) for codec in ("none", "lz4", "zstd")
    ]
    lines = render(Results(RUN, 1, of_codecs), ABOUT).splitlines()
    assert [line for line in lines if "KiB" in line] == ["| batch, 1 KiB | 1.00 s | - | - |"]


def test_page_shows_what_was_measured() -> None:
    """No published figure is typed by hand."""
    results = Results.load(ROOT / "docs" / "spark_compared.json")
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert render(results, ABOUT).strip() in page
    assert not results.run["quick"]


@pytest.mark.spark
@pytest.mark.slow
def test_rows_run(tmp_path: Path) -> None:
    skip_without_spark()
    out = tmp_path / "results.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "spark.py"), "--quick", "--rounds", "1"]
    command += ["--families", "batch,sink", "--match", "1 KiB, lz4", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    results = Results.load(out)
    assert [(row.family, row.name) for row in results.rows] == [
        ("batch", "1 KiB, lz4"),
        ("sink", "1 KiB, lz4, at least once"),
        ("sink", "1 KiB, lz4, exactly once"),
    ]
    assert results.rows[0].seconds.keys() >= {"pykraft", "confluent"}
