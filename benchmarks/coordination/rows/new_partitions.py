"""900 partitions are added to the topic of ten consumers.

Ten consumers of librdkafka (consumer protocol) have 100 partitions; CreatePartitions adds 900. From that
request until each has been assigned to a consumer, which fetches from it. Then each gets a record: the first
write to a partition waits for its log, and that is most of the time until all are written; beside it when all
have been read. A coordinator cannot reach a member between two heartbeats, so their interval is most of the
first time: what both coordinators say by default (Kafka 5 s), and 1 s on both
(`group.consumer.heartbeat.interval.ms=1000`) to see the rest.
"""

import time
from functools import partial

from comparison.cluster import Cluster
from comparison.frames import connect
from comparison.requests import check
from comparison.turn import Figures, Turn
from comparison.values import record_of
from coordination.readers import CONSUMER, are_stable, reading
from coordination.rows.members import make_topic, wait_until_coordinated

from pykraft.kafka_protocol.messages import records
from pykraft.kafka_protocol.messages import topics as topic_messages
from pykraft.testing.processes.waits import wait_until
from pykraft.testing.processes.wire_client import WireClient

_TOPIC = "growing"
_BEFORE = 100
_AFTER = 1_000
_CONSUMERS = 10
_PATIENCE_S = 90
_SECONDS_APART = 2.0
_INTERVALS: dict[str, dict[str, str]] = {
    "by default": {},
    "heartbeats every 1 s": {
        "group_consumer_heartbeat_interval_ms": "1000",
        "group_consumer_min_heartbeat_interval_ms": "1000",
    },
}


def run(turn: Turn) -> None:
    for name, interval in _INTERVALS.items():
        if turn.wants(name):
            with turn.cluster(1, **interval) as cluster:
                turn.row(name, partial(_measure, cluster))


def _measure(cluster: Cluster, figures: Figures) -> None:
    make_topic(cluster, _TOPIC, _BEFORE)
    wait_until_coordinated(cluster, _TOPIC)
    with reading(cluster, _TOPIC, _TOPIC, _BEFORE, CONSUMER, _CONSUMERS) as readers:
        time.sleep(_SECONDS_APART)
        client = connect(cluster.port)
        started = time.monotonic()
        _grow(client)
        wait_until("all partitions to be assigned", lambda: are_stable(readers, _AFTER), _PATIENCE_S)
        assigned_s = time.monotonic() - started
        _write(client)
        written_s = time.monotonic() - started
        new = set(range(_BEFORE, _AFTER))
        wait_until(
            "all partitions to be read",
            lambda: new <= set().union(*(set(reader.seen) for reader in readers)),
            _PATIENCE_S,
        )
        read_s = time.monotonic() - started
    figures.note("until all are assigned", "s", assigned_s)
    figures.note("a record of each is written by", "s", written_s)
    figures.note("and read by", "s", read_s)


def _grow(client: WireClient) -> None:
    topics = [topic_messages.CreatePartitionsTopic(name=_TOPIC, count=_AFTER, assignments=None)]
    request = topic_messages.CreatePartitionsRequest(topics=topics, timeout_ms=60_000)
    answer = client.call(request, 3)
    check(answer.results[0].error_code, "CreatePartitions")


def _write(client: WireClient) -> None:
    """A record for each new partition, again for those that are not led yet."""
    left = set(range(_BEFORE, _AFTER))
    record = record_of(100)
    deadline = time.monotonic() + _PATIENCE_S
    while left:
        data = [records.PartitionProduceData(index=index, records=record) for index in sorted(left)]
        topics = [records.TopicProduceData(name=_TOPIC, partition_data=data)]
        request = records.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
        answer = client.call(request, 8)
        left -= {one.index for one in answer.responses[0].partition_responses if one.error_code == 0}
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(left)} partitions cannot be written to")
