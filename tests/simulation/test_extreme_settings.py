"""Every key of every resource at its legal extremes, with load: nothing ends, every log goes on, the data are
right.
"""

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Final

import pytest

from pykraft.configuration.client_metrics_keys import CLIENT_METRICS_KEYS
from pykraft.configuration.group_keys import GROUP_KEYS
from pykraft.configuration.keys import ConfigKey, ConfigType, UpdateMode
from pykraft.configuration.server_keys import (
    BROKER_KEYS,
    COORDINATOR_KEYS,
    DYNAMIC_KEYS,
    TOPIC_DEFAULT_KEYS,
    TRANSACTION_KEYS,
)
from pykraft.configuration.topic_keys import TOPIC_KEYS
from pykraft.kafka_client.results import ConfigChange, NewTopic
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.record_codec import Record
from tests.simulation.extreme_settings import LoneWorld, extremes, run

SMALL: Final = {"internal.segment.bytes": "400", "index.interval.bytes": "0"}
COMPACTED: Final = {**SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
DELETED: Final = {**SMALL, "cleanup.policy": "delete", "retention.bytes": "800"}
REFUSED: Final = {
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP,
}
"""What a topic may answer to the records of :func:`load`."""
EARLIEST_MS, LATEST_MS = -(1 << 63), (1 << 63) - 1


@pytest.fixture(autouse=True)
def _refused_settings_are_not_logged() -> None:
    logging.disable(logging.CRITICAL)


async def create(lone: LoneWorld, wanted: Mapping[str, Mapping[str, str]]) -> None:
    for created in await lone.admin.create_topics(
        [NewTopic(name, 1, 1, configs) for name, configs in wanted.items()]
    ):
        created.check()


async def load(lone: LoneWorld, topics: list[str], rounds: int) -> None:
    """Records of three keys and of any time, and tombstones of others, which nothing supersedes."""
    times = (lone.now_ms, EARLIEST_MS, 0, LATEST_MS, -1)
    for number in range(rounds):
        is_gone = number % 4 == 3 or number % 5 == 0
        key = b"gone-%d" % lone.now_ms if is_gone else b"k%d" % (number % 3)
        record = key, None if is_gone else b"%d" % number * 20, times[number % len(times)]
        await asyncio.gather(*(try_append(lone, topic, *record) for topic in topics))


async def try_append(lone: LoneWorld, topic: str, key: bytes, value: bytes | None, time_ms: int) -> None:
    try:
        await lone.append(topic, key, value, time_ms)
    except KafkaError as error:
        assert error.code in REFUSED, (topic, error)


async def check_records(lone: LoneWorld, topic: str, *, times: bool) -> None:
    """What is left is what was written, with its own ``times``, and all of it that no policy may remove."""
    config = lone.node.image.topic_config(topic)
    written = {offset: (key, value, time) for offset, key, value, time in lone.expected.get(topic, ())}
    found = await lone.read(topic)
    for one in found:
        key, value, time = written[one.offset]
        assert (one.key, one.value) == (key, value), topic
        is_own = times and config.get("message.timestamp.type") != "LogAppendTime"
        assert one.timestamp_ms == time or not is_own, topic
    log = lone.node.logs.logs[topic, 0].log
    assert log.log_end_offset == len(written), topic
    policy = config.get("cleanup.policy", "delete").split(",")
    if "compact" in policy:
        assert "delete" in policy or contents(found) == contents_of(written), topic
    if policy == ["delete"]:
        assert [one.offset for one in found] == [n for n in written if n >= log.log_start_offset], topic


def contents(found: list[Record]) -> dict[bytes | None, bytes | None]:
    newest = {one.key: one.value for one in found}
    return {key: value for key, value in newest.items() if value is not None}


def contents_of(
    written: Mapping[int, tuple[bytes | None, bytes | None, int]],
) -> dict[bytes | None, bytes | None]:
    newest = {key: value for key, value, _ in written.values()}
    return {key: value for key, value in newest.items() if value is not None}


async def check_all(lone: LoneWorld, topics: list[str], *, times: bool = True) -> None:
    logs = lone.data.logs
    assert not logs.dirs.offline and not logs.offline and not logs.work.failures
    assert lone.data.cleaner.uncleanable("/data") == 0
    for topic in topics:
        await check_records(lone, topic, times=times)


@pytest.mark.parametrize("base", [COMPACTED, DELETED], ids=["compacted", "deleted"])
def test_topics_with_extreme_settings_go_on(monkeypatch: pytest.MonkeyPatch, base: Mapping[str, str]) -> None:
    async def body(lone: LoneWorld) -> None:
        wanted = {}
        for key in TOPIC_KEYS.values():
            for number, value in enumerate(extremes(key)):
                configs = {**base, key.name: value}
                if key.name == "segment.bytes":
                    del configs["internal.segment.bytes"]
                wanted[f"{key.name}-{number}"] = configs
        for policy in ("compact", "delete", "compact,delete"):  # all that is a number, at its greatest
            wanted[f"all-{policy.replace(',', '-')}"] = {
                key.name: value
                for key in TOPIC_KEYS.values()
                if (value := [*extremes(key), ""][-2]) and value.lstrip("-").isdigit()
            } | {"internal.segment.bytes": "400", "max.message.bytes": "10000", "cleanup.policy": policy}
        topics = list(wanted)
        await create(lone, wanted)
        await load(lone, topics, 20)
        await lone.rest(30)
        await check_all(lone, topics)
        await lone.restart(power_loss=False)
        await load(lone, topics, 16)
        await lone.rest(30)
        await check_all(lone, topics)
        assert len(lone.expected) > 0.9 * len(topics)
        starts = sum(one.log.log_start_offset > 0 for one in lone.node.logs.logs.values())
        rounds = sum(one.log.cleaned_end_offset > 0 for one in lone.node.logs.logs.values())
        assert (rounds if base is COMPACTED else starts) > 0.8 * len(topics)

    run(monkeypatch, body)


async def change(
    lone: LoneWorld, resource: ConfigResourceType, name: str, key: str, value: str | None
) -> bool:
    """Set a key, or with None unset it; whether that was accepted."""
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    try:
        await lone.admin.alter_configs(resource, name, [ConfigChange(key, operation, value)])
    except KafkaError as error:
        assert error.code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST), (key, value, error)
        return False
    return True


