"""A member of a consumer group, in either protocol: joins, heartbeats, reads what it owns, commits.

Heartbeats and rebalances run in the background; :meth:`GroupMember.poll` reads. The member's ownership is a
lease on its own clock (:mod:`.ownership`), whether or not the coordinator can be reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pykraft.kafka_client.cluster import ClientConfig, Cluster
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.fetcher import FetchConfig
from pykraft.kafka_client.group.classic import ClassicMembership
from pykraft.kafka_client.group.committed_offsets import group_offsets
from pykraft.kafka_client.group.config import GroupConfig, GroupIdentity, OwnershipListener
from pykraft.kafka_client.group.consumer import ConsumerMembership
from pykraft.kafka_client.group.offsets import OffsetAndMetadata, commit_offsets
from pykraft.kafka_client.group.ownership import Ownership
from pykraft.kafka_client.group.reader import SHORT_WAIT_MS, GroupReader, PolledRecords
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork
from pykraft.kafka_client.results import CommittedOffset
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str

if TYPE_CHECKING:
    import random

__all__ = [
    "GroupConfig",
    "GroupMember",
    "OffsetAndMetadata",
    "OwnershipListener",
    "PolledRecords",
]


class GroupMember:
    """Create it on a running event loop. One task polls; others may commit at the same time."""

    def __init__(
        self,
        network: ConcurrentNetwork,
        client: ClientConfig,
        config: GroupConfig,
        listener: OwnershipListener,
        rng: random.Random,
        fetch: FetchConfig | None = None,
    ) -> None:
        self._network = network
        self._client = client
        self._config = config
        self._ownership = Ownership(network, _Listener(listener, self._begin_anew), config.lease_ms)
        self._link = CoordinatorLink(Cluster(network, client), config.group_id)
        self._idle_links: list[CoordinatorLink] = []
        self._is_abandoned = False
        self._data = Cluster(network, client)
        self._reader = GroupReader(
            self._data, config, FetchConfig() if fetch is None else fetch, self._ownership, self.committed
        )
        self._membership: ConsumerMembership | ClassicMembership
        if config.group_protocol == "consumer":
            member_id = uuid_to_str(Uuid(rng.randbytes(16)))
            self._membership = ConsumerMembership(network, self._link, config, self._ownership, member_id)
        else:
            self._membership = ClassicMembership(network, self._link, config, self._ownership)
        self.fatal: KafkaError | None = None
        self._runner = network.start(self._run())
        self._watch = network.start(self._ownership.watch())

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that the member believes it owns now."""
        return frozenset(self._ownership.held())

    @property
    def identity(self) -> GroupIdentity:
        """The identity that its requests carry."""
        membership = self._membership
        return GroupIdentity(membership.member_id, membership.member_epoch, self._config.group_instance_id)

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read these topics instead."""
        self._membership.subscribe(topics)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at ``offset``; only for a partition that is owned."""
        self._reader.seek(partition, offset)

    async def poll(self, timeout_ms: int) -> dict[TopicPartition, PolledRecords]:
        """The next records of the owned partitions, as soon as there are some; empty if none came in time.

        A position starts at the committed offset, else where ``auto_offset_reset`` says. Raises the error
        that ended the membership; :class:`~.errors.DataLossError` if a position no longer exists (then
        :meth:`seek`, or the partition starts again as above; a position that was outside the log starts
        where ``auto_offset_reset`` says). Records of other partitions are returned before the error.
        """
        deadline_ms = self._network.now_ms() + timeout_ms
        while True:
            if self.fatal is not None:
                raise self.fatal
            found = await self._reader.read(deadline_ms)
            now_ms = self._network.now_ms()
            if found or now_ms >= deadline_ms:
                return found
            if not self._reader.has_positions:
                await self._network.sleep(min(SHORT_WAIT_MS, deadline_ms - now_ms))

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None
    ) -> None:
        """Commit as the member it is now. :class:`~.errors.CommitRefusedError`, ``CommitUnknownError``."""
        with self._borrowed_link() as link:
            deadline_ms = link.cluster.deadline(timeout_ms)
            await commit_offsets(link, self.identity, offsets, deadline_ms)

    async def committed(
        self, partitions: Sequence[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The group's committed offsets; partitions without one are left out."""
        with self._borrowed_link() as link:
            member = self.identity if self._config.group_protocol == "consumer" else None
            deadline_ms = link.cluster.deadline(timeout_ms)
            return await group_offsets(link.cluster, self._config.group_id, deadline_ms, partitions, member)

    async def close(self, timeout_ms: int = 5_000) -> None:
        """Revoke everything through the listener, and leave the group."""
        self._runner.cancel()
        self._membership.stop()
        link = self._new_link()  # the other task may be in the middle of a request
        try:
            if self.fatal is None:
                await self._ownership.revoke(list(self._ownership.held()))
                await self._membership.leave(link, self._network.now_ms() + timeout_ms)
        except KafkaError:
            return  # the session will end by itself
        finally:
            link.close()
            self.abandon()

    def abandon(self) -> None:
        """Stop without telling the coordinator; all partitions are lost."""
        self._is_abandoned = True
        self._runner.cancel()
        self._watch.cancel()
        self._membership.stop()
        self._ownership.lose()
        for cluster in (self._link.cluster, self._data, *(link.cluster for link in self._idle_links)):
            cluster.close()
        self._idle_links.clear()

    async def _run(self) -> None:
        try:
            while True:
                await self._membership.step()
        except KafkaError as error:
            self.fatal = error

    def _new_link(self) -> CoordinatorLink:
        return CoordinatorLink(Cluster(self._network, self._client), self._config.group_id)

    @contextmanager
    def _borrowed_link(self) -> Iterator[CoordinatorLink]:
        """A link for one call: several tasks may commit at once."""
        link = self._idle_links.pop() if self._idle_links else self._new_link()
        try:
            yield link
        finally:
            if self._is_abandoned:
                link.close()
            else:
                self._idle_links.append(link)

    def _begin_anew(self, partitions: Sequence[TopicPartition]) -> None:
        self._reader.begin_anew(partitions)


class _Listener:
    """The application's, which is told of an assignment after the member has forgotten the one before."""

    def __init__(
        self, listener: OwnershipListener, begin_anew: Callable[[Sequence[TopicPartition]], None]
    ) -> None:
        self._begin_anew = begin_anew
        self._assigned = listener.assigned
        self.revoked = listener.revoked
        self.lost = listener.lost
        self.heartbeat = listener.heartbeat

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._begin_anew(partitions)
        self._assigned(partitions)
