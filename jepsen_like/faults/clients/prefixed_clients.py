"""Workloads' clients on a cluster that others use, too, over those of any implementation.

Topics, groups and transactional ids get a prefix on their way to the cluster and lose it on their way back,
so that a workload and its history know nothing of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from pykraft.jepsen_like.faults.clients.interface import (
    Clients,
    Commit,
    Member,
    MemberConfig,
    OwnershipListener,
    PlainTransactionalProducer,
    Polled,
    PositionLostError,
    Producer,
    ProducerConfig,
    Reader,
    TransactionalConfig,
    TransactionalProducer,
)
from pykraft.jepsen_like.faults.clients.names import Names
from pykraft.jepsen_like.faults.clients.prefixed_admin import PrefixedAdmin, PrefixedRequests
from pykraft.kafka_client.metadata import TopicPartition

P = TypeVar("P", bound=TransactionalProducer)


class PrefixedClients:
    """:class:`~pykraft.jepsen_like.faults.clients.interface.Clients`.

    Topics that a workload creates have at most ``most_replicas`` replicas: the cluster may be a small one.
    """

    def __init__(self, clients: Clients, names: Names, most_replicas: int) -> None:
        self._clients = clients
        self._names = names
        self._most_replicas = most_replicas

    def producer(self, config: ProducerConfig) -> Producer:
        return _Producer(self._clients.producer(config), self._names)

    def transactional(self, config: TransactionalConfig) -> TransactionalProducer:
        return _Transactional(self._clients.transactional(self._there(config)), self._names)

    def plain_transactional(self, config: TransactionalConfig) -> PlainTransactionalProducer:
        return _PlainTransactional(self._clients.plain_transactional(self._there(config)), self._names)

    def reader(
        self, name: str, positions: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> Reader:
        opened = self._clients.reader(name, self._names.all_there(positions), committed=committed)
        return _Reader(opened, self._names)

    def member(self, config: MemberConfig, listener: OwnershipListener) -> Member:
        names = self._names
        topics = tuple(map(names.topic, config.topics))
        there = replace(config, group=names.new_group(config.group), topics=topics)
        return _Member(self._clients.member(there, _Listener(listener, names)), names)

    def admin(self, name: str) -> PrefixedAdmin:
        return PrefixedAdmin(self._clients.admin(name), self._names, self._most_replicas)

    def requests(self, name: str) -> PrefixedRequests:
        return PrefixedRequests(self._clients.requests(name), self._names)

    def wall_ms(self) -> int:
        return self._clients.wall_ms()

    def close(self) -> None:
        self._clients.close()

    def _there(self, config: TransactionalConfig) -> TransactionalConfig:
        return replace(config, transactional_id=self._names.prefix + config.transactional_id)


@dataclass(frozen=True, slots=True)
class _Producer:
    producer: Producer
    names: Names

    @property
    def fatal(self) -> str | None:
        return self.producer.fatal

    def send(
        self, partition: TopicPartition, value: str | None, timestamp_ms: int, key: str | None = None
    ) -> asyncio.Future[int | None] | None:
        return self.producer.send(self.names.there(partition), value, timestamp_ms, key)

    async def flush(self, timeout_s: float) -> None:
        await self.producer.flush(timeout_s)

    async def close(self) -> None:
        await self.producer.close()


@dataclass(frozen=True, slots=True)
class _Transactional(Generic[P]):
    producer: P
    names: Names

    async def init(self) -> None:
        await self.producer.init()

    async def send(self, partition: TopicPartition, values: Sequence[str]) -> int | None:
        return await self.producer.send(self.names.there(partition), values)

    async def send_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        await self.producer.send_offsets(self.names.new_group(group), self.names.all_there(offsets))

    async def committed(self, group: str, partition: TopicPartition) -> int | None:
        return await self.producer.committed(self.names.prefix + group, self.names.there(partition))

    async def commit(self) -> None:
        await self.producer.commit()

    async def abort(self) -> None:
        await self.producer.abort()

    async def close(self) -> None:
        await self.producer.close()


class _PlainTransactional(_Transactional[PlainTransactionalProducer]):
    def send_late(self, partition: TopicPartition, values: Sequence[str], after_s: float) -> None:
        self.producer.send_late(self.names.there(partition), values, after_s)

    async def recover(self) -> None:
        await self.producer.recover()


@dataclass(frozen=True, slots=True)
class _Reader:
    reader: Reader
    names: Names

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        with _position_lost_here(self.names):
            return self.names.all_here(await self.reader.poll(timeout_s))

    async def log_start(self, partition: TopicPartition) -> int:
        return await self.reader.log_start(self.names.there(partition))

    async def end_offset(self, partition: TopicPartition) -> int:
        return await self.reader.end_offset(self.names.there(partition))

    async def close(self) -> None:
        await self.reader.close()


@dataclass(frozen=True, slots=True)
class _Member:
    member: Member
    names: Names

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        with _position_lost_here(self.names):
            return self.names.all_here(await self.member.poll(timeout_s))

    async def commit(self, commits: Mapping[TopicPartition, Commit]) -> None:
        await self.member.commit(self.names.all_there(commits))

    async def subscribe(self, topics: Sequence[str]) -> None:
        await self.member.subscribe(list(map(self.names.topic, topics)))

    async def close(self) -> None:
        await self.member.close()

    async def abandon(self) -> None:
        await self.member.abandon()


@dataclass(frozen=True, slots=True)
class _Listener:
    listener: OwnershipListener
    names: Names

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.listener.assigned(list(map(self.names.here, partitions)))

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.listener.revoked(list(map(self.names.here, partitions)))

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.listener.lost(list(map(self.names.here, partitions)))

    def heartbeat(self, sent_s: float, member_id: str, member_epoch: int) -> None:
        self.listener.heartbeat(sent_s, member_id, member_epoch)


@contextmanager
def _position_lost_here(names: Names) -> Iterator[None]:
    try:
        yield
    except PositionLostError as lost:
        raise PositionLostError(names.here(lost.partition), lost.offset, str(lost)) from lost
