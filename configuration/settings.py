"""Typed settings of one part of a node: dataclasses whose fields are read from configuration keys.

    @dataclass(frozen=True, slots=True)
    class FetchSettings(Settings):
        max_bytes: int = setting("fetch.max.bytes")

A field has the key's default; fields without a key may be added as in any dataclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from typing import Any, Final, Self

from pykraft.configuration.keys import ConfigKey, ConfigValue
from pykraft.configuration.server_keys import READ_KEYS
from pykraft.configuration.topic_keys import TOPIC_KEYS

_KEYS: Final[Mapping[str, ConfigKey]] = {**TOPIC_KEYS, **READ_KEYS}


def setting(name: str, convert: Callable[[Any], Any] | None = None) -> Any:
    """A field that is read from the server property or topic configuration ``name``.

    ``convert`` turns the key's value into the field's, if they differ (another unit, another collection).
    """
    key = _KEYS[name]
    default = key.default_value
    metadata = {"key": key, "convert": convert}
    return field(default=convert(default) if convert else default, metadata=metadata)


def from_seconds(seconds: int) -> int:
    """In milliseconds."""
    return 1000 * seconds


def from_minutes(minutes: int) -> int:
    """In milliseconds."""
    return 60_000 * minutes


class Settings:
    """Base of such dataclasses."""

    __slots__ = ()

    @classmethod
    def from_properties(cls, values: Mapping[str, ConfigValue], **others: Any) -> Self:
        """The settings from typed ``values`` by key; ``others`` are the fields without a key."""
        kind: Any = cls  # a dataclass
        for one in fields(kind):
            if "key" in one.metadata:
                value, convert = values[one.metadata["key"].name], one.metadata["convert"]
                others[one.name] = convert(value) if convert else value
        return cls(**others)

    def with_texts(self, given: Mapping[str, str]) -> Self:
        """These settings, with other values for the keys in ``given``; keys of other settings are ignored."""
        changes: dict[str, Any] = {}
        settings: Any = self
        for one in fields(settings):
            key = one.metadata.get("key")
            if key is not None and key.name in given:
                value, convert = key.parse(given[key.name]), one.metadata["convert"]
                changes[one.name] = convert(value) if convert else value
        changed: Self = replace(settings, **changes)
        return changed
