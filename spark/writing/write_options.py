"""The options of writes: names of Spark's Kafka sink, those of deliveries, and Kafka's of producers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.producer.batch import ProducerConfig
from pykraft.kafka_protocol.compression import Compression
from pykraft.spark.option_values import OptionError, positive, whole
from pykraft.spark.options import by_lower_name, check_names, client_config, named
from pykraft.spark.settings import (
    BATCH_OPTIONS,
    IGNORED_PRODUCER_SETTINGS,
    MAPPED_PRODUCER_SETTINGS,
    READ_OPTIONS,
    STREAM_OPTIONS,
    WRITE_OPTIONS,
)

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE: Final = "exactly_once"

_BATCH_BYTES: Final = 256 * 1024
"""A task writes as fast as it can: Kafka's default, 16 KiB, is for programs that send now and then."""
_TRANSACTION_MS: Final = 900_000
"""The most that brokers allow unless they are configured otherwise: a task is one transaction."""

_SPARKS_OWN: Final = ("includeHeaders", "checkpointLocation", "queryName")
"""Options of every query, or without effect, as in Spark's Kafka sink."""

_ELSEWHERE: Final = named((*READ_OPTIONS, *BATCH_OPTIONS, *STREAM_OPTIONS), "reads")
_ID: Final = re.compile(r"[\w.-]+")
_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Checked. ``topic``: of rows that name none. ``job_id``: of an exactly-once batch write."""

    client: ClientConfig
    producer: ProducerConfig
    topic: str | None
    is_exactly_once: bool
    id_prefix: str
    job_id: str | None
    transaction_timeout_ms: int


def parse_write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Check the options of ``write`` and ``writeStream``; :class:`OptionError` for the first error."""
    options = by_lower_name(raw)
    settings = (*MAPPED_PRODUCER_SETTINGS, *IGNORED_PRODUCER_SETTINGS)
    check_names(options, (*WRITE_OPTIONS, *_SPARKS_OWN, *settings), _ELSEWHERE)
    guarantee = options.get("deliveryguarantee", AT_LEAST_ONCE).lower()
    if guarantee not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise OptionError(
            f"option 'deliveryGuarantee' is {AT_LEAST_ONCE!r} or {EXACTLY_ONCE!r}, not {guarantee!r}"
        )
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise OptionError("option 'topic' is empty")
    return WriteOptions(
        client=client_config(options),
        producer=_producer(options, is_exactly_once=guarantee == EXACTLY_ONCE),
        topic=topic,
        is_exactly_once=guarantee == EXACTLY_ONCE,
        id_prefix=_identifier(options, "transactionalIdPrefix") or "pykraft-spark",
        job_id=_identifier(options, "jobId"),
        transaction_timeout_ms=positive(options, "kafka.transaction.timeout.ms") or _TRANSACTION_MS,
    )


def _identifier(options: Mapping[str, str], name: str) -> str | None:
    text = options.get(name.lower())
    if text is not None and _ID.fullmatch(text) is None:
        raise OptionError(f"option {name!r} may have letters, digits, '.', '_' and '-', not {text!r}")
    return text


def _producer(options: Mapping[str, str], *, is_exactly_once: bool) -> ProducerConfig:
    defaults = ProducerConfig()
    acks = options.get("kafka.acks", "all").lower()
    if acks not in _ACKS:
        raise OptionError(f"option 'kafka.acks' is 'all', '1' or '0', not {acks!r}")
    if is_exactly_once and _ACKS[acks] != -1:
        raise OptionError(f"option 'kafka.acks': deliveryGuarantee {EXACTLY_ONCE!r} needs 'all'")
    codec = options.get("kafka.compression.type", "none").upper()
    if codec not in Compression.__members__:
        known = ", ".join(one.name.lower() for one in Compression)
        raise OptionError(f"option 'kafka.compression.type': {codec.lower()!r} is none of {known}")
    linger_ms = whole(options, "kafka.linger.ms") if "kafka.linger.ms" in options else defaults.linger_ms
    return ProducerConfig(
        acks=_ACKS[acks],
        enable_idempotence=_ACKS[acks] == -1,
        linger_ms=linger_ms,
        batch_size_bytes=positive(options, "kafka.batch.size") or _BATCH_BYTES,
        buffer_memory_bytes=positive(options, "kafka.buffer.memory") or defaults.buffer_memory_bytes,
        max_request_size_bytes=(
            positive(options, "kafka.max.request.size") or defaults.max_request_size_bytes
        ),
        delivery_timeout_ms=positive(options, "kafka.delivery.timeout.ms") or defaults.delivery_timeout_ms,
        max_block_ms=positive(options, "kafka.max.block.ms") or defaults.max_block_ms,
        compression=Compression[codec],
    )
