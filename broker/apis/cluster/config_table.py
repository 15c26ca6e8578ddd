"""The configurations of one kind of resource, encoded as in DescribeConfigs answers: once for all resources.

Of ten thousand topics most have a value of their own for few of their keys. The others are the same bytes for
all topics, in runs between those that differ, so that an answer takes the memory of what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import dropwhile, takewhile
from typing import Final

from pykraft.configuration.keys import ConfigKey
from pykraft.configuration.server_keys import in_its_unit
from pykraft.configuration.topic_keys import TopicKey
from pykraft.kafka_protocol.codec.schema import EncodedRuns
from pykraft.kafka_protocol.enums import ConfigResourceType, ConfigSource
from pykraft.kafka_protocol.messages.configs import DescribeConfigsResourceResult, DescribeConfigsSynonym

Layer = tuple[str, str, ConfigSource]
"""(name, value, source): one place where a value is given."""

OWN_SOURCE: Final[Mapping[ConfigResourceType, ConfigSource]] = {
    ConfigResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigResourceType.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
    ConfigResourceType.CLIENT_METRICS: ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG,
}
"""Where the values come from that a resource has of its own."""


class ConfigTable:
    """The keys of one kind of resource, in the order in which they are described."""

    def __init__(self, own: ConfigSource, encode: Callable[[DescribeConfigsResourceResult], bytes]) -> None:
        """``own``: the source of values that a resource has of its own."""
        self._own = own
        self._encode = encode
        self._keys: list[tuple[ConfigKey, Sequence[Layer]]] = []
        self._places: dict[str, int] = {}
        self._usual: list[bytes] = []
        """Each key as it is described where the resource has no value; empty for one that is not shown."""
        self._runs: dict[tuple[int, int], bytes] = {}

    def add(self, key: ConfigKey, layers: Sequence[Layer]) -> None:
        """``layers``: where the value is given of a resource that has none, the first in effect."""
        self._places[key.name] = len(self._keys)
        self._keys.append((key, layers))
        is_shown = not (isinstance(key, TopicKey) and key.is_internal)
        usual = self._encode(described_config(key, layers, read_only=False)) if is_shown else b""
        self._usual.append(usual)

    def configs(self, own: Mapping[str, str], wanted: Collection[str]) -> EncodedRuns:
        """The configurations of a resource with these values; all, or those that are ``wanted``."""
        if wanted:
            places = (place for name, place in self._places.items() if name in wanted)
            entries = [entry for entry in (self._entry(place, own) for place in places) if entry]
            return EncodedRuns(entries, len(entries))
        pieces: list[bytes] = []
        count = sum(map(bool, self._usual))
        start = 0
        for place in self._in_order(own):
            pieces += self._run(start, place)
            pieces.append(self._entry(place, own))
            count += not self._usual[place]
            start = place + 1
        pieces += self._run(start, len(self._keys))
        return EncodedRuns(pieces, count)

    def _in_order(self, names: Collection[str]) -> list[int]:
        return sorted(self._places[name] for name in names if name in self._places)

    def _entry(self, place: int, own: Mapping[str, str]) -> bytes:
        key, layers = self._keys[place]
        value = own.get(key.name)
        if value is None:
            return self._usual[place]
        return self._encode(described_config(key, [(key.name, value, self._own), *layers], read_only=False))

    def _run(self, start: int, stop: int) -> Sequence[bytes]:
        """Return the usual bytes of a range: one piece, or none."""
        run = self._runs.get((start, stop))
        if run is None:
            run = self._runs[start, stop] = b"".join(self._usual[start:stop])
        return (run,) if run else ()


def described_config(
    key: ConfigKey, layers: Sequence[Layer], *, read_only: bool
) -> DescribeConfigsResourceResult:
    """One configuration with the places where its value is given, the one that takes effect first."""
    value, source = key.default, ConfigSource.DEFAULT_CONFIG
    if layers:
        name, value, source = layers[0]
        if name != key.name:
            value = in_its_unit(name, value)
    return DescribeConfigsResourceResult(
        name=key.name,
        value=None if key.is_sensitive else value,
        read_only=read_only,
        config_source=source,
        is_sensitive=key.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=name, value=None if key.is_sensitive else text, source=origin)
            for name, text, origin in _listed(key, layers)
        ],
        config_type=key.type.value,
        documentation=key.documentation,
    )


def _listed(key: ConfigKey, layers: Sequence[Layer]) -> Sequence[Layer]:
    """As Kafka lists them: a value in another unit (``log.retention.hours``) only after its property."""
    given_as = getattr(key, "server_property", None) or key.name
    own = list(takewhile(lambda layer: layer[0] == key.name != given_as, layers))
    return [*own, *dropwhile(lambda layer: layer[0] != given_as, layers[len(own) :])]
