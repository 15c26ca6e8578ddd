"""The options of the data source: Spark's own names for its Kafka source, checked before anything runs.

Decides which options exist, what their values mean and which combinations are contradictions; never talks to
a broker. Names are case-insensitive, as everywhere in Spark. An unknown option is an error that suggests the
nearest one, because a misspelt ``startingOffsets`` would otherwise silently read the wrong data. Java client
settings (``kafka.*``) are mapped if this client has the same setting, accepted if they cannot matter here,
and refused otherwise.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.fetcher import FetchConfig
from pykraft.kafka_client.list_offsets import READ_COMMITTED, READ_UNCOMMITTED
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.spark.positions import (
    EARLIEST,
    LATEST,
    ByTimestamp,
    Everywhere,
    OffsetSpec,
    PerPartition,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
)
from pykraft.spark.settings import (
    IGNORED_CLIENT_SETTINGS,
    MAPPED_CLIENT_SETTINGS,
    READ_OPTIONS,
    REFUSED_CLIENT_SETTINGS,
    STREAMING_ONLY_OPTIONS,
    UNUSED_OPTIONS,
    WRITE_ONLY_OPTIONS,
)

T = TypeVar("T")


class OptionError(ValueError):
    """An option that is unknown, malformed or contradicts another; the message says what to write instead."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Exactly these partitions, by topic."""

    partitions: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose whole name matches; Python's ``re`` dialect."""

    pattern: str


@dataclass(frozen=True, slots=True)
class BatchReadOptions:
    """A checked set of options for a batch read."""

    client: ClientConfig
    fetch: FetchConfig
    source: Assign | Subscribe | SubscribePattern
    starting: OffsetSpec
    ending: OffsetSpec
    include_headers: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    check_crcs: bool = True
    poll_timeout_ms: int = 120_000


def parse_batch_options(raw: Mapping[str, str]) -> BatchReadOptions:
    """Check the options of ``spark.read``; :class:`OptionError` for the first error."""
    options = {name.lower(): str(value) for name, value in raw.items()}
    _check_names(options)
    starting, ending = _starting(options), _ending(options)
    max_records = _positive(options, "maxRecordsPerPartition")
    return BatchReadOptions(
        client=_client(options),
        fetch=_fetch(options),
        source=_source(options),
        starting=starting,
        ending=ending,
        include_headers=_boolean(options, "includeHeaders", False),
        fail_on_data_loss=_boolean(options, "failOnDataLoss", True),
        min_partitions=_positive(options, "minPartitions"),
        max_records_per_partition=max_records,
        check_crcs=_boolean(options, "kafka.check.crcs", True),
        poll_timeout_ms=_positive(options, "kafkaConsumer.pollTimeoutMs") or 120_000,
    )


def _check_names(options: Mapping[str, str]) -> None:
    accepted = (*READ_OPTIONS, *UNUSED_OPTIONS, *MAPPED_CLIENT_SETTINGS, *IGNORED_CLIENT_SETTINGS)
    known = {name.lower(): name for name in accepted}
    elsewhere = {name.lower(): "streaming reads" for name in STREAMING_ONLY_OPTIONS}
    elsewhere |= {name.lower(): "writes" for name in WRITE_ONLY_OPTIONS}
    for name in sorted(options.keys() - known.keys()):
        if name in REFUSED_CLIENT_SETTINGS:
            raise OptionError(f"option {name!r} is not allowed: {REFUSED_CLIENT_SETTINGS[name]}")
        if name in elsewhere:
            raise OptionError(f"option {name!r} applies to {elsewhere[name]} only")
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f"; did you mean {known[near[0]]!r}?" if near else ""
        what = "setting of this client" if name.startswith("kafka.") else "option of the data source"
        raise OptionError(f"{name!r} is not a known {what}{hint}")


def _client(options: Mapping[str, str]) -> ClientConfig:
    servers = options.get("kafka.bootstrap.servers", "")
    if not servers.strip():
        raise OptionError("option 'kafka.bootstrap.servers' is required")
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise OptionError(f"option 'kafka.security.protocol': {protocol} is not supported, only PLAINTEXT")
    try:
        addresses = parse_bootstrap_servers(servers)
    except ValueError as error:
        raise OptionError(f"option 'kafka.{error}") from None
    defaults = ClientConfig(addresses)
    return ClientConfig(
        bootstrap_servers=addresses,
        client_id=options.get("kafka.client.id", "pykraft-spark"),
        request_timeout_ms=_positive(options, "kafka.request.timeout.ms") or defaults.request_timeout_ms,
        default_api_timeout_ms=(
            _positive(options, "kafka.default.api.timeout.ms") or defaults.default_api_timeout_ms
        ),
        retry_backoff_ms=_positive(options, "kafka.retry.backoff.ms") or defaults.retry_backoff_ms,
        retry_backoff_max_ms=_positive(options, "kafka.retry.backoff.max.ms")
        or defaults.retry_backoff_max_ms,
    )


