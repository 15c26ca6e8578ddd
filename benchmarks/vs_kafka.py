"""This broker and Apache Kafka under the same clients, loads and durability: processor time first, then time.

Apache Kafka 4.3.0 comes from Maven Central, once (``--fetch`` does only that), or from a directory of jars.
It runs with the heap and the options of its start scripts, and without logging. For every family of rows both
systems take turns, ``--rounds`` times: new processes, a load to warm up, and the load that is measured. Only
one system runs at a time.

    python benchmarks/vs_kafka.py [--rows raw,start] [--match REGEX] [--rounds 5] [--quick] [--out DIR]
    python benchmarks/vs_kafka.py --kafka-libs DIR            # the jars of a release that is unpacked here
    python benchmarks/vs_kafka.py --render DIR/results.json   # the tables and the plot of docs/performance.md

The results are written after every turn: ``results.json`` with every single figure and ``results.md``; in the
end ``vs_kafka.png``. Several files can be rendered together, such as those of single families: the last
results of a family count. What is published is also kept in docs/vs_kafka.json.
"""

from typing import Final

from comparison.program import DOCS, Comparison, Family, main
from comparison.rows import (
    commits,
    fetchers,
    idle,
    librdkafka,
    memory,
    producers,
    raw,
    rebalances,
    replicated,
    starting,
    topics,
)
from comparison.systems import Pykraft
from comparison.table import PLOT, published

FAMILIES: Final = (
    Family("start", starting.__doc__, starting.run),
    Family("memory", memory.__doc__, memory.run),
    Family("raw", raw.__doc__, raw.run),
    Family("librdkafka", librdkafka.__doc__, librdkafka.run),
    Family("producers", producers.__doc__, producers.run),
    Family("fetchers", fetchers.__doc__, fetchers.run),
    Family("replicated", replicated.__doc__, replicated.run),
    Family("idle", idle.__doc__, idle.run),
    Family("topics", topics.__doc__, topics.run),
    Family("rebalances", rebalances.__doc__, rebalances.run),
    Family("commits", commits.__doc__, commits.run),
)
VS_KAFKA: Final = Comparison(
    "vs_kafka", __doc__, FAMILIES, Pykraft, published, DOCS / "vs_kafka.json", plot=DOCS / PLOT, rounds=5
)

if __name__ == "__main__":
    main(VS_KAFKA)
