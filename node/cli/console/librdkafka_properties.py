"""Properties of Kafka's Java clients as settings of librdkafka, so that files written for Kafka's tools work here.

Most have the same names and values. What only librdkafka knows passes through, and so does what neither knows:
librdkafka refuses it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from pykraft.configuration.keys import LONG, ConfigError, ConfigKey, at_least
from pykraft.node.cli.shared.client_properties import SERIALIZATION

JAVA_DEFAULTS: Final = {"allow.auto.create.topics": "true", "isolation.level": "read_uncommitted"}
"""Defaults of a consumer, where librdkafka has others."""


class Translated(NamedTuple):
    """``settings`` for librdkafka, and the names of the properties that change nothing here."""

    settings: dict[str, str]
    without_effect: tuple[str, ...]


def translated(given: Mapping[str, str]) -> Translated:
    """:class:`ConfigError` for a value that has no counterpart."""
    settings: dict[str, str] = {}
    ignored: list[str] = []
    for name, value in given.items():
        if name in _WITHOUT_EFFECT:
            ignored.append(name)
        elif name not in SERIALIZATION:
            settings[_NAMES.get(name, name)] = _VALUES.get(name, str.strip)(value)
    return Translated(settings, tuple(ignored))


def class_name(text: str) -> str:
    """The last part of the name of a Java class: ``org.apache.kafka…RangeAssignor`` → ``RangeAssignor``."""
    return text.strip().replace("$", ".").rpartition(".")[2]


_NAMES: Final = {
    "buffer.memory": "queue.buffering.max.kbytes",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    # How long a record waits for a topic that is not known. The wait for room in the buffer is the tool's.
    "max.block.ms": "topic.metadata.propagation.max.ms",
    "max.request.size": "message.max.bytes",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}

_WITHOUT_EFFECT: Final = frozenset(
    """
    auto.include.jmx.reporter default.api.timeout.ms interceptor.classes max.poll.records metadata.max.idle.ms
    metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
    partitioner.ignore.keys socket.connection.setup.timeout.max.ms
    """.split()
)

_ASSIGNORS: Final = {
    "CooperativeStickyAssignor": "cooperative-sticky",
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
}


def number(name: str, value: str, least: int = 0) -> int:
    """The value of a property. :class:`ConfigError` unless it is an integer that is large enough."""
    parsed = ConfigKey(name, LONG, None, "", at_least(least)).parse(value)
    assert isinstance(parsed, int)
    return parsed


def _kibibytes(value: str) -> str:
    return str(-(-number("buffer.memory", value) // 1024))


def _buffer_size(name: str, value: str) -> str:
    """-1 is the system's choice, which librdkafka writes as 0."""
    return str(max(number(name, value, least=-1), 0))


def _reset_policy(value: str) -> str:
    return "error" if value.strip() == "none" else value.strip()


def _assignors(value: str) -> str:
    """Names, or Java's classes, of assignors."""
    names = []
    for item in value.split(","):
        name = class_name(item)
        if name.endswith("Assignor") and name not in _ASSIGNORS:
            known = ", ".join(_ASSIGNORS)
            raise ConfigError(f"partition.assignment.strategy: there is no {name} here, only {known}")
        names.append(_ASSIGNORS.get(name, item.strip()))
    return ",".join(names)


_VALUES: Final[Mapping[str, Callable[[str], str]]] = {
    "auto.offset.reset": _reset_policy,
    "buffer.memory": _kibibytes,
    "group.protocol": lambda value: value.strip().lower(),
    "partition.assignment.strategy": _assignors,
    "receive.buffer.bytes": partial(_buffer_size, "receive.buffer.bytes"),
    "send.buffer.bytes": partial(_buffer_size, "send.buffer.bytes"),
    "ssl.endpoint.identification.algorithm": lambda value: value.strip() or "none",
}
