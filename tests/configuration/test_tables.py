"""The tables of keys: consistent in themselves, and with Kafka 4.3's definitions of its own keys."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from pykraft.broker.config import BrokerConfig
from pykraft.broker.serving.listener import ListenerLimits
from pykraft.compiled import form
from pykraft.configuration.client_metrics_keys import CLIENT_METRICS_KEYS
from pykraft.configuration.group_keys import GROUP_KEYS
from pykraft.configuration.kafka_keys import INTERNAL_NAMES, STATIC_KEYS, STORED_KEYS, THROTTLE_KEYS
from pykraft.configuration.keys import ConfigError, ConfigKey, format_value
from pykraft.configuration.server_keys import (
    DYNAMIC_KEYS,
    READ_KEYS,
    SERVER_KEYS,
    SYNONYM_KEYS,
    TOPIC_DEFAULT_KEYS,
    topic_defaults,
)
from pykraft.configuration.topic_keys import TOPIC_KEYS
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.log_store.interface import LogConfig
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.snapshot_schedule import SnapshotConfig
from pykraft.quorum.core.config import QuorumConfig

SETTINGS = (
    BrokerConfig,
    ControllerConfig,
    GroupConfig,
    ListenerLimits,
    LogConfig,
    QuorumConfig,
    SnapshotConfig,
)
SERVER_TABLES = (READ_KEYS, TOPIC_DEFAULT_KEYS, SYNONYM_KEYS, STORED_KEYS, STATIC_KEYS, THROTTLE_KEYS)
KAFKA_KEYS = (Path(__file__).parent / "kafka_4_3_keys.tsv").read_text("utf-8").splitlines()
"""Table, name, type, update mode and default of every public key, as Kafka's own definitions print them."""

DEPARTURES = {
    "group.coordinator.rebalance.protocols": "streams groups are not served",
    "listener.security.protocol.map": "the default depends on the names of the listeners",
    "listeners": "the default depends on the role",
    "metadata.max.idle.interval.ms": "leases write the records that are needed",
}


def test_no_server_property_is_in_two_tables() -> None:
    times = Counter(name for names in (*SERVER_TABLES, INTERNAL_NAMES) for name in names)
    assert [name for name, count in times.items() if count > 1] == []


@pytest.mark.parametrize(
    "keys", [SERVER_KEYS, DYNAMIC_KEYS, TOPIC_KEYS, GROUP_KEYS, CLIENT_METRICS_KEYS], ids=lambda keys: ""
)
def test_every_default_is_a_value_that_its_own_key_accepts(keys: Mapping[str, ConfigKey]) -> None:
    for name, key in keys.items():
        assert key.name == name and key.documentation
        if key.default is not None:
            assert key.parse(format_value(key.default_value)) == key.default_value


@pytest.mark.parametrize("line", KAFKA_KEYS, ids=lambda line: "-".join(line.split("\t")[:2]))
def test_type_default_and_update_mode_are_those_of_kafka(line: str) -> None:
    table, name, kind, mode, default = (*line.split("\t"), "")[:5]
    key = (SERVER_KEYS if table == "server" else TOPIC_KEYS)[name]
    if name in DEPARTURES:
        return
    assert (key.type.name.lower(), key.default or "") == (kind, default)
    assert not key.is_dynamic or key.update_mode.value == mode, "no key is dynamic here but not in Kafka"


@pytest.mark.skipif(form() == "compiled", reason="a compiled class does not keep the types of its fields")
@pytest.mark.parametrize("settings", SETTINGS)
def test_every_setting_has_the_type_that_is_read_from_its_key(settings: Any) -> None:
    hints = get_type_hints(settings)
    read = [one for one in fields(settings) if "key" in one.metadata]
    assert read
    for one in read:
        hint = hints[one.name]
        kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        assert type(one.default) in {get_origin(kind) or kind for kind in kinds}, one.name


def test_settings_are_read_from_values_and_converted() -> None:
    tables: list[Mapping[str, ConfigKey]] = [READ_KEYS, TOPIC_KEYS]
    values = {name: key.default_value for table in tables for name, key in table.items()}
    values |= {
        "offsets.retention.minutes": 2,
        "cleanup.policy": ("compact",),
        "flush.ms": 5,
        "broker.rack": "r",
    }
    assert GroupConfig.from_properties(values).offsets_retention_ms == 120_000
    log = LogConfig.from_properties(values)
    assert (log.cleanup_policy, log.flush_messages, log.flush_ms) == (frozenset({"compact"}), None, 5)
    assert ControllerConfig.from_properties(values) == ControllerConfig()
    own: dict[str, Any] = {"node_id": 1, "cluster_id": "c", "log_dirs": ("/d",), "listeners": ()}
    assert BrokerConfig.from_properties(values, **own) == BrokerConfig(**own, rack="r")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"log.retention.hours": "2"}, {"retention.ms": "7200000"}),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, {"retention.ms": "180000"}),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, {"retention.ms": "4"}),
        ({"log.retention.hours": "-1"}, {"retention.ms": "-1"}),
        ({"log.roll.hours": "1"}, {"segment.ms": "3600000"}),
        ({"log.roll.jitter.hours": "0"}, {"segment.jitter.ms": "0"}),
        ({"log.flush.scheduler.interval.ms": "100"}, {"flush.ms": "100"}),
        ({"node.id": "1"}, {}),
    ],
)
def test_coarser_unit_applies_if_no_finer_one_is_given(
    given: dict[str, str], expected: dict[str, str]
) -> None:
    assert topic_defaults(given) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("log.roll.hours", "0"),
        ("log.roll.jitter.hours", "-1"),
        ("log.retention.minutes", "long"),
        ("log.flush.scheduler.interval.ms", "-1"),
    ],
)
def test_coarser_unit_is_refused_under_its_own_name(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{text} for configuration {name}: "):
        topic_defaults({name: text})


def test_values_that_contradict_each_other_are_refused() -> None:
    lags = {"log.cleaner.min.compaction.lag.ms": "6", "log.cleaner.max.compaction.lag.ms": "5"}
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms \(6\) must not be greater"):
        topic_defaults(lags)
