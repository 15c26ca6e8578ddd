"""Transactions on this broker and on Apache Kafka 4.3, in turns: how fast, and at what cost.

Apache Kafka comes as in ``vs_kafka.py``. For every family of rows both systems take turns, ``--rounds``
times, each time as new processes. Only one system runs at a time. What a figure is stands above its table.

    python benchmarks/transactions.py [--rows committing] [--match REGEX] [--rounds 3] [--quick]
    python benchmarks/transactions.py --kafka-libs DIR            # the jars of a release unpacked here
    python benchmarks/transactions.py --render DIR/results.json   # its tables in docs/performance.md

The results are written after every turn: ``results.json`` with every single figure and ``results.md``.
Several files can be rendered together: the last results of a family count.
"""

from __future__ import annotations

from coordination.families import TRANSACTIONS
from coordination.program import Comparison, main

if __name__ == "__main__":
    main(Comparison("transactions", __doc__, TRANSACTIONS))
