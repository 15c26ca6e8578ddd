"""Properties of Kafka's clients, for the commands that use pykraft's own client.

A property that this client does not have is refused: a measurement with settings that had no effect would
mislead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import click

from pykraft.configuration.keys import (
    BOOLEAN,
    INT,
    LONG,
    STRING,
    ConfigError,
    ConfigKey,
    ConfigType,
    Validator,
    at_least,
    nearest_key,
    one_of,
)
from pykraft.configuration.properties import parse_properties
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.fetcher import FetchConfig
from pykraft.kafka_client.group.config import GroupConfig
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.kafka_client.producer.batch import ACKS_ALL, MAX_IDEMPOTENT_IN_FLIGHT, ProducerConfig
from pykraft.kafka_client.producer.transaction import TransactionConfig
from pykraft.kafka_protocol.compression import Compression

BOOTSTRAP_SERVERS: Final = "bootstrap.servers"

SERIALIZATION: Final = ("key.serializer", "value.serializer", "key.deserializer", "value.deserializer")
"""Without effect, as in Kafka's tools, which set them themselves: they write and read bytes."""

_ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")
"""In the order of their numbers in the protocol."""

FC = TypeVar("FC", bound=Callable[..., Any])


def _key(name: str, kind: ConfigType, validator: Validator | None = None) -> ConfigKey:
    return ConfigKey(name, kind, None, "", validator)


_Fields = Mapping[str, ConfigKey]
"""Keys by the field of the client's configuration that they set."""

CLIENT_FIELDS: Final[_Fields] = {
    "client_id": _key("client.id", STRING),
    "connect_timeout_ms": _key("socket.connection.setup.timeout.ms", LONG, at_least(1)),
    "default_api_timeout_ms": _key("default.api.timeout.ms", INT, at_least(1)),
    "request_timeout_ms": _key("request.timeout.ms", INT, at_least(1)),
    "retry_backoff_ms": _key("retry.backoff.ms", LONG, at_least(0)),
    "retry_backoff_max_ms": _key("retry.backoff.max.ms", LONG, at_least(0)),
}
_PRODUCER: Final[_Fields] = {
    "acks": _key("acks", STRING, one_of("all", "-1", "0", "1")),
    "enable_idempotence": _key("enable.idempotence", BOOLEAN),
    "max_in_flight_requests_per_connection": _key("max.in.flight.requests.per.connection", INT, at_least(1)),
    "linger_ms": _key("linger.ms", LONG, at_least(0)),
    "batch_size_bytes": _key("batch.size", INT, at_least(0)),
    "buffer_memory_bytes": _key("buffer.memory", LONG, at_least(0)),
    "max_request_size_bytes": _key("max.request.size", INT, at_least(0)),
    "delivery_timeout_ms": _key("delivery.timeout.ms", INT, at_least(0)),
    "max_block_ms": _key("max.block.ms", LONG, at_least(0)),
    "compression": _key("compression.type", STRING, one_of(*(codec.name.lower() for codec in Compression))),
}
_TRANSACTION: Final[_Fields] = {
    "transactional_id": _key("transactional.id", STRING),
    "transaction_timeout_ms": _key("transaction.timeout.ms", INT, at_least(1)),
}
_NETWORK: Final[_Fields] = {
    "send_buffer_bytes": _key("send.buffer.bytes", INT, at_least(-1)),
    "receive_buffer_bytes": _key("receive.buffer.bytes", INT, at_least(-1)),
}
_FETCH: Final[_Fields] = {
    "max_wait_ms": _key("fetch.max.wait.ms", INT, at_least(0)),
    "min_bytes": _key("fetch.min.bytes", INT, at_least(0)),
    "max_bytes": _key("fetch.max.bytes", INT, at_least(0)),
    "isolation_level": _key("isolation.level", STRING, one_of(*_ISOLATION_LEVELS)),
    "rack": _key("client.rack", STRING),
}
_GROUP: Final[_Fields] = {
    "group_protocol": _key("group.protocol", STRING, one_of("classic", "consumer")),
    "group_instance_id": _key("group.instance.id", STRING),
    "session_timeout_ms": _key("session.timeout.ms", INT, at_least(1)),
    "heartbeat_interval_ms": _key("heartbeat.interval.ms", INT, at_least(1)),
    "max_poll_interval_ms": _key("max.poll.interval.ms", INT, at_least(1)),
    "metadata_max_age_ms": _key("metadata.max.age.ms", LONG, at_least(1)),
}


