"""Keeps workers of Spark from looking through all their objects after every task.

Spark's Python workers collect garbage, of all generations, when a task has ended and before they take the
next one. With what pyspark, numpy and pyarrow have loaded that is 30 to 60 ms, more than a small task takes.
"""

from __future__ import annotations

import gc
from functools import cache

from pyspark import TaskContext


def spare_imports() -> None:
    """Keep what is loaded out of later collections, if this is a worker. Call it when all is imported.

    What is frozen is still freed when nothing refers to it; only cycles that are there now stay for good.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    """Once in a process: what its first task leaves behind is to be collected."""
    gc.freeze()
