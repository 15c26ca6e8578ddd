"""Writing one record, where ``pykraft.http.console`` allows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, NamedTuple, Self

from pykraft.kafka_client.admin.client import Admin
from pykraft.kafka_client.aio import AsyncioNetwork
from pykraft.kafka_client.producer.producer import Producer, ProducerConfig, RecordMetadata
from pykraft.lazy_dataclass import dataclass
from pykraft.node.web.console.cluster_calls import CallLimits
from pykraft.node.web.console.page import Facts, NotFoundError, found
from pykraft.node.web.console.parameters import BadParameterError, Parameters
from pykraft.node.web.console.topic_pages import topic_in

_MOST_PARTITION: Final = (1 << 31) - 1
_MOST_DATA: Final = 1 << 20
_MOST_HEADERS: Final = 16_384
_KINDS: Final = ("text", "hex", "null")


class NewRecord(NamedTuple):
    """``partition`` None: by the key, or any."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ProducePage:
    """The form."""

    TEMPLATE: ClassVar[str] = "produce.html"
    TAB: ClassVar[str] = "/console/topics"
    topic: str

    @classmethod
    def parse(cls, parameters: Parameters, path: Mapping[str, str]) -> Self:
        return cls(topic_in(path))

    async def load(self, admin: Admin, limits: CallLimits) -> Facts:
        partitions = await _writable(admin, self.topic)
        return {"topic": self.topic, "partitions": len(partitions), "entered": {}, "problem": ""}

    def again(self, form: Parameters, problem: str) -> Facts:
        """The form as it was filled in, and what was wrong with it."""
        return {"topic": self.topic, "partitions": None, "entered": form.given, "problem": problem}


def parse_record(form: Parameters, path: Mapping[str, str]) -> NewRecord:
    """Read the form; an empty key is none. :class:`BadParameterError`."""
    return NewRecord(
        topic_in(path),
        form.optional_number("partition", _MOST_PARTITION),
        _data(form, "key") or None,
        _data(form, "value"),
        _headers(form.text("headers", _MOST_HEADERS)),
    )


async def write(admin: Admin, limits: CallLimits, record: NewRecord, now_ms: int) -> RecordMetadata:
    """Acknowledged by all replicas in sync. ``now_ms``: the time of day.

    :class:`~pykraft.kafka_client.errors.ProduceError` says whether it may have been written.
    """
    partitions = await _writable(admin, record.topic)
    if record.partition is not None and record.partition not in partitions:
        raise NotFoundError(f"There is no partition {record.partition} of topic {record.topic}.")
    config = ProducerConfig(
        linger_ms=0,
        max_block_ms=limits.request_ms,
        delivery_timeout_ms=limits.request_ms,
        max_request_size_bytes=4 * _MOST_DATA,
    )
    # Each record has a producer of its own, so that partitions would not take turns.
    producer = Producer(AsyncioNetwork(), admin.cluster.config, config, pick=lambda count: now_ms % count)
    try:
        return await producer.send(*record, now_ms)
    finally:
        await producer.close(0)


async def _writable(admin: Admin, name: str) -> list[int]:
    """The partitions of a topic. What brokers keep in topics of their own is not written by hand."""
    by = admin.cluster.deadline()
    (topic,) = await found(admin.cluster.topics([name], by), f"topic {name}")
    if topic.is_internal:
        raise BadParameterError(f"{name} is an internal topic: only brokers write to it")
    return sorted(topic.partitions)


def _data(form: Parameters, name: str) -> bytes | None:
    kind = form.choice(f"{name}_kind", _KINDS, "text")
    text = form.text(name, _MOST_DATA)
    if kind == "null":
        if text:
            raise BadParameterError(f"{name} must be empty to be null")
        return None
    if kind == "hex":
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise BadParameterError(f"{name} is not hex: write two digits for each byte") from None
    # Browsers end the lines of a form with two characters, whatever was entered.
    return text.replace("\r\n", "\n").encode("utf-8", "replace")


def _headers(text: str) -> tuple[tuple[str, bytes], ...]:
    headers = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise BadParameterError(f"line {number} of headers is not NAME: VALUE")
        headers.append((name.strip(), value.strip().encode("utf-8", "replace")))
    return tuple(headers)
