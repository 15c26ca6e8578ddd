"""Transactions on this broker and on Apache Kafka 4.3, in turns: how fast, and at what cost.

Apache Kafka comes as in ``vs_kafka.py``. For every family of rows both systems take turns, ``--rounds``
times, each time as new processes. Only one system runs at a time. What a figure is stands above its table.

    python benchmarks/transactions.py [--rows committing] [--match REGEX] [--rounds 3] [--quick]
    python benchmarks/transactions.py --kafka-libs DIR            # the jars of a release unpacked here
    python benchmarks/transactions.py --render DIR/results.json   # its tables in docs/performance.md

The results are written after every turn: ``results.json`` with every single figure and ``results.md``.
Several files can be rendered together: the last results of a family count.
"""

from typing import Final

from comparison.program import DOCS, Comparison, Family, main
from coordination.rows import committing, reading
from coordination.table import render
from coordination.watched import Watched

TRANSACTIONS: Final = (
    Family("committing", committing.__doc__, committing.run),
    Family("reading", reading.__doc__, reading.run),
)
COMPARISON: Final = Comparison(
    "transactions", __doc__, TRANSACTIONS, Watched, render, DOCS / "transactions_vs_kafka.json"
)

if __name__ == "__main__":
    main(COMPARISON)
