"""Makes the files of a release, to be opened by all later ones: ``python -m tests.data.formats.make 0.1``.

Run from the root of the clone, with the code of that release, once: files of a release are never made
again. A node in this process writes something in every format that it has, over three lives, and what it
serves at the end is in ``expected.json``. ``data`` is the node's data directory, stopped in order.

A release that adds a format adds its writing here first, so that its own directory has it; earlier
directories stay as they are.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Committed

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.group.offsets import OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.batch import ProducerConfig, RecordMetadata
from pykraft.kafka_client.producer.blocking import BlockingProducer
from pykraft.kafka_client.results import ConfigChange, NewTopic
from pykraft.kafka_protocol.compression import Compression
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY
from pykraft.runtime.directory_lock import LOCK_FILE
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.data.formats.contents import metadata_in, served_by
from tests.data.formats.serving import format_node, serving

HERE: Final = Path(__file__).resolve().parent
MADE_AT_MS: Final = 1_767_225_600_000
"""2026-01-01 00:00 UTC: the wall clock of the node."""
SMALL_SEGMENTS: Final = {"internal.segment.bytes": "2000", "index.interval.bytes": "200"}
SNAPSHOTS: Final = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
COMPACTION: Final = {"log.cleaner.backoff.ms": "50"}


def main(release: str) -> None:
    target = HERE / release
    if target.exists():
        sys.exit(f"{target} is there already: the files of a release are never made again")
    with tempfile.TemporaryDirectory(prefix="pykraft-formats-") as directory:
        data = Path(directory) / "data"
        format_node(data, MADE_AT_MS)
        with serving(data, MADE_AT_MS, SNAPSHOTS) as server:
            write_topics(server)
            write_groups(server)
        with serving(data, MADE_AT_MS, COMPACTION) as server:
            write_transactions(server)
            write_what_is_compacted(server, data)
        with serving(data, MADE_AT_MS) as server:
            write_after_a_snapshot(server)
            expected = served_by(server)
        check_formats(data)
        expected["metadata"] = metadata_in(data)
        shutil.copytree(data, target / "data", ignore=shutil.ignore_patterns(LOCK_FILE))
    text = json.dumps({"made_at_ms": MADE_AT_MS, **expected}, indent=1, ensure_ascii=False, sort_keys=True)
    (target / "expected.json").write_text(f"{text}\n", encoding="utf-8")


def write_topics(server: str) -> None:
    """Several segments with their indexes, batches of all codecs, records of all shapes, a moved start."""
    with AdminClient(server) as admin:
        create(admin, "plain", 2, SMALL_SEGMENTS)
        create(admin, "codecs", 1)
        create(admin, "cut", 1, SMALL_SEGMENTS)
        create(admin, "deleted", 1)
        for number in range(60):
            send(server, "plain", number % 2, [(f"key {number}", f"value {number} {'x' * 60}")], number)
        send(server, "plain", 0, [(None, "no key"), ("no value", None), ("", "")], 60)
        for number, codec in enumerate(Compression):
            send(
                server, "codecs", 0, [(None, f"{codec.name} {n} {'y' * 40}") for n in range(5)], number, codec
            )
        send(server, "cut", 0, [(None, f"value {n} {'z' * 100}") for n in range(30)])
        for deleted in admin.delete_records({TopicPartition("cut", 0): 20}).values():
            assert deleted == 20, deleted
        for outcome in admin.delete_topics(["deleted"]):
            outcome.check()


def write_groups(server: str) -> None:
    """Committed offsets: of members of both protocols, of a group without members, and of a static member."""
    for protocol in ("classic", "consumer"):
        read_as_member(server, f"{protocol} group", {"group.protocol": protocol})
    read_as_member(server, "static group", {"group.instance.id": "instance-1"})
    with AdminClient(server) as admin:
        offset = OffsetAndMetadata(7, leader_epoch=0, metadata="set by hand")
        outcomes = admin.alter_group_offsets("group without members", {TopicPartition("codecs", 0): offset})
        assert list(outcomes.values()) == [None]


def write_transactions(server: str) -> None:
    """One that is committed, with offsets of a group, one that is aborted, and one that is open."""
    with AdminClient(server) as admin:
        create(admin, "transactions", 2)
    send(server, "transactions", 0, [(None, "plain")])
    for name in ("committed", "aborted", "open"):
        producer = Producer(
            {"bootstrap.servers": server, "transactional.id": name, "transaction.timeout.ms": 900_000}
        )
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        for partition in (0, 1):
            for number in range(3):
                producer.produce(
                    "transactions", f"{name} {number}", partition=partition, timestamp=MADE_AT_MS
                )
        assert producer.flush(PATIENCE_S) == 0
        if name == "committed":
            reader = Consumer({"bootstrap.servers": server, "group.id": "transactional group"})
            offsets = [Committed("plain", 0, 11), Committed("plain", 1, 12)]
            producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)
            reader.close()
        elif name == "aborted":
            producer.abort_transaction(PATIENCE_S)


def write_what_is_compacted(server: str, data: Path) -> None:
    """A topic of which a round of compaction has removed records, and in which tombstones are left."""
    with AdminClient(server) as admin:
        create(
            admin,
            "compacted",
            1,
            {**SMALL_SEGMENTS, **COMPACTED},
        )
    for number in range(40):
        send(server, "compacted", 0, [(f"key {number % 4}", f"value {number} {'c' * 80}")], number)
    send(server, "compacted", 0, [("key 0", None)] + [(f"late {n}", "d" * 80) for n in range(30)], 40)
    wait_until("a round of compaction", lambda: (data / "cleaner-offset-checkpoint").exists(), PATIENCE_S)


def write_after_a_snapshot(server: str) -> None:
    """Metadata that only the log behind the last snapshot has, and settings of brokers."""
    with AdminClient(server) as admin:
        retention = [ConfigChange("retention.ms", ConfigOperation.SET, "-1")]
        admin.alter_configs(ConfigResourceType.TOPIC, "plain", retention)
        for name, value in (("", "123456789"), ("1", "987654321")):
            change = [ConfigChange("log.cleaner.io.max.bytes.per.second", ConfigOperation.SET, value)]
            admin.alter_configs(ConfigResourceType.BROKER, name, change)
        create(admin, "late", 3)
    send(server, "late", 2, [("key", "in a later leader epoch")])


def create(admin: AdminClient, name: str, partitions: int, configs: dict[str, str] | None = None) -> None:
    (created,) = admin.create_topics([NewTopic(name, partitions, 1, configs or {})])
    created.check()


def send(
    server: str,
    topic: str,
    partition: int,
    records: Sequence[tuple[str | None, str | None]],
    minute: int = 0,
    codec: Compression = Compression.NONE,
) -> None:
    """Small batches of an idempotent producer, so many minutes after the node began."""
    sent: list[Future[RecordMetadata]] = []
    client = ClientConfig(parse_bootstrap_servers(server))
    config = ProducerConfig(compression=codec, linger_ms=20, batch_size_bytes=1000)
    with BlockingProducer(client, config) as producer:
        for key, value in records:
            headers = (("number", str(minute).encode()), ("none", None))
            at_ms = MADE_AT_MS + minute * 60_000
            sent.append(producer.send(topic, partition, as_bytes(key), as_bytes(value), headers, at_ms))
    for future in sent:
        future.result(0)


def as_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def read_as_member(server: str, group: str, settings: dict[str, str]) -> None:
    """Join, read ten records of each partition, commit what was read, and leave."""
    common = {"bootstrap.servers": server, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**common, **settings, "enable.auto.commit": False})
    consumer.subscribe(["plain"])
    missing = {(partition, offset) for partition in (0, 1) for offset in range(10)}

    def read_all() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            missing.discard((message.partition(), message.offset()))
        return not missing

    wait_until(f"{group} has read", read_all, PATIENCE_S, interval_s=0)
    consumer.commit(offsets=[Committed("plain", 0, 10), Committed("plain", 1, 9)], asynchronous=False)
    consumer.close()


def check_formats(data: Path) -> None:
    """Every kind of file is there."""
    kinds = (
        *(
            "meta.properties",
            "bootstrap.checkpoint",
            "recovery-point-offset-checkpoint",
            ".kafka_cleanshutdown",
        ),
        *("replication-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"),
        *(
            f"{METADATA_LOG_DIRECTORY}/{name}"
            for name in ("quorum-state", "flushed-offset", "0*[1-9]?-*.checkpoint")
        ),
        *("plain-0/partition.metadata", "plain-0/leader-epoch-checkpoint", "plain-0/*.snapshot"),
        *("plain-0/*[1-9].log", "plain-0/*.index", "plain-0/*.timeindex", "transactions-0/*.txnindex"),
        *("__consumer_offsets-*/*.log", "__transaction_state-*/*.log"),
    )
    for kind in kinds:
        found = [path for path in data.glob(kind) if path.stat().st_size]
        assert found, f"there is no {kind} among {sorted(data.glob('*/*'))}"


if __name__ == "__main__":
    main(sys.argv[1])
