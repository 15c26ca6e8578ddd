"""``--command-config``: a file with properties of Kafka's admin client.

A file that was written for Kafka's tools works here, too: a property that this client has no use for is named
in a warning, as Kafka's own client warns of those that it does not know. What asks for security is refused,
since a tool that silently did without it would be a leak.
"""

from __future__ import annotations

from typing import Any, Final

import click

from pykraft.configuration.keys import ConfigError
from pykraft.node.cli.shared.client_properties import CLIENT_FIELDS, read_properties

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
    known = {key.name: field for field, key in CLIENT_FIELDS.items()}
    settings: dict[str, Any] = {}
    for name, value in given.items():
        if name.startswith(_SECURITY):
            raise ConfigError(f"{path}: {name} is not supported: there is neither TLS nor SASL")
        if name in known:
            settings[known[name]] = CLIENT_FIELDS[known[name]].parse(value)
        elif name not in _BOOTSTRAP:
            click.echo(f"warning: {path}: {name} has no effect here", err=True)
    return settings
