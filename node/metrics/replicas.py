"""Metrics of the replicas of a broker: what moves through them, and how they are replicated."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from pykraft.broker.replicas.partition.partition import Partition
from pykraft.broker.replicas.traffic import Traffic
from pykraft.node.metrics.metric import Kind, Metric, Sample, counter, gauge
from pykraft.node.metrics.scrape import ReplicaCounts, Scrape

MOST_LOGS: Final = 10_000
"""Replicas whose logs are shown one by one; a scrape of more would take too long."""

_MANAGER: Final = "kafka.server:type=ReplicaManager,name="
_TOPICS: Final = "kafka.server:type=BrokerTopicMetrics,name="
_LOG: Final = "kafka.log:type=Log,name="


def _count(name: str, help: str, value: Callable[[ReplicaCounts], int]) -> Metric:
    def read(scrape: Scrape) -> float | None:
        return None if scrape.broker is None else value(scrape.replicas)

    return gauge(f"kafka_server_replicamanager_{name.lower()}", help, read, _MANAGER + name)


def _isr(name: str, help: str, attribute: str) -> Metric:
    def read(scrape: Scrape) -> float | None:
        return None if scrape.broker is None else getattr(scrape.broker.data.isr_proposals, attribute)

    metric = name.removesuffix("PerSec").lower()
    return counter(f"kafka_server_replicamanager_{metric}_total", help, read, _MANAGER + name)


def _traffic(name: str, help: str, value: Callable[[Traffic], int]) -> Metric:
    """In total, and by topic: the total has an empty label."""

    def read(scrape: Scrape) -> Iterable[Sample]:
        if scrape.broker is None:
            return
        yield ("",), value(scrape.traffic)
        for topic, traffic in scrape.broker.data.table.traffic:
            yield (topic,), value(traffic)

    metric = f"kafka_server_brokertopicmetrics_{name.removesuffix('PerSec').lower()}_total"
    return Metric(metric, Kind.COUNTER, help, read, ("topic",), _TOPICS + name)


def _failed(name: str, help: str, attribute: str) -> Metric:
    def read(scrape: Scrape) -> float | None:
        return None if scrape.broker is None else getattr(scrape.broker.data.table.traffic, attribute)

    metric = f"kafka_server_brokertopicmetrics_{name.removesuffix('PerSec').lower()}_total"
    return counter(metric, help, read, _TOPICS + name)


def _log(name: str, help: str, value: Callable[[Partition], int]) -> Metric:
    def read(scrape: Scrape) -> Iterable[Sample]:
        for partition in scrape.partitions[:MOST_LOGS]:
            yield (partition.topic, str(partition.index)), value(partition)

    return Metric(
        f"kafka_log_log_{name.lower()}", Kind.GAUGE, help, read, ("topic", "partition"), _LOG + name
    )


def _offline(scrape: Scrape) -> float | None:
    if scrape.broker is None:
        return None
    logs = scrape.broker.data.logs
    return len(logs.offline) + len(logs.unavailable)


def _failed_work(scrape: Scrape) -> Iterable[Sample]:
    if scrape.broker is not None:
        for work, failures in sorted(scrape.broker.data.logs.work.failures.items()):
            yield (work,), failures


def _uncleanable(scrape: Scrape) -> Iterable[Sample]:
    if scrape.broker is not None:
        data = scrape.broker.data
        for log_dir in data.logs.dirs.paths:
            yield (log_dir,), data.cleaner.uncleanable(log_dir)


REPLICA_METRICS: Final = (
    _count("PartitionCount", "Replicas on this broker.", lambda it: it.replicas),
    _count("LeaderCount", "Partitions that this broker leads.", lambda it: it.leaders),
    _count(
        "UnderReplicatedPartitions",
        "Partitions led here whose ISR lacks a replica. Above 0 for long: something is wrong.",
        lambda it: it.under_replicated,
    ),
    _count(
        "UnderMinIsrPartitionCount",
        "Partitions led here with fewer in-sync replicas than min.insync.replicas: acks=all is refused.",
        lambda it: it.under_min_isr,
    ),
    _count(
        "AtMinIsrPartitionCount",
        "Partitions led here with just min.insync.replicas in sync.",
        lambda it: it.at_min_isr,
    ),
    _count("ReassigningPartitions", "Partitions led here that are being moved.", lambda it: it.reassigning),
    gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas of this broker whose log is damaged, or whose directory has failed.",
        _offline,
        _MANAGER + "OfflineReplicaCount",
    ),
    gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories of this broker that have failed.",
        lambda scrape: None if scrape.broker is None else len(scrape.broker.data.logs.dirs.offline),
        "kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
    ),
    Metric(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        Kind.GAUGE,
        "Logs that are not compacted after a failure, and grow: until the next start, or for five minutes if"
        " the disk was full or descriptors were lacking.",
        _uncleanable,
        ("logDirectory",),
        "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count",
    ),
    Metric(
        "pykraft_log_work_failures_total",
        Kind.COUNTER,
        "Failures of background work on a log, by work, except errors of the disk: bugs, or a lack of"
        " descriptors or memory. The broker's log tells which.",
        _failed_work,
        ("work",),
    ),
    _isr("IsrShrinksPerSec", "Changes that made an ISR smaller.", "shrinks"),
    _isr("IsrExpandsPerSec", "Changes that made an ISR larger.", "expansions"),
    _isr("FailedIsrUpdatesPerSec", "Changes of an ISR that were refused or not answered.", "failures"),
    _traffic("MessagesInPerSec", "Records appended by producers.", lambda it: it.messages_in),
    _traffic("BytesInPerSec", "Bytes of records appended by producers.", lambda it: it.bytes_in),
    _traffic("BytesOutPerSec", "Bytes of records sent to consumers.", lambda it: it.bytes_out),
    _traffic(
        "ReplicationBytesInPerSec", "Bytes copied from other brokers.", lambda it: it.replication_bytes_in
    ),
    _traffic(
        "ReplicationBytesOutPerSec", "Bytes copied to other brokers.", lambda it: it.replication_bytes_out
    ),
    _failed(
        "FailedProduceRequestsPerSec",
        "Partitions of Produce requests that were answered with an error.",
        "failed_produce",
    ),
    _failed(
        "FailedFetchRequestsPerSec",
        "Partitions of Fetch requests that were answered with an error.",
        "failed_fetch",
    ),
    _log("Size", "Bytes of the log.", lambda it: it.log.size_bytes),
    _log("NumLogSegments", "Segments of the log.", lambda it: len(it.log.segment_base_offsets)),
    _log("LogStartOffset", "The first offset of the log.", lambda it: it.log.log_start_offset),
    _log("LogEndOffset", "The offset after the last record.", lambda it: it.log.log_end_offset),
    gauge(
        "pykraft_metrics_omitted_logs",
        f"Replicas whose logs are not among the metrics, because only {MOST_LOGS:,} are.",
        lambda scrape: None if scrape.broker is None else max(0, len(scrape.partitions) - MOST_LOGS),
    ),
)
