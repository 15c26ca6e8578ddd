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
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.fetcher import FetchConfig
from pykraft.kafka_client.list_offsets import READ_COMMITTED, READ_UNCOMMITTED
from pykraft.kafka_client.network import parse_bootstrap_servers
from pykraft.spark.option_values import OptionError, boolean, duration_ms, parsed, positive, whole
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
    BATCH_OPTIONS,
    IGNORED_CLIENT_SETTINGS,
    MAPPED_CLIENT_SETTINGS,
    READ_OPTIONS,
    REFUSED_CLIENT_SETTINGS,
    SECURITY_PREFIXES,
    SECURITY_PROTOCOLS,
    STREAM_OPTIONS,
    UNUSED_OPTIONS,
    WRITE_OPTIONS,
)

_READS: Final = (*READ_OPTIONS, *UNUSED_OPTIONS, *MAPPED_CLIENT_SETTINGS, *IGNORED_CLIENT_SETTINGS)
_MAX_TRIGGER_DELAY_MS: Final = 15 * 60_000
_PLAINTEXT_ONLY: Final = "there is no TLS and no SASL yet, only listeners with PLAINTEXT can be reached"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The checked options that reads of both kinds share."""

    client: ClientConfig
    fetch: FetchConfig
    source: Assign | Subscribe | SubscribePattern
    starting: OffsetSpec
    include_headers: bool
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    check_crcs: bool
    poll_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReadOptions(ReadOptions):
    """Options of ``spark.read``."""

    ending: OffsetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReadOptions(ReadOptions):
    """Options of ``spark.readStream``. A micro-batch has at most ``max_offsets_per_trigger`` offsets; one
    that would have less than ``min_offsets_per_trigger`` waits, but not longer than ``max_trigger_delay_ms``.
    ``published_group``: the consumer group that shows how far the query is; None: none."""

    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    published_group: str | None


R = TypeVar("R", bound=ReadOptions)


def parse_batch_options(raw: Mapping[str, str]) -> BatchReadOptions:
    """Check the options of ``spark.read``; :class:`OptionError` for the first error."""
    options = by_lower_name(raw)
    check_names(options, (*_READS, *BATCH_OPTIONS), {**named(STREAM_OPTIONS, "streaming reads"), **_WRITES})
    starting = _starting(options, EARLIEST)
    _refuse(
        starting, LATEST, "startingOffsets", "latest", "a batch read that starts at the end reads nothing"
    )
    return _read_options(BatchReadOptions, options, starting, ending=_ending(options))


def parse_stream_options(raw: Mapping[str, str]) -> StreamReadOptions:
    """Check the options of ``spark.readStream``; :class:`OptionError` for the first error."""
    options = by_lower_name(raw)
    check_names(options, (*_READS, *STREAM_OPTIONS), {**named(BATCH_OPTIONS, "batch reads"), **_WRITES})
    least = positive(options, "minOffsetsPerTrigger")
    most = positive(options, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"option 'minOffsetsPerTrigger' ({least}) is greater than 'maxOffsetsPerTrigger' ({most})"
        )
    return _read_options(
        StreamReadOptions,
        options,
        _starting(options, LATEST),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=duration_ms(options, "maxTriggerDelay", _MAX_TRIGGER_DELAY_MS),
        published_group=_published_group(options),
    )


def _published_group(options: Mapping[str, str]) -> str | None:
    group_id = options.get("publishoffsetstogroup")
    if group_id is not None and not group_id.strip():
        raise OptionError("option 'publishOffsetsToGroup' names no group")
    return group_id


def includes_headers(raw: Mapping[str, str]) -> bool:
    """For reads of either kind: the schema is asked for before Spark says which it is."""
    return boolean(by_lower_name(raw), "includeHeaders", False)


def by_lower_name(raw: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): str(value) for name, value in raw.items()}


def _read_options(kind: type[R], options: Mapping[str, str], starting: OffsetSpec, **own: object) -> R:
    """``own``: the fields that only this kind has."""
    fields: dict[str, Any] = own
    return kind(
        client=client_config(options),
        fetch=_fetch(options),
        source=_source(options),
        starting=starting,
        include_headers=boolean(options, "includeHeaders", False),
        fail_on_data_loss=boolean(options, "failOnDataLoss", True),
        min_partitions=positive(options, "minPartitions"),
        max_records_per_partition=positive(options, "maxRecordsPerPartition"),
        check_crcs=boolean(options, "kafka.check.crcs", True),
        poll_timeout_ms=positive(options, "kafkaConsumer.pollTimeoutMs") or 120_000,
        **fields,
    )


def named(names: Collection[str], purpose: str) -> dict[str, str]:
    """Map options that do not apply here to what they are for, as :func:`check_names` takes it."""
    return {name.lower(): purpose for name in names}


_WRITES: Final = named(WRITE_OPTIONS, "writes")


def check_names(options: Mapping[str, str], own: Collection[str], elsewhere: Mapping[str, str]) -> None:
    """``own``: those that apply. ``elsewhere``: what others are for, by lower-case name."""
    known = {name.lower(): name for name in own}
    for name in sorted(options.keys() - known.keys()):
        if name in REFUSED_CLIENT_SETTINGS:
            raise OptionError(f"option {name!r} is not allowed: {REFUSED_CLIENT_SETTINGS[name]}")
        if name.startswith(SECURITY_PREFIXES):
            raise OptionError(f"option {name!r} is not supported: {_PLAINTEXT_ONLY}")
        if name in elsewhere:
            raise OptionError(f"option {name!r} applies to {elsewhere[name]} only")
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
        hint = f"; did you mean {known[near[0]]!r}?" if near else ""
        what = "setting of this client" if name.startswith("kafka.") else "option of the data source"
        raise OptionError(f"{name!r} is not a known {what}{hint}")


def client_config(options: Mapping[str, str]) -> ClientConfig:
    servers = options.get("kafka.bootstrap.servers", "")
    if not servers.strip():
        raise OptionError("option 'kafka.bootstrap.servers' is required")
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise OptionError(
            f"option 'kafka.security.protocol': {protocol!r} is none of {', '.join(SECURITY_PROTOCOLS)}"
        )
    if protocol != "PLAINTEXT":
        raise OptionError(f"option 'kafka.security.protocol': {protocol} is not supported: {_PLAINTEXT_ONLY}")
    try:
        addresses = parse_bootstrap_servers(servers)
    except ValueError as error:
        raise OptionError(f"option 'kafka.{error}") from None
    defaults = ClientConfig(addresses)
    return ClientConfig(
        bootstrap_servers=addresses,
        client_id=options.get("kafka.client.id", "pykraft-spark"),
        request_timeout_ms=positive(options, "kafka.request.timeout.ms") or defaults.request_timeout_ms,
        default_api_timeout_ms=(
            positive(options, "kafka.default.api.timeout.ms") or defaults.default_api_timeout_ms
        ),
        retry_backoff_ms=positive(options, "kafka.retry.backoff.ms") or defaults.retry_backoff_ms,
        retry_backoff_max_ms=positive(options, "kafka.retry.backoff.max.ms") or defaults.retry_backoff_max_ms,
    )


def _fetch(options: Mapping[str, str]) -> FetchConfig:
    defaults = FetchConfig()
    levels = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
    level = options.get("kafka.isolation.level", "read_uncommitted").lower()
    if level not in levels:
        raise OptionError(f"option 'kafka.isolation.level': {level!r} is none of {', '.join(sorted(levels))}")
    return FetchConfig(
        max_wait_ms=positive(options, "kafka.fetch.max.wait.ms") or defaults.max_wait_ms,
        min_bytes=positive(options, "kafka.fetch.min.bytes") or defaults.min_bytes,
        max_bytes=positive(options, "kafka.fetch.max.bytes") or defaults.max_bytes,
        max_partition_fetch_bytes=(
            positive(options, "kafka.max.partition.fetch.bytes") or defaults.max_partition_fetch_bytes
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
        return Assign(parsed("assign", parse_assignment, text))
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


def _starting(options: Mapping[str, str], default: int) -> OffsetSpec:
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError("option 'startingOffsetsByTimestampStrategy' is 'error' or 'latest'")
    by_time = _by_timestamp(options, "startingTimestamp", "startingOffsetsByTimestamp", strategy == "latest")
    if by_time is not None:
        return by_time
    return _offsets(options, "startingOffsets", default)


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
        return ByTimestamp(whole(options, one), {}, latest_if_none)
    if many.lower() in options:
        return ByTimestamp(None, parsed(many, parse_timestamps, options[many.lower()]), latest_if_none)
    return None


def _offsets(options: Mapping[str, str], name: str, default: int) -> OffsetSpec:
    text = options.get(name.lower())
    return Everywhere(default) if text is None else parsed(name, parse_offsets, text)


def _refuse(spec: OffsetSpec, sentinel: int, name: str, word: str, why: str) -> None:
    if isinstance(spec, Everywhere) and spec.position == sentinel:
        raise OptionError(f"option {name!r} cannot be {word!r}: {why}")
    if isinstance(spec, PerPartition) and sentinel in spec.positions.values():
        raise OptionError(f"option {name!r} cannot hold {sentinel} ({word}): {why}")