def _fetch(options: Mapping[str, str]) -> FetchConfig:
    defaults = FetchConfig()
    levels = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
    level = options.get("kafka.isolation.level", "read_uncommitted").lower()
    if level not in levels:
        raise OptionError(f"option 'kafka.isolation.level': {level!r} is none of {', '.join(sorted(levels))}")
    return FetchConfig(
        max_wait_ms=_positive(options, "kafka.fetch.max.wait.ms") or defaults.max_wait_ms,
        min_bytes=_positive(options, "kafka.fetch.min.bytes") or defaults.min_bytes,
        max_bytes=_positive(options, "kafka.fetch.max.bytes") or defaults.max_bytes,
        max_partition_fetch_bytes=(
            _positive(options, "kafka.max.partition.fetch.bytes") or defaults.max_partition_fetch_bytes
        ),
        isolation_level=levels[level],
        rack=options.get("kafka.client.rack", ""),
        check_crcs=False,  # records are checked where they are decoded
    )


def _source(options: Mapping[str, str]) -> Assign | Subscribe | SubscribePattern:
    given = [name for name in ("assign", "subscribe", "subscribePattern") if name.lower() in options]
    if len(given) != 1:
        raise OptionError(
            "exactly one of the options 'assign', 'subscribe' and 'subscribePattern' must be given, "
            + (f"not {' and '.join(given)}" if given else "none is given")
        )
    text = options[given[0].lower()].strip()
    if not text:
        raise OptionError(f"option {given[0]!r} is empty")
    if given[0] == "assign":
        return Assign(_parsed("assign", parse_assignment, text))
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise OptionError("option 'subscribe' names no topic")
        return Subscribe(topics)
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(f"option 'subscribePattern' is not a regular expression: {error}") from None
    return SubscribePattern(text)


def _starting(options: Mapping[str, str]) -> OffsetSpec:
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError("option 'startingOffsetsByTimestampStrategy' is 'error' or 'latest'")
    by_time = _by_timestamp(options, "startingTimestamp", "startingOffsetsByTimestamp", strategy == "latest")
    if by_time is not None:
        return by_time
    spec = _offsets(options, "startingOffsets", EARLIEST)
    _refuse(spec, LATEST, "startingOffsets", "latest", "a batch read that starts at the end reads nothing")
    return spec


def _ending(options: Mapping[str, str]) -> OffsetSpec:
    by_time = _by_timestamp(options, "endingTimestamp", "endingOffsetsByTimestamp", True)
    if by_time is not None:
        return by_time
    spec = _offsets(options, "endingOffsets", LATEST)
    _refuse(spec, EARLIEST, "endingOffsets", "earliest", "a batch read that ends at the start reads nothing")
    return spec


def _by_timestamp(
    options: Mapping[str, str], one: str, many: str, latest_if_none: bool
) -> ByTimestamp | None:
    """The global timestamp takes precedence over the one by partition, and both over offsets."""
    if one.lower() in options:
        return ByTimestamp(_whole(options, one), {}, latest_if_none)
    if many.lower() in options:
        return ByTimestamp(None, _parsed(many, parse_timestamps, options[many.lower()]), latest_if_none)
    return None


def _offsets(options: Mapping[str, str], name: str, default: int) -> OffsetSpec:
    text = options.get(name.lower())
    return Everywhere(default) if text is None else _parsed(name, parse_offsets, text)


def _refuse(spec: OffsetSpec, sentinel: int, name: str, word: str, why: str) -> None:
    if isinstance(spec, Everywhere) and spec.position == sentinel:
        raise OptionError(f"option {name!r} cannot be {word!r}: {why}")
    if isinstance(spec, PerPartition) and sentinel in spec.positions.values():
        raise OptionError(f"option {name!r} cannot hold {sentinel} ({word}): {why}")


def _parsed(name: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise OptionError(f"option {name!r}: {error}") from None


def _whole(options: Mapping[str, str], name: str) -> int:
    text = options[name.lower()].strip()
    if not text.isascii() or not text.isdigit():
        raise OptionError(f"option {name!r} is not a whole number of 0 or more: {text!r}")
    return int(text)


def _positive(options: Mapping[str, str], name: str) -> int | None:
    if name.lower() not in options:
        return None
    value = _whole(options, name)
    if value == 0:
        raise OptionError(f"option {name!r} must be at least 1")
    return value


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"option {name!r} is 'true' or 'false', not {text!r}")
    return text.lower() == "true"
