"""A configuration key: a row of a table, and the way it parses the text of a value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum
from functools import lru_cache, partial
from typing import Final, TypeVar

from pykraft.lazy_dataclass import dataclass

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_LONGEST_SHOWN: Final = 100
_MOST_COMPARED: Final = 3


class ConfigError(ValueError):
    """A configuration that cannot be used; the message names the key and what is allowed."""


class ConfigType(Enum):
    """How the text of a value is parsed. The number is Kafka's wire value (DescribeConfigs)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, CLASS, PASSWORD = ConfigType
"""Short names for the tables, which have one key per line."""

_INTEGER_BITS: Final = {INT: 32, SHORT: 16, LONG: 64}


class UpdateMode(Enum):
    """When a server property may change, in Kafka's words (KIP-226)."""

    READ_ONLY = "read-only"
    """Only in the properties file, which is read when a node starts."""
    PER_BROKER = "per-broker"
    """Also while brokers run, for each broker separately."""
    CLUSTER_WIDE = "cluster-wide"
    """Also while brokers run, for one broker or for all."""


ConfigValue = bool | int | float | str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Validator:
    """``allowed`` describes valid values in Kafka's words; ``objection`` returns what is wrong, or None."""

    allowed: str
    objection: Callable[[ConfigValue], str | None]


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. ``default`` is text (None: there is none)."""

    name: str
    type: ConfigType
    default: str | None
    documentation: str
    validator: Validator | None = None
    update_mode: UpdateMode = field(default=UpdateMode.READ_ONLY, kw_only=True)

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must not be shown."""
        return self.type is PASSWORD

    @property
    def is_dynamic(self) -> bool:
        """Whether the value of a server property can be changed while brokers run."""
        return self.update_mode is not UpdateMode.READ_ONLY

    @property
    def default_value(self) -> ConfigValue:
        """The default, typed."""
        return None if self.default is None else self.parse(self.default)

    def parse(self, text: str) -> ConfigValue:
        """The typed value. Raises :class:`ConfigError` that names the key if the value is not allowed."""
        value = _parse_value(self.name, self.type, text.strip())
        objection = None if self.validator is None else self.validator.objection(value)
        if objection is not None:
            raise _invalid(self.name, text, objection)
        return value

    def objection_to(self, text: str) -> str | None:
        """Why a value is not allowed; None if it is."""
        try:
            self.parse(text)
        except ConfigError as error:
            return str(error)
        return None


dynamic_key: Final = partial(ConfigKey, update_mode=UpdateMode.CLUSTER_WIDE)

Key = TypeVar("Key", bound=ConfigKey)


def split_list(text: str) -> tuple[str, ...]:
    """The entries of a list."""
    return tuple(filter(None, map(str.strip, text.split(","))))


def table(*keys: Key) -> Mapping[str, Key]:
    """The keys by name."""
    return {key.name: key for key in keys}


def at_least(minimum: int) -> Validator:
    """A number not below ``minimum``."""

    def objection(value: ConfigValue) -> str | None:
        assert isinstance(value, int | float)
        return None if value >= minimum else f"Value must be at least {minimum}"

    return Validator(f"[{minimum},...]", objection)


def between(minimum: float, maximum: float) -> Validator:
    """A number not below ``minimum`` and not above ``maximum``."""

    def objection(value: ConfigValue) -> str | None:
        assert isinstance(value, int | float)
        return None if minimum <= value <= maximum else f"Value must be between {minimum} and {maximum}"

    return Validator(f"[{minimum},...,{maximum}]", objection)


def one_of(*allowed: str, any_case: bool = False) -> Validator:
    """A string, or every element of a list, among ``allowed``; with ``any_case`` in upper or lower case."""

    def objection(value: ConfigValue) -> str | None:
        given = value if isinstance(value, tuple) else (value,)
        if any_case:
            given = tuple(str(item).lower() for item in given)
        if not all(item in allowed for item in given):
            return f"must be one of {', '.join(allowed)}"
        return None if len(set(given)) == len(given) else "values must not be duplicated"

    return Validator(f"[{', '.join(allowed)}]", objection)


def resolve(keys: Mapping[str, ConfigKey], given: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Typed values of all ``keys``: the given value or the default. Keys not in the table are ignored."""
    return {
        name: key.parse(given[name]) if name in given else key.default_value for name, key in keys.items()
    }


def format_value(value: ConfigValue) -> str:
    """The text that is parsed as ``value``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def nearest_key(name: str, known: Iterable[str]) -> str | None:
    """The known key that is most similar to ``name``, if there is one.

    Only those are compared that share most with it: a client may send many mistakes, and a comparison with
    hundreds of keys takes tens of milliseconds.
    """
    import difflib  # for a mistake only

    if len(name) > _LONGEST_SHOWN:
        return None
    keys_by_part, shared = _keys_by_part(frozenset(known)), Counter[str]()
    for part in _parts(name):
        shared.update(keys_by_part.get(part, ()))
    candidates = sorted(shared, key=lambda key: (-shared[key] / (len(key) + len(name)), key))[:_MOST_COMPARED]
    matches = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    return matches[0] if matches else None


def _parts(name: str) -> set[str]:
    return {name[start : start + 3] for start in range(len(name) - 2)}


@lru_cache(maxsize=16)
def _keys_by_part(known: frozenset[str]) -> dict[str, list[str]]:
    keys: dict[str, list[str]] = {}
    for key in sorted(known):
        for part in _parts(key):
            keys.setdefault(part, []).append(key)
    return keys


def unknown_key_message(name: str, known: Iterable[str], names_elsewhere: Mapping[str, str]) -> str:
    """The error message for a key that does not exist.

    ``names_elsewhere`` maps a known key to its name here (as a topic configuration to its server property);
    such a name is suggested before any similar one.
    """
    nearest = names_elsewhere.get(name) or nearest_key(name, known)
    hint = f"; did you mean {nearest}?" if nearest else ""
    return f"Unknown configuration {name}{hint}"


def _invalid(name: str, text: str, reason: str) -> ConfigError:
    shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    return ConfigError(f"Invalid value {shown} for configuration {name}: {reason}")


def _parse_value(name: str, kind: ConfigType, text: str) -> ConfigValue:
    match kind:
        case ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise _invalid(name, text, "must be true or false")
            return text.lower() == "true"
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            bits = _INTEGER_BITS[kind]
            # int() alone would take underscores and other scripts' digits.
            if _WHOLE_NUMBER.fullmatch(text) is None:
                raise _invalid(name, text, "not a number")
            number = int(text)
            if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
                raise _invalid(name, text, f"not a {bits}-bit number")
            return number
        case ConfigType.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise _invalid(name, text, "not a number") from None
        case ConfigType.LIST:
            return split_list(text)
        case _:
            return text
