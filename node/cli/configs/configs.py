"""``pykraft configs``, with the flags and messages of kafka-configs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import ConfigChange, ConfigEntry
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.node.cli.configs.entities import (
    KINDS,
    REFUSED,
    Entity,
    existing_names,
    named_entity,
    why_missing,
)
from pykraft.node.cli.shared.client_properties import read_properties, refused_option
from pykraft.node.cli.shared.cluster_client import Target, cluster_options
from pykraft.node.cli.shared.common import (
    FC,
    check_actions,
    json_option,
    one_action,
    pairs,
    print_done,
    print_json,
    wants_json,
)
from pykraft.node.cli.shared.tool_errors import report


def parse_changes(added: str | None, file: str | None, deleted: str | None) -> list[ConfigChange]:
    """The changes in the options; a usage error if there are none, or a key is named twice."""
    changes = [ConfigChange(key, ConfigOperation.SET, value) for key, value in _added(added, file)]
    changes += [
        ConfigChange(key.strip(), ConfigOperation.DELETE) for key in (deleted or "").split(",") if key
    ]
    names = [change.name for change in changes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise click.UsageError(f"given twice: {', '.join(twice)}")
    if not changes:
        raise click.UsageError("give --add-config, --add-config-file or --delete-config")
    return changes


def _added(added: str | None, file: str | None) -> Iterator[tuple[str, str]]:
    for key, value in pairs(_split(added or ""), "--add-config").items():
        yield key, value.strip()
    if file is not None:
        yield from read_properties((), "--add-config-file", file).items()


def _split(text: str) -> list[str]:
    """Split ``a=1,b=[x,y]`` at its commas, except within brackets, which are removed."""
    items, depth = [""], 0
    for sign in text:
        if sign == "[" and depth == 0 and items[-1].rstrip().endswith("="):
            depth = 1
        elif sign == "]" and depth:
            depth = 0
        elif sign == "," and not depth:
            items.append("")
        else:
            items[-1] += sign
    if depth:
        raise click.UsageError(f"--add-config {text!r} has no closing bracket")
    return [item for item in items if item.strip()]


def _refused_entities(function: FC) -> FC:
    """``--user``, ``--user-defaults`` …, each refused with the reason."""
    for kind, reason in REFUSED.items():
        function = refused_option(f"--{kind[:-1]}", reason)(function)
        function = refused_option(f"--{kind[:-1]}-defaults", reason, is_flag=True)(function)
    return function


@click.command()
@cluster_options(controllers=True)
@click.option("--describe", is_flag=True, help="Show what is set.")
@click.option("--alter", is_flag=True, help="Set keys, or reset them to their defaults.")
@click.option("--entity-type", type=click.Choice([*KINDS, *REFUSED]), metavar=f"[{'|'.join(KINDS)}]",
              help="What the configuration belongs to.")  # fmt: skip
@click.option("--entity-name", help="Which one: a topic, a broker's id, a group, a subscription.")
@click.option("--entity-default", is_flag=True, help="The defaults for all brokers.")
@click.option("--topic", help="The same as --entity-type topics --entity-name.")
@click.option("--broker", help="The same as --entity-type brokers --entity-name.")
@click.option("--broker-defaults", is_flag=True, help="The same as --entity-type brokers --entity-default.")
@click.option("--broker-logger", help="The same as --entity-type broker-loggers --entity-name.")
@click.option("--group", help="The same as --entity-type groups --entity-name.")
@click.option("--client-metrics", help="The same as --entity-type client-metrics --entity-name.")
@click.option("--all", is_flag=True, help="Describe: also values that were not set here.")
@click.option("--add-config", metavar="K=V,…", help="Keys to set; write a value with commas in [brackets].")
@click.option("--add-config-file", metavar="FILE", help="A properties file of keys to set.")
@click.option("--delete-config", metavar="K,…", help="Keys to reset to their defaults.")
@_refused_entities
@json_option
def command(target: Target, **given: Any) -> None:
    """Show and change configurations of topics, brokers, groups … while the cluster runs."""
    action = one_action({"describe": given["describe"], "alter": given["alter"]})
    check_actions(action, given, {"all": ["describe"], "add-config": ["alter"], "delete-config": ["alter"]})
    kind, name = named_entity(given)
    if action == "describe":
        with target.client() as client:
            if name is None:
                entities = [Entity(kind, it) for it in existing_names(client, target, kind)]
            else:
                entities = [Entity(kind, name)]
                if (reason := why_missing(client, target, entities[0])) is not None:
                    report([reason])
                    return
            _describe(client, entities, given["all"])
        return
    if name is None:
        raise click.UsageError("--alter needs the entity's name")
    changes = parse_changes(given["add_config"], given["add_config_file"], given["delete_config"])
    with target.client() as client:
        entity = Entity(kind, name)
        if kind in ("brokers", "broker-loggers"):
            reason = why_missing(client, target, entity)
            if reason is not None:
                raise click.ClickException(reason)
        _alter(client, entity, changes)


def _describe(client: AdminClient, entities: Sequence[Entity], show_all: bool) -> None:
    described = []
    for entity in entities:
        shown = _entries(client, entity, show_all)
        described.append(
            {
                "entityType": entity.singular,
                "entityName": entity.name or None,
                "configs": {entry.name: entry.value for entry in shown},
            }
        )
        if not wants_json():
            kind = "Default" if not entity.name else "All" if show_all else "Dynamic"
            click.echo(f"{kind} configs for {entity} are:")
            for entry in shown:
                click.echo(f"  {_line(entry)}")
    if wants_json():
        print_json(described)


def _entries(client: AdminClient, entity: Entity, show_all: bool = False) -> list[ConfigEntry]:
    entries = client.describe_configs(entity.type, entity.name)
    source = None if show_all else entity.dynamic_source
    return sorted(
        (entry for entry in entries if source is None or entry.source is source),
        key=lambda entry: entry.name,
    )


def _line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{source.name}:{name}={_text(value)}" for name, value, source in entry.synonyms)
    sensitive = str(entry.is_sensitive).lower()
    return f"{entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _alter(client: AdminClient, entity: Entity, changes: Sequence[ConfigChange]) -> None:
    if entity.type is ConfigResourceType.BROKER_LOGGER:
        present = {entry.name for entry in _entries(client, entity)}
        if unknown := [change.name for change in changes if change.name not in present]:
            raise click.ClickException(f"Invalid broker logger(s): {','.join(unknown)}")
    client.alter_configs(entity.type, entity.name, changes)
    print_done(
        f"Completed updating {'' if entity.name else 'default '}config for {entity}.",
        entityType=entity.singular,
        entityName=entity.name or None,
        changed=[change.name for change in changes],
    )
