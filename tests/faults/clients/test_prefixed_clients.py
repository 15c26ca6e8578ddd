"""Names on a cluster that others use: with the prefix there, without it in the workload."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest.mock import AsyncMock, Mock

import pytest

from pykraft.jepsen_like.faults.clients.interface import (
    Commit,
    MemberConfig,
    Polled,
    PositionLostError,
    ProducerConfig,
    TransactionalConfig,
)
from pykraft.jepsen_like.faults.clients.names import Names
from pykraft.jepsen_like.faults.clients.prefixed_clients import PrefixedClients
from pykraft.kafka_client.metadata import TopicPartition

T = TypeVar("T")
HERE, THERE = TopicPartition("t", 1), TopicPartition("own-t", 1)
COMMIT = Commit(5, "tag")


class Setting:
    """``clients`` over ``inner``, a mock; ``noted`` is what was announced."""

    def __init__(self, most_replicas: int = 3) -> None:
        self.noted: list[tuple[str, str]] = []
        self.inner = Mock()
        names = Names("own-", lambda sort, name: self.noted.append((sort, name)))
        self.clients = PrefixedClients(self.inner, names, most_replicas)


def wait(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def test_records_are_sent_to_the_topic_there() -> None:
    setting = Setting()
    setting.clients.producer(ProducerConfig("p")).send(HERE, "v", 7, "k")
    setting.inner.producer.return_value.send.assert_called_once_with(THERE, "v", 7, "k")


def test_reader_returns_partitions_as_the_workload_names_them() -> None:
    setting = Setting()
    inner = setting.inner.reader.return_value
    reader = setting.clients.reader("r", {HERE: 3}, committed=True)
    setting.inner.reader.assert_called_once_with("r", {THERE: 3}, committed=True)
    inner.poll = AsyncMock(side_effect=[{THERE: Polled(((3, "v"),))}, PositionLostError(THERE, 4, "gone")])
    assert wait(reader.poll(0.1)) == {HERE: Polled(((3, "v"),))}
    with pytest.raises(PositionLostError, match="gone") as lost:
        wait(reader.poll(0.1))
    assert (lost.value.partition, lost.value.offset) == (HERE, 4)
    inner.end_offset = AsyncMock(return_value=9)
    assert wait(reader.end_offset(HERE)) == 9
    inner.end_offset.assert_awaited_once_with(THERE)


def test_member_owns_partitions_as_the_workload_names_them() -> None:
    setting, listener = Setting(), Mock()
    member = setting.clients.member(MemberConfig("m", "g", "classic", ("t", "u")), listener)
    (config, inner_listener), _ = setting.inner.member.call_args
    assert (config.group, config.topics) == ("own-g", ("own-t", "own-u"))
    assert setting.noted == [("group", "own-g")]
    inner_listener.assigned([THERE])
    listener.assigned.assert_called_once_with([HERE])
    inner = setting.inner.member.return_value
    inner.commit = AsyncMock()
    wait(member.commit({HERE: COMMIT}))
    inner.commit.assert_awaited_once_with({THERE: COMMIT})


def test_transactional_ids_are_those_of_nobody_else() -> None:
    setting = Setting()
    producer = setting.clients.transactional(TransactionalConfig("p", "id", 1_000))
    ((config,), _) = setting.inner.transactional.call_args
    assert config.transactional_id == "own-id"
    inner = setting.inner.transactional.return_value
    inner.send_offsets = AsyncMock()
    wait(producer.send_offsets("g", {HERE: 1}))
    inner.send_offsets.assert_awaited_once_with("own-g", {THERE: 1})
    assert setting.noted == [("group", "own-g")]


def test_created_topic_is_announced_once_and_has_as_many_replicas_as_there_are_brokers() -> None:
    setting = Setting(most_replicas=1)
    inner = setting.inner.admin.return_value
    inner.create_topic = AsyncMock(side_effect=lambda *_: None)
    admin = setting.clients.admin("a")
    wait(admin.create_topic("t", 2, 3, {"a": "b"}))
    wait(admin.create_topic("t", 2, 3, {"a": "b"}))
    inner.create_topic.assert_awaited_with("own-t", 2, 1, {"a": "b"})
    assert setting.noted == [("topic", "own-t")]


def test_committed_offsets_are_of_the_group_there() -> None:
    setting = Setting()
    inner = setting.inner.admin.return_value
    inner.committed = AsyncMock(return_value={THERE: COMMIT})
    assert wait(setting.clients.admin("a").committed("g", [HERE])) == {HERE: COMMIT}
    inner.committed.assert_awaited_once_with("own-g", [THERE])
    requests = setting.inner.requests.return_value
    requests.commit = AsyncMock()
    wait(setting.clients.requests("r").commit("g", HERE, COMMIT))
    requests.commit.assert_awaited_once_with("own-g", THERE, COMMIT)
