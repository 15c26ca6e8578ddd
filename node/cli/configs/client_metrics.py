"""``pykraft client-metrics``, with the flags and lines of kafka-client-metrics: subscriptions to the metrics of
clients (KIP-714), which are configurations of the type client-metrics. They are stored; no client is asked yet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import ConfigChange, ConfigEntry
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.kafka_protocol.ids import uuid_to_str
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import (
    check_actions,
    json_option,
    one_action,
    print_done,
    print_json,
    wants_json,
)
from pykraft.node.cli.shared.tool_errors import report
from pykraft.node.incarnation import draw_uuid

_TYPE: Final = ConfigResourceType.CLIENT_METRICS
_KEYS: Final = {"interval": "interval.ms", "match": "match", "metrics": "metrics"}
_ONLY_WITH: Final = {
    **dict.fromkeys(("generate-name", *_KEYS), ("alter",)),
    "name": ("alter", "delete", "describe"),
}


@click.command()
@cluster_options()
@click.option("--alter", is_flag=True, help="Make a subscription, or change it.")
@click.option("--delete", is_flag=True, help="Delete a subscription.")
@click.option("--describe", is_flag=True, help="Show one subscription, or all.")
@click.option("--list", is_flag=True, help="Print the names of the subscriptions.")
@click.option("--name", help="The name of the subscription.")
@click.option("--generate-name", is_flag=True, help="Alter: make a subscription with a new id as its name.")
@click.option("--interval", metavar="MS", help="How often clients push; empty: the default.")
@click.option(
    "--match", metavar="NAME=REGEX,…",
    help="Which clients push, by client_id, client_instance_id, client_software_name, client_software_version, "
    "client_source_address or client_source_port; empty: all.",
)  # fmt: skip
@click.option("--metrics", metavar="PREFIX,…", help="Which metrics they push; empty: none.")
@json_option
def command(target: Target, **given: Any) -> None:
    """List, describe, alter and delete subscriptions to the metrics of clients."""
    action = one_action({name: given[name] for name in ("alter", "delete", "describe", "list")})
    check_actions(action, given, _ONLY_WITH)
    if action == "alter" and given["generate_name"] == (given["name"] is not None):
        raise click.UsageError("One of --name or --generate-name must be specified with --alter.")
    if action == "delete" and given["name"] is None:
        raise click.UsageError("A client metrics resource name must be specified with --delete.")
    with target.client() as client:
        match action:
            case "list":
                _list(client)
            case "describe" if (missing := _why_missing(client, given["name"])) is not None:
                report([missing])
            case "describe":
                _describe(client, given["name"])
            case "delete":
                _delete(client, given["name"])
            case _:
                name = given["name"] or uuid_to_str(draw_uuid(os.urandom))
                client.alter_configs(_TYPE, name, _changes(given))
                print_done(f"Altered client metrics config for {name}.", name=name, altered=True)


def _changes(given: Mapping[str, Any]) -> list[ConfigChange]:
    """An empty value resets a key to its default."""
    changes = [
        ConfigChange(key, ConfigOperation.SET if given[option] else ConfigOperation.DELETE, given[option])
        for option, key in _KEYS.items()
        if given[option] is not None
    ]
    if not changes:
        raise click.UsageError("--alter needs --interval, --match or --metrics")
    return changes


def _names(client: AdminClient) -> list[str]:
    return [it.name for it in client.list_config_resources([_TYPE])]


def _list(client: AdminClient) -> None:
    names = _names(client)
    if wants_json():
        print_json(names)
    else:
        for name in names:
            click.echo(name)


def _describe(client: AdminClient, name: str | None) -> None:
    names = _names(client) if name is None else [name]
    described = {it: client.describe_configs(_TYPE, it) for it in names}
    if wants_json():
        print_json([{"name": it, "configs": _values(entries)} for it, entries in described.items()])
        return
    for it, entries in described.items():
        click.echo(f"Client metrics configs for {it} are:")
        for key, value in _values(entries).items():
            click.echo(f"  {key}={value}")


def _values(entries: Sequence[ConfigEntry]) -> dict[str, str | None]:
    return {entry.name: entry.value for entry in entries}


def _delete(client: AdminClient, name: str) -> None:
    """One that does not exist is deleted already, as in Kafka."""
    changes = [ConfigChange(it.name, ConfigOperation.DELETE) for it in client.describe_configs(_TYPE, name)]
    if changes:
        client.alter_configs(_TYPE, name, changes)
    print_done(f"Deleted client metrics config for {name}.", name=name, deleted=True)


def _why_missing(client: AdminClient, name: str | None) -> str | None:
    if name is None or name in _names(client):
        return None
    return f"The client metric resource {name} doesn't exist and doesn't have dynamic config."
