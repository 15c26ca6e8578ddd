"""Groups at work on this broker and on Apache Kafka 4.3, in turns: how fast, and at what cost.

Apache Kafka comes as in ``vs_kafka.py``. For every family of rows both systems take turns, ``--rounds``
times, each time as new processes. Only one system runs at a time. What a figure is stands above its table.

    python benchmarks/groups.py [--rows consumer,classic] [--match REGEX] [--rounds 3] [--quick] [--out DIR]
    python benchmarks/groups.py --kafka-libs DIR            # the jars of a release that is unpacked here
    python benchmarks/groups.py --render DIR/results.json   # its tables in docs/performance.md

A load average far above that of one driver and one broker, about 2, says that the machine was busy with other
work: times and longest turns are then those of the others.

The results are written after every turn: ``results.json`` with every single figure and ``results.md``.
Several files can be rendered together: the last results of a family count. What committed offsets cost in
memory and to load is in ``groups_offsets.py``, without a broker.
"""

from typing import Final

from comparison.program import DOCS, Comparison, Family, main
from coordination.rows import commits, consuming, heartbeats, many_groups, members, new_partitions
from coordination.table import render
from coordination.watched import Watched

GROUPS: Final = (
    Family("consumer", members.__doc__, members.run_consumer),
    Family("classic", members.__doc__, members.run_classic),
    Family("consuming", consuming.__doc__, consuming.run),
    Family("partitions", new_partitions.__doc__, new_partitions.run),
    Family("groups", many_groups.__doc__, many_groups.run),
    Family("commits", commits.__doc__, commits.run),
    Family("heartbeats", heartbeats.__doc__, heartbeats.run),
)
COMPARISON: Final = Comparison("groups", __doc__, GROUPS, Watched, render, DOCS / "groups_vs_kafka.json")

if __name__ == "__main__":
    main(COMPARISON)
