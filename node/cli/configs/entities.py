"""Entities with configurations, in the words of kafka-configs; which of them exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import click

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_protocol.enums import ConfigResourceType, ConfigSource
from pykraft.lazy_dataclass import dataclass
from pykraft.node.cli.shared.cluster_client import Target


class _Kind(NamedTuple):
    """``dynamic_source``: the source of values that were set on the entity itself; None: all are shown."""

    type: ConfigResourceType
    dynamic_source: ConfigSource | None


KINDS: Final[Mapping[str, _Kind]] = {
    "topics": _Kind(ConfigResourceType.TOPIC, ConfigSource.DYNAMIC_TOPIC_CONFIG),
    "brokers": _Kind(ConfigResourceType.BROKER, ConfigSource.DYNAMIC_BROKER_CONFIG),
    "broker-loggers": _Kind(ConfigResourceType.BROKER_LOGGER, None),
    "groups": _Kind(ConfigResourceType.GROUP, ConfigSource.DYNAMIC_GROUP_CONFIG),
    "client-metrics": _Kind(ConfigResourceType.CLIENT_METRICS, ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG),
}
REFUSED: Final = {
    **dict.fromkeys(("users", "clients"), "there are neither quotas nor SCRAM credentials yet"),
    "ips": "there are no quotas yet",
}
"""Kafka's other types of entities, and why they are refused."""

_NAMED_BY: Final = {
    "topic": "topics",
    "broker": "brokers",
    "broker_logger": "broker-loggers",
    "group": "groups",
    "client_metrics": "client-metrics",
}
"""The options that name an entity, and its kind."""


@dataclass(frozen=True, slots=True)
class Entity:
    """An empty name means the defaults of all brokers."""

    kind: str
    name: str

    @property
    def type(self) -> ConfigResourceType:
        return KINDS[self.kind].type

    @property
    def dynamic_source(self) -> ConfigSource | None:
        """The source of values that were set on this entity itself; None: that of every value."""
        return KINDS[self.kind].dynamic_source if self.name else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG

    @property
    def singular(self) -> str:
        return self.kind[:-1]

    def __str__(self) -> str:
        return f"{self.singular} {self.name}" if self.name else f"{self.kind} in the cluster"


def named_entity(given: Mapping[str, Any]) -> tuple[str, str | None]:
    """The kind, and the name: empty for the defaults, None for every entity of the kind.

    :class:`click.UsageError` unless the options name one kind, and a name that it can have.
    """
    asked: list[tuple[str, str | None]] = [
        (kind, given[option]) for option, kind in _NAMED_BY.items() if given[option] is not None
    ]
    if given["broker_defaults"]:
        asked.append(("brokers", ""))
    if given["entity_type"] is not None:
        asked.append((given["entity_type"], "" if given["entity_default"] else given["entity_name"]))
    if len(asked) != 1 or (given["entity_default"] and given["entity_name"] is not None):
        raise click.UsageError("name one entity: --entity-type and --entity-name, or --topic, --broker, …")
    kind, name = asked[0]
    if kind in REFUSED:
        raise click.UsageError(f"--entity-type {kind}: {REFUSED[kind]}")
    if kind in ("brokers", "broker-loggers"):
        if name and not (name.isascii() and name.isdecimal()):
            raise click.UsageError(f"{name!r} is not a broker's id")
        if kind == "broker-loggers" and not name:
            raise click.UsageError("broker-loggers belong to one broker: give its id")
    elif name == "":
        raise click.UsageError(f"{kind} have no defaults of their own: the brokers' defaults apply")
    return kind, name


def why_missing(client: AdminClient, target: Target, entity: Entity) -> str | None:
    """Kafka's words for an entity that is neither there nor configured; None if it is.

    :class:`click.ClickException` for a broker that cannot answer, since only it describes its configuration.
    """
    if entity.type in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return _why_no_node(client, target, entity.name) if entity.name else None
    if entity.name in existing_names(client, target, entity.kind):
        return None
    return f"The {entity.singular} '{entity.name}' doesn't exist and doesn't have dynamic config."


def _why_no_node(client: AdminClient, target: Target, name: str) -> str | None:
    described = client.describe_cluster(
        include_fenced_brokers=not target.is_controllers, controllers=target.is_controllers
    )
    nodes = {str(it.id): it for it in described.brokers}
    kind = "controller" if target.is_controllers else "broker"
    if name not in nodes:
        known = ", ".join(sorted(nodes))
        return f"The {kind} '{name}' doesn't exist and doesn't have dynamic config. Known are {known}."
    if nodes[name].is_fenced:
        raise click.ClickException(f"broker {name} is down or unreachable (fenced)")
    return None


def existing_names(client: AdminClient, target: Target, kind: str) -> list[str]:
    """The names of all entities of a kind; the defaults of the brokers last."""
    match kind:
        case "topics":
            return [it.name for it in client.list_topics(include_internal=True)]
        case "brokers":
            nodes = client.describe_cluster(controllers=target.is_controllers).brokers
            return [*(str(node.id) for node in nodes), ""]
        case "groups":
            configured = [it.name for it in client.list_config_resources([ConfigResourceType.GROUP])]
            return list(dict.fromkeys([*(it.group_id for it in client.list_groups()), *configured]))
        case _:
            return [it.name for it in client.list_config_resources([KINDS[kind].type])]
