"""``pykraft configs``, with the flags and messages of kafka-configs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from pykraft.configuration.properties import parse_properties
from pykraft.kafka_client.admin import AdminClient
from pykraft.kafka_client.admin_results import ConfigChange, ConfigEntry
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.lazy_dataclass import dataclass
from pykraft.node.cli.cluster_client import admin_client
from pykraft.node.cli.common import bootstrap_option, json_option, one_action, pairs, print_json, wants_json

_TYPES: Final = {
    "topics": ConfigResourceType.TOPIC,
    "brokers": ConfigResourceType.BROKER,
    "groups": ConfigResourceType.GROUP,
}
_DYNAMIC: Final = {
    ConfigResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ConfigResourceType.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
}


@dataclass(frozen=True, slots=True)
class _Entity:
    """The entity of a configuration; an empty name means all brokers."""

    type: ConfigResourceType
    name: str

    @property
    def dynamic_source(self) -> ConfigSource:
        """The source of values that were set on this entity itself."""
        return _DYNAMIC[self.type] if self.name else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name}" if self.name else "brokers in the cluster"


@click.command()
@bootstrap_option
@click.option("--describe", is_flag=True, help="Show what is set.")
@click.option("--alter", is_flag=True, help="Set keys, or reset them to their defaults.")
@click.option("--entity-type", type=click.Choice(list(_TYPES)), help="What the configuration belongs to.")
@click.option("--entity-name", help="Which one: a topic, a broker's id, a group.")
@click.option("--entity-default", is_flag=True, help="The defaults for all brokers.")
@click.option("--topic", help="The same as --entity-type topics --entity-name.")
@click.option("--broker", help="The same as --entity-type brokers --entity-name.")
@click.option("--group", help="The same as --entity-type groups --entity-name.")
@click.option("--broker-defaults", is_flag=True, help="The same as --entity-type brokers --entity-default.")
@click.option("--all", "show_all", is_flag=True, help="Describe: also values that were not set here.")
@click.option("--add-config", metavar="K=V,…", help="Keys to set; write a value with commas in [brackets].")
@click.option("--add-config-file", metavar="FILE", help="A properties file of keys to set.")
@click.option("--delete-config", metavar="K,…", help="Keys to reset to their defaults.")
@json_option
def command(
    bootstrap_server: str,
    describe: bool,
    alter: bool,
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
    topic: str | None,
    broker: str | None,
    group: str | None,
    broker_defaults: bool,
    show_all: bool,
    add_config: str | None,
    add_config_file: str | None,
    delete_config: str | None,
) -> None:
    """Show and change configurations of topics, brokers and groups while the cluster runs."""
    action = one_action({"describe": describe, "alter": alter})
    short = {"topics": topic, "brokers": "" if broker_defaults else broker, "groups": group}
    asked: list[tuple[str, str | None]] = [(kind, name) for kind, name in short.items() if name is not None]
    if entity_type is not None:
        asked.append((entity_type, "" if entity_default else entity_name))
    contradictory = (entity_default and entity_name is not None) or (broker_defaults and broker is not None)
    if len(asked) != 1 or contradictory:
        raise click.UsageError("name one entity: --entity-type and --entity-name, or --topic, --broker, …")
    resource_type, name = _checked(*asked[0])
    if action == "describe":
        with admin_client(bootstrap_server) as client:
            _check_broker(client, resource_type, name)
            entities = _all(client, resource_type) if name is None else [_Entity(resource_type, name)]
            _describe(client, entities, show_all)
        return
    if name is None:
        raise click.UsageError("--alter needs the entity's name")
    changes = _changes(add_config, add_config_file, delete_config)
    with admin_client(bootstrap_server) as client:
        _check_broker(client, resource_type, name)
        _alter(client, _Entity(resource_type, name), changes)


def _checked(kind: str, name: str | None) -> tuple[ConfigResourceType, str | None]:
    """The entity that the options name: empty for all brokers, None for each of its kind."""
    if kind != "brokers":
        if name == "":
            raise click.UsageError(f"{kind} have no defaults of their own: those of the brokers apply")
    elif name and not (name.isascii() and name.isdecimal()):
        raise click.UsageError(f"{name!r} is not a broker's id")
    return _TYPES[kind], name


def _check_broker(client: AdminClient, resource_type: ConfigResourceType, name: str | None) -> None:
    """Only a broker itself describes its configuration: do not wait for one that does not exist."""
    if resource_type is not ConfigResourceType.BROKER or not name:
        return
    brokers = {str(it.id): it for it in client.describe_cluster(include_fenced_brokers=True).brokers}
    if name not in brokers:
        raise click.ClickException(f"there is no broker {name}; known are {', '.join(sorted(brokers))}")
    if brokers[name].is_fenced:
        raise click.ClickException(f"broker {name} is down or unreachable (fenced)")


def _all(client: AdminClient, resource_type: ConfigResourceType) -> list[_Entity]:
    if resource_type is ConfigResourceType.TOPIC:
        names = [item.name for item in client.list_topics(include_internal=True)]
    elif resource_type is ConfigResourceType.BROKER:
        names = [*(str(broker.id) for broker in client.describe_cluster().brokers), ""]
    else:
        names = [item.group_id for item in client.list_groups()]
    return [_Entity(resource_type, name) for name in names]


def _describe(client: AdminClient, entities: Sequence[_Entity], show_all: bool) -> None:
    described = []
    for entity in entities:
        entries = client.describe_configs(entity.type, entity.name)
        shown = [entry for entry in entries if show_all or entry.source is entity.dynamic_source]
        described.append(
            {
                "entityType": entity.type.name.lower(),
                "entityName": entity.name or None,
                "configs": {entry.name: entry.value for entry in shown},
            }
        )
        if not wants_json():
            kind = "All" if show_all else "Dynamic" if entity.name else "Default"
            click.echo(f"{kind} configs for {entity} are:")
            for entry in shown:
                click.echo(f"  {_line(entry)}")
    if wants_json():
        print_json(described)


def _line(entry: ConfigEntry) -> str:
    synonyms = ", ".join(f"{source.name}:{name}={_text(value)}" for name, value, source in entry.synonyms)
    sensitive = str(entry.is_sensitive).lower()
    return f"{entry.name}={_text(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def _text(value: str | None) -> str:
    return "null" if value is None else value


def _changes(added: str | None, file: str | None, deleted: str | None) -> list[ConfigChange]:
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
    yield from pairs(_split(added or ""), "--add-config").items()
    if file is not None:
        try:
            with open(file, encoding="utf-8") as lines:
                yield from parse_properties(lines.read()).items()
        except OSError as error:
            raise click.UsageError(f"cannot read {file}: {error.strerror}") from None


def _split(text: str) -> list[str]:
    """Split ``a=1,b=[x,y]`` at its commas, except within brackets, which are removed."""
    items, depth = [""], 0
    for sign in text:
        if sign == "[" and depth == 0 and items[-1].endswith("="):
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


def _alter(client: AdminClient, entity: _Entity, changes: Sequence[ConfigChange]) -> None:
    known = client.describe_configs(entity.type, entity.name)
    present = {entry.name for entry in known if entry.source is entity.dynamic_source}
    unset = [it.name for it in changes if it.operation is ConfigOperation.DELETE and it.name not in present]
    if unset:
        # Otherwise a misspelled key would silently succeed.
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"cannot be deleted, because not set: {', '.join(unset)}")
    client.alter_configs(entity.type, entity.name, changes)
    click.echo(f"Completed updating {'' if entity.name else 'default '}config for {entity}.")