def read_properties(items: Sequence[str], option: str, file: str | None) -> dict[str, str]:
    """The properties in a file, with those of the command line, which take precedence."""
    found: dict[str, str] = {}
    if file is not None:
        try:
            with open(file, encoding="utf-8") as opened:
                found = parse_properties(opened.read())
        except OSError as error:
            raise click.UsageError(f"cannot read {file}: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise click.UsageError(f"{file} is not UTF-8: {error}") from None
    for item in items:
        name, separator, value = item.partition("=")
        if not separator or not name:
            raise click.UsageError(f"{option} {item!r} is not key=value")
        found[name.strip()] = value
    return found


def check_known(given: Mapping[str, str], client: str, *tables: _Fields) -> None:
    """:class:`ConfigError` for a property that the client (``producer`` or ``consumer``) does not have."""
    tables = (CLIENT_FIELDS, _NETWORK, *tables)
    known = [BOOTSTRAP_SERVERS, *SERIALIZATION, *(key.name for table in tables for key in table.values())]
    for name in given:
        if name not in known:
            nearest = nearest_key(name, known)
            hint = f"did you mean {nearest}?" if nearest else f"it has {', '.join(known)}"
            raise ConfigError(f"pykraft's {client} has no property {name}; {hint}")


def client_config(given: Mapping[str, str], bootstrap_server: str, client_id: str) -> ClientConfig:
    """:class:`ConfigError` for a value that is not allowed, as for the functions below."""
    config = ClientConfig(parse_bootstrap_servers(bootstrap_server), client_id=client_id)
    return replace(config, **_values(given, CLIENT_FIELDS))


def socket_buffers(given: Mapping[str, str]) -> dict[str, int]:
    """Sizes of the system's buffers of a connection, as far as they are given."""
    return _values(given, _NETWORK)


def transaction_config(given: Mapping[str, str]) -> TransactionConfig | None:
    """None unless a transactional id is given."""
    values = _values(given, _TRANSACTION)
    try:
        return TransactionConfig(**values) if "transactional_id" in values else None
    except ValueError as error:
        raise ConfigError(str(error)) from None


def producer_config(given: Mapping[str, str]) -> ProducerConfig:
    """As Kafka's producer, idempotent unless other properties contradict and nothing asks for it."""
    check_known(given, "producer", _PRODUCER, _TRANSACTION)
    values = _values(given, _PRODUCER)
    if "acks" in values:
        values["acks"] = ACKS_ALL if values["acks"] == "all" else int(values["acks"])
    if "compression" in values:
        values["compression"] = Compression[values["compression"].upper()]
    in_flight = values.get("max_in_flight_requests_per_connection", MAX_IDEMPOTENT_IN_FLIGHT)
    agrees = values.get("acks", ACKS_ALL) == ACKS_ALL and in_flight <= MAX_IDEMPOTENT_IN_FLIGHT
    values.setdefault("enable_idempotence", agrees)
    try:
        return ProducerConfig(**values)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def consumer_configs(
    given: Mapping[str, str], group: GroupConfig, fetch: FetchConfig
) -> tuple[GroupConfig, FetchConfig]:
    """``group`` and ``fetch`` with what is given."""
    check_known(given, "consumer", _FETCH, _GROUP)
    values = _values(given, _FETCH)
    if "isolation_level" in values:
        values["isolation_level"] = _ISOLATION_LEVELS.index(values["isolation_level"])
    try:
        return replace(group, **_values(given, _GROUP)), replace(fetch, **values)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _values(given: Mapping[str, str], table: _Fields) -> dict[str, Any]:
    return {field: key.parse(given[key.name]) for field, key in table.items() if key.name in given}


def refused_option(name: str, reason: str, *, is_flag: bool = False) -> Callable[[FC], FC]:
    """An option of Kafka's tool that is known here, and refused with a reason."""

    def refuse(context: click.Context, _: click.Parameter, value: object) -> None:
        if value and not context.resilient_parsing:
            raise click.UsageError(f"{name} is not supported: {reason}")

    return click.option(name, is_flag=is_flag, hidden=True, expose_value=False, callback=refuse, default=None)
