"""Whether Spark can run here."""

import pytest


def skip_without_spark() -> None:
    """Names what to install. Nothing of pyspark is imported before."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install pykraft[spark]")
    from pykraft.spark.session import java_problem

    if problem := java_problem():
        pytest.skip(problem)
