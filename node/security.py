"""Refuses a configuration that asks for security: only PLAINTEXT is served yet.

A property or a listener that seems to protect but does not must stop the start; a warning would be read too
late. Names of listeners may be protocols, as in Kafka: without ``listener.security.protocol.map`` a listener
called SSL uses SSL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from pykraft.configuration.keys import ConfigError

PLAINTEXT: Final = "PLAINTEXT"
_PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MAP: Final = "listener.security.protocol.map"
_INTER_BROKER_PROTOCOL: Final = "security.inter.broker.protocol"
_LISTENER_PREFIX: Final = "listener.name."
_KEY_PREFIXES: Final = ("ssl.", "sasl.", "authorizer.", "delegation.token.")
_KEYS: Final = frozenset(
    """
allow.everyone.if.no.acl.found connection.failed.authentication.delay.ms connections.max.reauth.ms
principal.builder.class security.providers super.users
""".split()
)


def is_security_key(name: str) -> bool:
    """Whether a property, also in its form for one listener, concerns encryption, identity or access."""
    if name.startswith(_LISTENER_PREFIX):
        # listener.name.<listener>.<key>, or listener.name.<listener>.<mechanism>.<key>
        rest = name.removeprefix(_LISTENER_PREFIX).split(".")
        return any(is_security_key(".".join(rest[at:])) for at in (1, 2))
    return name in _KEYS or name.startswith(_KEY_PREFIXES)


def check_security_keys(given: Mapping[str, str]) -> None:
    """Raises :class:`ConfigError` that names every given property that would have no effect."""
    asked = given.get(_INTER_BROKER_PROTOCOL, PLAINTEXT)
    if asked.strip().upper() != PLAINTEXT:
        raise ConfigError(f"{_INTER_BROKER_PROTOCOL}: {asked} is not served, only {PLAINTEXT}")
    ignored = sorted(filter(is_security_key, given))
    if ignored:
        raise ConfigError(
            f"{', '.join(ignored)}: security is not implemented yet, only {PLAINTEXT} without authentication"
            " is available; remove these properties"
        )


def check_protocols(
    items: Iterable[str], listeners: Collection[str], controller_names: Collection[str]
) -> None:
    """:class:`ConfigError` unless ``listener.security.protocol.map`` makes every name PLAINTEXT.

    ``items`` are its ``NAME:PROTOCOL`` pairs. Without any, Kafka's default applies: a listener with the name
    of a protocol has that protocol, and those of controllers are PLAINTEXT.
    """
    protocols = dict(map(_split, items))
    if not protocols:
        protocols = dict.fromkeys(controller_names, PLAINTEXT) | {name: name for name in _PROTOCOLS}
    for name in dict.fromkeys((*listeners, *controller_names)):
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(f"listener {name} has no security protocol: add {name}:{PLAINTEXT} to {_MAP}")
        if protocol != PLAINTEXT:
            raise ConfigError(
                f"listener {name}: security protocol {protocol} is not served, only {PLAINTEXT}"
            )


def _split(item: str) -> tuple[str, str]:
    name, separator, protocol = (part.strip().upper() for part in item.partition(":"))
    if not separator or not name:
        raise ConfigError(f"{_MAP}: {item!r} is not NAME:PROTOCOL")
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"{_MAP}: {protocol} is not a security protocol; these are {', '.join(_PROTOCOLS)}")
    return name, protocol
