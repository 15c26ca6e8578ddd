"""``--command-config``: a file with properties of Kafka's admin client.

A file that was written for Kafka's tools works here, too: a property that this client has no use for is named
in a warning, as Kafka's own client warns of those that it does not know. What asks for security is refused,
since a tool that silently did without it would be a leak.
"""

from __future__ import annotations

from typing import Any, Final

import click

from pykraft.configuration.keys import (
    INT,
    LONG,
    STRING,
    ConfigError,
    ConfigKey,
    ConfigType,
    Validator,
    at_least,
)
from pykraft.node.cli.client_properties import read_properties


def _key(name: str, kind: ConfigType, validator: Validator | None = None) -> ConfigKey:
    return ConfigKey(name, kind, None, "", validator)


_FIELDS: Final = {
    "client_id": _key("client.id", STRING),
    "connect_timeout_ms": _key("socket.connection.setup.timeout.ms", LONG, at_least(1)),
    "default_api_timeout_ms": _key("default.api.timeout.ms", INT, at_least(1)),
    "request_timeout_ms": _key("request.timeout.ms", INT, at_least(1)),
    "retry_backoff_ms": _key("retry.backoff.ms", LONG, at_least(0)),
    "retry_backoff_max_ms": _key("retry.backoff.max.ms", LONG, at_least(0)),
}
"""Keys by the field of the client's configuration that they set."""

_BOOTSTRAP: Final = frozenset({"bootstrap.servers", "bootstrap.controllers"})
"""Kafka's tools, too, take these from their options only."""

_PROTOCOL: Final = "security.protocol"
_SECURITY: Final = ("security.", "sasl.", "ssl.")


def read_admin_settings(path: str | None) -> dict[str, Any]:
    """Fields of :class:`~pykraft.kafka_client.cluster.ClientConfig`; none without a file.

    :class:`click.UsageError` for a file that cannot be read, :class:`ConfigError` for a value that is not
    allowed and for every property that asks for security.
    """
    if path is None:
        return {}
    given = read_properties((), "--command-config", path)
    protocol = given.pop(_PROTOCOL, "PLAINTEXT").strip()
    if protocol.upper() != "PLAINTEXT":
        raise ConfigError(f"{path}: {_PROTOCOL}={protocol} is not supported, only PLAINTEXT")
    known = {key.name: field for field, key in _FIELDS.items()}
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith(_SECURITY):
            raise ConfigError(f"{path}: {name} is not supported: there is neither TLS nor SASL")
        if name in known:
            settings[known[name]] = _FIELDS[known[name]].parse(value)
        elif name not in _BOOTSTRAP:
            click.echo(f"warning: {path}: {name} has no effect here", err=True)
    return settings
