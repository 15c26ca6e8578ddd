"""``pykraft topics``, with the flags, the checks and the output lines of kafka-topics.

As there, a topic is named by a regular expression, but to create it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import NewTopic, Outcome
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import (
    check_actions,
    json_option,
    one_action,
    pairs,
    print_done,
    print_json,
    say,
    wants_json,
)
from pykraft.node.cli.shared.topic_patterns import topic_filter
from pykraft.node.cli.topics.descriptions import Shown, describe_topics, find_by_id

_ONLY_WITH: Final[Mapping[str, Sequence[str]]] = {
    "partitions": ("create", "alter"),
    "replication-factor": ("create",),
    "replica-assignment": ("create", "alter"),
    "config": ("create",),
    "if-not-exists": ("create",),
    "if-exists": ("alter", "delete", "describe"),
    "exclude-internal": ("list", "describe"),
    "topic-id": ("describe",),
    **dict.fromkeys(
        (
            *("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions"),
            *("at-min-isr-partitions", "topics-with-overrides", "partition-size-limit-per-response"),
        ),
        ("describe",),
    ),
}
"""The actions with which an option may be given."""


@click.command()
@cluster_options()
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--describe", is_flag=True, help="Show partitions, leaders, replicas and ISR.")
@click.option("--alter", is_flag=True, help="Raise the number of partitions.")
@click.option("--list", is_flag=True, help="Print the names of topics.")
@click.option("--topic", metavar="NAME", help="The topic; except with --create, a regular expression.")
@click.option("--topic-id", metavar="ID", help="Describe: the topic with this id.")
@click.option("--partitions", type=click.IntRange(min=1), help="The number of partitions.")
@click.option(
    "--replication-factor", type=click.IntRange(1, 32_767), help="Create: replicas of each partition."
)
@click.option(
    "--replica-assignment",
    metavar="B:B,…",
    help="The brokers of each partition. Create: in place of both counts. Alter: those of partitions that are "
    "there already are left as they are.",
)
@click.option(
    "--config", multiple=True, metavar="KEY=VALUE", help="Create: a topic configuration; repeatable."
)
@click.option("--if-not-exists", is_flag=True, help="Create: an existing topic is not an error.")
@click.option("--if-exists", is_flag=True, help="Delete, alter, describe: a missing topic is not an error.")
@click.option("--exclude-internal", is_flag=True, help="List, describe: leave out internal topics.")
@click.option("--under-replicated-partitions", is_flag=True,
              help="Describe: partitions with replicas that are not in sync.")  # fmt: skip
@click.option("--unavailable-partitions", is_flag=True, help="Describe: partitions without a live leader.")
@click.option("--under-min-isr-partitions", is_flag=True,
              help="Describe: partitions with fewer replicas in sync than min.insync.replicas.")  # fmt: skip
@click.option("--at-min-isr-partitions", is_flag=True,
              help="Describe: partitions with exactly min.insync.replicas in sync.")  # fmt: skip
@click.option("--topics-with-overrides", is_flag=True,
              help="Describe: only topics with configurations that are not the defaults.")  # fmt: skip
@click.option("--partition-size-limit-per-response", type=click.IntRange(min=1),
              help="Describe: how many partitions one response of a broker may tell of.")  # fmt: skip
@json_option
def command(target: Target, **given: Any) -> None:
    """Create, list, describe, alter and delete topics."""
    action = one_action({name: given[name] for name in ("create", "delete", "describe", "alter", "list")})
    _check(action, given)
    new = _new_topic(given) if action == "create" else None
    with target.client() as client:
        if new is not None:
            _create(client, new, given["if_not_exists"])
        elif action == "list":
            _list(client, given)
        elif action == "describe":
            shown = Shown.asked_for(given)
            describe_topics(
                client, _to_describe(client, given), shown, given["partition_size_limit_per_response"]
            )
        else:
            _change(client, action, given)


def _check(action: str, given: Mapping[str, Any]) -> None:
    """:class:`click.UsageError` for options that do not go together."""
    check_actions(action, given, _ONLY_WITH)
    if given["topic"] is None and action in ("create", "delete", "alter"):
        raise click.UsageError(f"--{action} needs --topic")
    if action == "alter" and given["partitions"] is None:
        raise click.UsageError("--alter needs --partitions")
    if action == "create" and given["replica_assignment"] and (
        given["partitions"] or given["replication_factor"]
    ):  # fmt: skip
        raise click.UsageError("--replica-assignment replaces --partitions and --replication-factor")


def _new_topic(given: Mapping[str, Any]) -> NewTopic:
    return NewTopic(
        name=given["topic"],
        num_partitions=given["partitions"],
        replication_factor=given["replication_factor"],
        configs={name.strip(): value.strip() for name, value in pairs(given["config"], "--config").items()},
        assignments=dict(enumerate(_assignments(given["replica_assignment"]))),
    )


def _assignments(text: str | None) -> list[tuple[int, ...]]:
    """The brokers of each partition."""
    if not text:
        return []
    try:
        assigned = [tuple(int(broker) for broker in item.split(":")) for item in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--replica-assignment {text!r} is not B:B,B:B,…") from None
    for index, brokers in enumerate(assigned):
        if len(set(brokers)) != len(brokers):
            raise click.UsageError(f"--replica-assignment names a broker of partition {index} twice")
        if len(brokers) != len(assigned[0]):
            raise click.UsageError(f"--replica-assignment: partition {index} has {len(brokers)} replicas, "
                                   f"partition 0 has {len(assigned[0])}")  # fmt: skip
    return assigned


def _create(client: AdminClient, new: NewTopic, if_not_exists: bool) -> None:
    if {".", "_"} & set(new.name):
        say(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )
    (created,) = client.create_topics([new])
    if if_not_exists and _is(created.error, ErrorCode.TOPIC_ALREADY_EXISTS):
        if wants_json():
            print_json({"topic": new.name, "created": False})
        return
    created.check()
    print_done(f"Created topic {new.name}.", topic=new.name, created=True)


def _is(error: KafkaError | None, code: ErrorCode) -> bool:
    return error is not None and error.code is code


def _list(client: AdminClient, given: Mapping[str, Any]) -> None:
    names = _matching(client, given["topic"], given["exclude_internal"])
    if wants_json():
        print_json(names)
    else:
        for name in names:
            click.echo(name)


def _matching(client: AdminClient, topic: str | None, exclude_internal: bool = False) -> list[str]:
    is_wanted = topic_filter(".*" if topic is None else topic)
    found = client.list_topics(include_internal=not exclude_internal)
    return sorted(it.name for it in found if is_wanted(it.name))


def _existing(client: AdminClient, given: Mapping[str, Any]) -> list[str]:
    """The topics that are named; an error if there are none, unless that is allowed."""
    topic: str | None = given["topic"]
    names = _matching(client, topic, given["exclude_internal"])
    if topic and not names and not given["if_exists"]:
        raise click.ClickException(f"Topic '{topic}' does not exist as expected")
    return names


def _to_describe(client: AdminClient, given: Mapping[str, Any]) -> list[str]:
    if given["topic_id"] is None:
        return _existing(client, given)
    name = find_by_id(client, given["topic_id"], given["exclude_internal"])
    if name is None and not given["if_exists"]:
        raise click.ClickException(f"TopicId '{given['topic_id']}' does not exist as expected")
    return [] if name is None else [name]


def _change(client: AdminClient, action: str, given: Mapping[str, Any]) -> None:
    names = _existing(client, given)
    if not names:
        outcomes: list[Outcome] = []
    elif action == "delete":
        outcomes = client.delete_topics(names)
    else:
        outcomes = _extend(client, names, given["partitions"], _assignments(given["replica_assignment"]))
    for outcome in outcomes:
        if not (given["if_exists"] and _is(outcome.error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
            outcome.check()
    if wants_json():
        print_json({"deleted" if action == "delete" else "altered": names})


def _extend(
    client: AdminClient, names: Sequence[str], total: int, assigned: Sequence[tuple[int, ...]]
) -> list[Outcome]:
    """``assigned`` is of all partitions, those that exist included."""
    assignments = {}
    if assigned:
        for topic in client.describe_topics(names):
            assignments[topic.name] = assigned[len(topic.partitions) :]
    return client.create_partitions(dict.fromkeys(names, total), assignments=assignments)
