"""A kafka-python consumer in its own process, so that the sockets it leaves open end with it.

Prints a line of JSON for every turn: the partitions it owns, the records it got, and whether it could commit.
"""

from __future__ import annotations

import json
import sys
import warnings

warnings.simplefilter("ignore", DeprecationWarning)

from kafka import KafkaConsumer  # noqa: E402
from kafka.errors import KafkaError  # noqa: E402


def main() -> None:
    servers, group, topic = sys.argv[1:]
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=5000,
        heartbeat_interval_ms=300,
        fetch_max_wait_ms=100,
    )
    while True:
        got = [(r.partition, r.offset) for batch in consumer.poll(100).values() for r in batch]
        committed = False
        if got:
            try:
                consumer.commit(timeout_ms=1000)
                committed = True
            except KafkaError:
                pass  # a later turn commits them
        owned = sorted(item.partition for item in consumer.assignment())
        print(json.dumps({"owned": owned, "got": got, "committed": committed}), flush=True)


if __name__ == "__main__":
    main()
