"""Everything that a user could miss after an upgrade, as plain JSON: what a node serves, and its metadata."""

import json
from pathlib import Path
from typing import Any

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_protocol.enums import ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY
from pykraft.metadata_log.offline import read_image
from pykraft.metadata_log.shell_tree import File, build_tree, walk
from pykraft.runtime.os_disk import OsDisk
from pykraft.testing.records import Record, read

Json = dict[str, Any]
TIMEOUT_S = 30.0


def served_by(bootstrap_server: str) -> Json:
    """Records, offsets, groups, transactions, producers and settings, as clients are told of them."""
    client = ClientConfig(parse_bootstrap_servers(bootstrap_server))
    with AdminClient(bootstrap_server) as admin:
        described = admin.describe_topics(
            [topic.name for topic in admin.list_topics() if not topic.is_internal]
        )
        partitions = [TopicPartition(it.name, one.index) for it in described for one in it.partitions]
        return {
            "topics": {it.name: [uuid_to_str(it.topic_id), len(it.partitions)] for it in described},
            "settings": {it.name: _set_on(admin, ConfigResourceType.TOPIC, it.name) for it in described}
            | {"brokers": _set_on(admin, ConfigResourceType.BROKER, "")}
            | {"broker 1": _set_on(admin, ConfigResourceType.BROKER, "1")},
            "features": {it.name: it.finalized_level for it in admin.describe_features().features},
            "records": {str(it): _records(client, it, committed=False) for it in partitions},
            "offsets of committed records": {
                str(it): [record[0] for record in _records(client, it, committed=True)] for it in partitions
            },
            **{
                name: {
                    str(it): one.offset
                    for it, one in admin.list_offsets(dict.fromkeys(partitions, at)).items()
                }
                for name, at in (
                    ("first offsets", EARLIEST_TIMESTAMP),
                    ("end offsets", LATEST_TIMESTAMP),
                    ("offsets of the newest timestamps", MAX_TIMESTAMP),
                )
            },
            "producers": {str(it): _producers(admin, it) for it in partitions},
            "groups": {it.group_id: _committed(admin, it.group_id) for it in admin.list_groups()},
            "transactions": _transactions(admin),
        }


def metadata_in(data: Path) -> Json:
    """Every file of the metadata shell, by its path, from the files of a node that does not run."""
    image = read_image(OsDisk(read_only=True), str(data / METADATA_LOG_DIRECTORY))
    nodes = walk("/", build_tree(image))
    return {path: _parsed(node.text) for _, path, node in nodes if isinstance(node, File)}


def _parsed(text: str) -> Any:
    return json.loads(text) if text.startswith("{") else text


def _records(client: ClientConfig, partition: TopicPartition, *, committed: bool) -> list[list[Any]]:
    found = read(client, partition.topic, None, partition.partition, committed=committed, timeout_s=TIMEOUT_S)
    return [_fields(record) for record in found]


def _fields(record: Record) -> list[Any]:
    headers = {name: _text(value) for name, value in record.headers}
    return [record.offset, record.timestamp_ms, _text(record.key), _text(record.value), headers]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _set_on(admin: AdminClient, kind: ConfigResourceType, name: str) -> Json:
    own = (
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    return {it.name: it.value for it in admin.describe_configs(kind, name) if it.source in own}


def _producers(admin: AdminClient, partition: TopicPartition) -> list[list[Any]]:
    found = admin.describe_producers([partition])[partition]
    assert not isinstance(found, KafkaError), found
    return sorted(
        [
            it.producer_id,
            it.producer_epoch,
            it.last_sequence,
            it.last_timestamp_ms,
            it.transaction_start_offset,
        ]
        for it in found
    )


def _committed(admin: AdminClient, group_id: str) -> Json:
    committed = admin.group_offsets(group_id)
    return {str(it): [one.offset, one.leader_epoch, one.metadata] for it, one in sorted(committed.items())}


def _transactions(admin: AdminClient) -> Json:
    listed = admin.list_transactions()
    described = admin.describe_transactions([it.transactional_id for it in listed])
    transactions: Json = {}
    for transactional_id, it in described.items():
        assert not isinstance(it, KafkaError), it
        written = sorted(str(partition) for partition in it.partitions)
        transactions[transactional_id] = [it.state, it.producer_id, it.producer_epoch, it.timeout_ms, written]
    return transactions
