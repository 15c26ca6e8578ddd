"""``pykraft groups``, with the flags of kafka-consumer-groups."""

from __future__ import annotations

from collections.abc import Mapping

import click

from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.admin_results import BrokerDescription, GroupDescription, MemberDescription
from pykraft.kafka_client.list_offsets import TopicPartition
from pykraft.node.cli.cluster_client import admin_client
from pykraft.node.cli.common import Cell, bootstrap_option, json_option, one_action, print_table, wants_json

_LATEST = -1


@click.command()
@bootstrap_option
@click.option("--list", "list_", is_flag=True, help="Print the groups.")
@click.option("--describe", is_flag=True, help="Show offsets and lag, members or state.")
@click.option("--delete", is_flag=True, help="Delete empty groups.")
@click.option("--group", "group_ids", multiple=True, help="A group; repeatable.")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--members", is_flag=True, help="Describe: the members.")
@click.option("--state", is_flag=True, help="Describe: the state; list: with states and types.")
@click.option("--offsets", is_flag=True, help="Describe: offsets and lag (the default).")
@json_option
def command(
    bootstrap_server: str,
    list_: bool,
    describe: bool,
    delete: bool,
    group_ids: tuple[str, ...],
    all_groups: bool,
    members: bool,
    state: bool,
    offsets: bool,
) -> None:
    """List, describe and delete consumer groups."""
    action = one_action({"list": list_, "describe": describe, "delete": delete})
    if members + state + offsets > 1 and action == "describe":
        raise click.UsageError("give at most one of --members, --state, --offsets")
    with admin_client(bootstrap_server) as client:
        if action == "list":
            _list(client, state)
            return
        names = sorted(item.group_id for item in client.list_groups()) if all_groups else list(group_ids)
        if not names and not all_groups:
            raise click.UsageError(f"--{action} needs --group or --all-groups")
        if action == "delete":
            for outcome in client.delete_groups(names):
                outcome.check()
                click.echo(f"Deleted group {outcome.name}.")
            return
        groups = [client.describe_group(name) for name in names]
        if members:
            _print_members(groups)
        elif state:
            _print_states(groups)
        else:
            _print_offsets(client, groups)


def _list(client: AdminClient, state: bool) -> None:
    listed = sorted(client.list_groups(), key=lambda item: item.group_id)
    if state or wants_json():
        rows = [(item.group_id, item.type, item.state) for item in listed]
        print_table(("GROUP", "TYPE", "STATE"), rows)
    else:
        for item in listed:
            click.echo(item.group_id)


def _print_states(groups: list[GroupDescription]) -> None:
    rows = [
        (
            group.group_id,
            _coordinator(group.coordinator),
            group.assignor,
            group.state,
            group.group_epoch,
            group.assignment_epoch,
            len(group.members),
        )
        for group in groups
    ]
    columns = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "GROUP-EPOCH", "ASSIGNMENT-EPOCH")
    print_table((*columns, "#MEMBERS"), rows)


def _coordinator(broker: BrokerDescription) -> Cell:
    value = {"id": broker.id, "host": broker.host, "port": broker.port}
    return Cell(value, f"{broker.host}:{broker.port} ({broker.id})")


def _assignment(assignment: Mapping[str, tuple[int, ...]]) -> Cell:
    topics = [(topic, sorted(partitions)) for topic, partitions in sorted(assignment.items())]
    value = [{"topic": topic, "partitions": partitions} for topic, partitions in topics]
    return Cell(value, ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in topics))


def _print_members(groups: list[GroupDescription]) -> None:
    rows = [
        (
            group.group_id,
            member.member_id,
            member.client_host,
            member.client_id,
            sum(map(len, member.assignment.values())),
            member.member_epoch,
            _assignment(member.assignment),
        )
        for group in groups
        for member in sorted(group.members, key=lambda item: item.member_id)
    ]
    columns = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "CURRENT-EPOCH", "ASSIGNMENT")
    print_table(columns, rows)


def _print_offsets(client: AdminClient, groups: list[GroupDescription]) -> None:
    rows: list[tuple[object, ...]] = []
    for group in groups:
        committed = client.group_offsets(group.group_id)
        owners: dict[TopicPartition, MemberDescription] = {
            TopicPartition(topic, partition): member
            for member in group.members
            for topic, partitions in member.assignment.items()
            for partition in partitions
        }
        wanted = sorted(committed.keys() | owners.keys())
        ends = client.list_offsets(dict.fromkeys(wanted, _LATEST)) if wanted else {}
        for item in wanted:
            offset = committed[item].offset if item in committed else None
            end = ends[item].offset if item in ends else None
            lag = None if offset is None or end is None else end - offset
            owner = owners.get(item)
            rows.append(
                (
                    group.group_id,
                    item.topic,
                    item.partition,
                    offset,
                    end,
                    lag,
                    owner.member_id if owner else None,
                    owner.client_host if owner else None,
                    owner.client_id if owner else None,
                )
            )
    columns = (
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
    )
    print_table((*columns, "CLIENT-ID"), rows)
