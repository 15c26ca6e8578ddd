"""``pykraft topics``, with the flags of kafka-topics."""

from __future__ import annotations

import click

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.admin_results import NewTopic, PartitionDescription, TopicDescription
from pykraft.kafka_protocol.enums import ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.node.cli.cluster_client import admin_client
from pykraft.node.cli.common import bootstrap_option, json_option, one_action, pairs, print_json, wants_json


@click.command()
@bootstrap_option
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--delete", is_flag=True, help="Delete a topic.")
@click.option("--describe", is_flag=True, help="Show partitions, leaders, replicas and ISR.")
@click.option("--alter", is_flag=True, help="Raise the number of partitions.")
@click.option("--list", "list_", is_flag=True, help="Print the names of all topics.")
@click.option("--topic", help="The topic's name.")
@click.option("--partitions", type=click.IntRange(min=1), help="The number of partitions.")
@click.option("--replication-factor", type=click.IntRange(min=1), help="Replicas of each partition.")
@click.option(
    "--replica-assignment", metavar="B:B,…", help="Brokers of each partition, instead of both counts."
)
@click.option(
    "--config", "configs", multiple=True, metavar="KEY=VALUE", help="A topic configuration; repeatable."
)
@click.option("--if-not-exists", is_flag=True, help="Create: an existing topic is not an error.")
@click.option("--if-exists", is_flag=True, help="Delete, alter, describe: a missing topic is not an error.")
@click.option("--exclude-internal", is_flag=True, help="List and describe: leave out internal topics.")
@json_option
def command(
    bootstrap_server: str,
    create: bool,
    delete: bool,
    describe: bool,
    alter: bool,
    list_: bool,
    topic: str | None,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    if_exists: bool,
    exclude_internal: bool,
) -> None:
    """Create, list, describe, alter and delete topics."""
    action = one_action(
        {"create": create, "delete": delete, "describe": describe, "alter": alter, "list": list_}
    )
    if topic is None and action in ("create", "delete", "alter"):
        raise click.UsageError(f"--{action} needs --topic")
    with admin_client(bootstrap_server) as client:
        if action == "list":
            _list(client, exclude_internal)
        elif action == "describe":
            _describe(client, topic, if_exists, exclude_internal)
        elif action == "create":
            new = NewTopic(
                name=topic or "",
                num_partitions=partitions,
                replication_factor=replication_factor,
                configs=pairs(configs, "--config"),
                assignments=_assignments(replica_assignment),
            )
            (created,) = client.create_topics([new])
            if _tolerated(created.error, ErrorCode.TOPIC_ALREADY_EXISTS, if_not_exists):
                return
            created.check()
            click.echo(f"Created topic {topic}.")
        else:
            _change(client, action, topic or "", partitions, if_exists)


def _list(client: AdminClient, exclude_internal: bool) -> None:
    names = sorted(item.name for item in client.list_topics(include_internal=not exclude_internal))
    if wants_json():
        print_json(names)
        return
    for name in names:
        click.echo(name)


def _change(client: AdminClient, action: str, topic: str, partitions: int | None, if_exists: bool) -> None:
    if action == "delete":
        (outcome,) = client.delete_topics([topic])
    elif partitions is None:
        raise click.UsageError("--alter needs --partitions")
    else:
        (outcome,) = client.create_partitions({topic: partitions})
    if not _tolerated(outcome.error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, if_exists):
        outcome.check()


def _tolerated(error: KafkaError | None, code: ErrorCode, allowed: bool) -> bool:
    return error is not None and error.code is code and allowed


def _assignments(text: str | None) -> dict[int, tuple[int, ...]]:
    if text is None:
        return {}
    try:
        return {
            index: tuple(int(broker) for broker in item.split(":"))
            for index, item in enumerate(text.split(","))
        }
    except ValueError:
        raise click.UsageError(f"--replica-assignment {text!r} is not B:B,B:B,…") from None


def _describe(client: AdminClient, topic: str | None, if_exists: bool, exclude_internal: bool) -> None:
    if topic is None:
        names = sorted(item.name for item in client.list_topics(include_internal=not exclude_internal))
    else:
        names = [topic]
    try:
        described = client.describe_topics(names)
    except KafkaError as error:
        if _tolerated(error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, if_exists):
            return
        raise
    shown = []
    for item in described:
        entries = client.describe_configs(ConfigResourceType.TOPIC, item.name)
        configs = {
            entry.name: entry.value for entry in entries if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        shown.append(_as_json(item, configs))
        if not wants_json():
            _print_topic(item, configs)
    if wants_json():
        print_json(shown)


def _ids(values: tuple[int, ...] | None) -> str:
    return ",".join(map(str, values or ()))


def _print_topic(topic: TopicDescription, configs: dict[str, str | None]) -> None:
    text = ",".join(f"{key}={value}" for key, value in sorted(configs.items()))
    factor = len(topic.partitions[0].replicas) if topic.partitions else 0
    click.echo(
        f"Topic: {topic.name}\tTopicId: {uuid_to_str(topic.topic_id)}\t"
        f"PartitionCount: {len(topic.partitions)}\tReplicationFactor: {factor}\tConfigs: {text}"
    )
    for partition in topic.partitions:
        leader = "none" if partition.leader is None else partition.leader
        click.echo(
            f"\tTopic: {topic.name}\tPartition: {partition.index}\tLeader: {leader}\t"
            f"Replicas: {_ids(partition.replicas)}\tIsr: {_ids(partition.isr)}\t"
            f"Elr: {_ids(partition.elr)}\tLastKnownElr: {_ids(partition.last_known_elr)}"
        )


def _as_json(topic: TopicDescription, configs: dict[str, str | None]) -> dict[str, object]:
    def partition(item: PartitionDescription) -> dict[str, object]:
        return {
            "partition": item.index,
            "leader": item.leader,
            "leaderEpoch": item.leader_epoch,
            "replicas": item.replicas,
            "isr": item.isr,
            "elr": item.elr or (),
            "lastKnownElr": item.last_known_elr or (),
            "offlineReplicas": item.offline_replicas,
        }

    return {
        "topic": topic.name,
        "topicId": uuid_to_str(topic.topic_id),
        "configs": configs,
        "partitions": [partition(item) for item in topic.partitions],
    }