WITHOUT_CLIENTS: Final = {"max.connections", "max.connections.per.ip", "max.connection.creation.rate"}
"""Of their least values no client is let in that could set another."""


def test_brokers_with_extreme_settings_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is set while the broker has load, and taken back."""

    async def body(lone: LoneWorld) -> None:
        topics = {"compacted": COMPACTED, "deleted": DELETED, "of the broker": {}}
        await create(lone, {name.replace(" ", "-"): configs for name, configs in topics.items()})
        names = [name.replace(" ", "-") for name in topics]
        accepted = 0
        for key in DYNAMIC_KEYS.values():
            for value in extremes(key):
                if key.name in WITHOUT_CLIENTS and int(value) < 100:
                    continue
                name = "1" if key.update_mode is UpdateMode.PER_BROKER else ""
                if await change(lone, ConfigResourceType.BROKER, name, key.name, value):
                    accepted += 1
                    await load(lone, names, 3)
                    await lone.rest(0.5)
                    before = "1" if key.name == "min.insync.replicas" else None  # this one can only be set
                    assert await change(lone, ConfigResourceType.BROKER, name, key.name, before)
        assert accepted > 150
        await load(lone, names, 12)
        await lone.rest(60)
        await check_all(lone, names, times=False)
        assert lone.data.logs.logs["compacted", 0].log.cleaned_end_offset > 100
        await lone.restart(power_loss=False)
        await check_all(lone, names, times=False)

    run(monkeypatch, body)


@pytest.mark.parametrize(
    ("resource", "keys"),
    [(ConfigResourceType.GROUP, GROUP_KEYS), (ConfigResourceType.CLIENT_METRICS, CLIENT_METRICS_KEYS)],
)
def test_groups_with_extreme_settings_go_on(
    monkeypatch: pytest.MonkeyPatch, resource: ConfigResourceType, keys: Mapping[str, ConfigKey]
) -> None:
    """Members join, read and commit meanwhile; a setting may keep them from it, but only while it is set."""

    async def body(lone: LoneWorld) -> None:
        await create(lone, {"t": {}})
        await load(lone, ["t"], 4)
        for key in keys.values():
            for value in extremes(key):
                if await change(lone, resource, "g", key.name, value):
                    await load(lone, ["t"], 2)
                    await lone.consume("t", len(lone.expected["t"]), 1)
                    assert await change(lone, resource, "g", key.name, None)
                    lone.check()
        await load(lone, ["t"], 4)
        assert await lone.consume("t", len(lone.expected["t"]), 120)
        await check_all(lone, ["t"])

    run(monkeypatch, body)


NEEDED: Final = re.compile(
    "partitions|factor|min.isr|session|heartbeat|registration|connections|socket|max.size|threads|segment.bytes"
)
"""Of the extremes of these there is no cluster, or none that clients reach."""


@pytest.mark.parametrize("which", [0, -1], ids=["least", "greatest"])
def test_broker_with_an_extreme_file_goes_on(monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """All numbers that are only read from the file, at once."""
    properties = {
        key.name: [*extremes(key)][which]
        for key in {**BROKER_KEYS, **COORDINATOR_KEYS, **TRANSACTION_KEYS, **TOPIC_DEFAULT_KEYS}.values()
        if key.type in (ConfigType.INT, ConfigType.LONG) and not NEEDED.search(key.name)
    } | {"message.max.bytes": "10000", "log.retention.ms": "-1", "log.retention.bytes": "-1"}

    async def body(lone: LoneWorld) -> None:
        topics = {"compacted": COMPACTED, "deleted": DELETED, "of-the-broker": {}}
        await create(lone, topics)
        for _ in range(3):
            await load(lone, list(topics), 20)
            await lone.rest(20 if which else 0.5)  # with pauses of a millisecond much happens
            await lone.consume("compacted", len(lone.expected["compacted"]), 5 if which else 0.3)
        await check_all(lone, list(topics))
        await lone.restart(power_loss=False)
        await load(lone, list(topics), 8)
        await check_all(lone, list(topics))

    run(monkeypatch, body, properties)
