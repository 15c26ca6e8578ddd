"""Configurations of client metrics subscriptions (KIP-714, resource type CLIENT_METRICS).

They are stored and described. Metrics are not collected yet, so clients do not receive the subscriptions; the
patterns in ``match`` are in Java's syntax and are not checked.
"""

from __future__ import annotations

from typing import Final

from pykraft.configuration.keys import INT, LIST, ConfigKey, ConfigValue, Validator, between, table

_MATCHED: Final = (
    *("client_instance_id", "client_id", "client_software_name", "client_software_version"),
    *("client_source_address", "client_source_port"),
)


def _object_to_match(value: ConfigValue) -> str | None:
    assert isinstance(value, tuple)
    for item in value:
        name, _, pattern = item.partition("=")
        if name.strip() not in _MATCHED or not pattern.strip() or "=" in pattern:
            return f"must be a list of name=pattern, where a name is one of {', '.join(_MATCHED)}"
    return None


_MATCH: Final = Validator(f"name=pattern, name in [{', '.join(_MATCHED)}]", _object_to_match)

CLIENT_METRICS_KEYS: Final = table(
    ConfigKey("interval.ms", INT, "300000", "How often clients push the metrics.", between(100, 3_600_000)),
    ConfigKey("match", LIST, "", "Which clients push: name=pattern pairs, all of which must match.", _MATCH),
    ConfigKey("metrics", LIST, "", "Prefixes of the names of the metrics to push; * for all."),
)  # fmt: skip
