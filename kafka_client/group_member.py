"""A member of a consumer group, in either protocol: joins, heartbeats, reads what it owns, commits.

Heartbeats and rebalances run in the background; :meth:`GroupMember.poll` reads. The member's ownership is a
lease on its own clock (:mod:`.group_ownership`), whether or not the coordinator can be reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pykraft.kafka_client.admin_groups import group_offsets
from pykraft.kafka_client.admin_results import CommittedOffset
from pykraft.kafka_client.cluster import ClientConfig, Cluster, is_passing
from pykraft.kafka_client.coordinator_link import CoordinatorLink
from pykraft.kafka_client.errors import (
    DataLossError,
    OffsetOutOfRangeError,
    TopicDeletedError,
    TopicRecreatedError,
)
from pykraft.kafka_client.fetcher import FetchConfig, FetchedBatches, PartitionFetcher
from pykraft.kafka_client.group_classic import ClassicMembership
from pykraft.kafka_client.group_config import GroupConfig, GroupIdentity, OwnershipListener
from pykraft.kafka_client.group_consumer import ConsumerMembership
from pykraft.kafka_client.group_offsets import OffsetAndMetadata, commit_offsets
from pykraft.kafka_client.group_ownership import Ownership
from pykraft.kafka_client.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork
from pykraft.kafka_client.visible import visible_batches
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid, uuid_to_str
from pykraft.kafka_protocol.record_codec import Record, decode_batch
from pykraft.lazy_dataclass import dataclass

if TYPE_CHECKING:
    import random

__all__ = [
    "GroupConfig",
    "GroupMember",
    "OffsetAndMetadata",
    "OwnershipListener",
    "PolledRecords",
]

_SHORT_WAIT_MS = 100
"""How long a poll waits for the broker of one partition while other partitions may have records."""
_MIN_FETCH_TIMEOUT_MS = 1_000
"""A fetch gets at least this time, however short the poll is: a connection may have to be opened."""

# An OffsetFetch between two epochs, or while the group moves: retry when the member has caught up.
_NOT_YET = frozenset(
    {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}
)


@dataclass(frozen=True, slots=True)
class PolledRecords:
    """Records of one partition in order. The offset to commit is ``next_offset``, with ``leader_epoch``."""

    records: tuple[Record, ...]
    next_offset: int
    leader_epoch: int | None
    high_watermark: int


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
        self._fetch = FetchConfig() if fetch is None else fetch
        self._ownership = Ownership(network, listener, config.lease_ms)
        self._link = CoordinatorLink(Cluster(network, client), config.group_id)
        self._idle_links: list[CoordinatorLink] = []
        self._data = Cluster(network, client)
        self._fetchers: dict[TopicPartition, PartitionFetcher] = {}
        self._out_of_range: set[TopicPartition] = set()
        self._put_off: KafkaError | None = None
        self._turn = 0
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
        """What the member believes it owns at this moment."""
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
        if partition not in self._ownership.held():
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"{partition} is not owned")
        self._forget_position(partition)
        self._out_of_range.discard(partition)
        self._fetchers[partition] = PartitionFetcher(
            self._data, partition.topic, None, partition.partition, offset, self._fetch
        )

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
            if self._put_off is not None:
                error, self._put_off = self._put_off, None
                raise error
            found = await self._poll_once(deadline_ms)
            now_ms = self._network.now_ms()
            if found or now_ms >= deadline_ms:
                return found
            if not self._fetchers:
                await self._network.sleep(min(_SHORT_WAIT_MS, deadline_ms - now_ms))

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None
    ) -> None:
        """Commit as the member that it is now. :class:`~.errors.CommitRefusedError`,
        :class:`~.errors.CommitUnknownError`."""
        link = self._idle_links.pop() if self._idle_links else self._new_link()
        try:
            deadline_ms = link.cluster.deadline(timeout_ms)
            await commit_offsets(link, self.identity, offsets, deadline_ms)
        finally:
            self._idle_links.append(link)

    async def committed(
        self, partitions: Sequence[TopicPartition], timeout_ms: int | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The group's committed offsets; partitions without one are left out."""
        link = self._idle_links.pop() if self._idle_links else self._new_link()
        try:
            member = self.identity if self._config.group_protocol == "consumer" else None
            deadline_ms = link.cluster.deadline(timeout_ms)
            return await group_offsets(link.cluster, self._config.group_id, deadline_ms, partitions, member)
        finally:
            self._idle_links.append(link)

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

    # Reading.

    async def _poll_once(self, deadline_ms: int) -> dict[TopicPartition, PolledRecords]:
        """One round over the owned partitions. The last one is waited for."""
        readable = sorted(self._ownership.readable())
        for partition in sorted(self._fetchers.keys() - set(readable)):
            self._forget_position(partition)
        fetch_deadline_ms = max(deadline_ms, self._network.now_ms() + _MIN_FETCH_TIMEOUT_MS)
        await self._find_positions([p for p in readable if p not in self._fetchers], fetch_deadline_ms)
        turn = [p for p in readable if p in self._fetchers]
        self._turn += 1
        if turn:
            first = self._turn % len(turn)
            turn = turn[first:] + turn[:first]
        found: dict[TopicPartition, PolledRecords] = {}
        for partition in turn:
            wait_ms = 0
            if partition == turn[-1] and not found:
                wait_ms = max(0, min(_SHORT_WAIT_MS, deadline_ms - self._network.now_ms()))
            try:
                polled = await self._fetch_one(partition, fetch_deadline_ms, wait_ms)
            except KafkaError as error:
                if not found:
                    raise
                self._put_off = error  # the others' positions are behind what was found
                break
            if polled is not None and polled.records:
                found[partition] = polled
        # Partitions that were revoked or lost meanwhile must not be read.
        still = set(self._ownership.readable())
        for partition in sorted(found.keys() - still):
            self._forget_position(partition)
        return {partition: polled for partition, polled in found.items() if partition in still}

    async def _fetch_one(
        self, partition: TopicPartition, deadline_ms: int, wait_ms: int
    ) -> PolledRecords | None:
        fetcher = self._fetchers.get(partition)
        if fetcher is None:
            return None
        position = fetcher.position
        try:
            fetched = await fetcher.fetch(deadline_ms, max_wait_ms=wait_ms)
        except (TopicDeletedError, TopicRecreatedError):
            self._forget_position(partition)  # the next assignment says what to read instead
            return None
        except DataLossError as error:
            self._forget_position(partition)
            if isinstance(error, OffsetOutOfRangeError):
                self._out_of_range.add(partition)
            raise
        except KafkaError as error:
            if is_passing(error):
                return None
            raise
        if self._fetchers.get(partition) is not fetcher:
            return None  # the application has moved the position meanwhile
        return _decode(fetched, position)

    async def _find_positions(self, partitions: Sequence[TopicPartition], deadline_ms: int) -> None:
        if not partitions:
            return
        timeout_ms = max(0, deadline_ms - self._network.now_ms())
        try:
            committed = await self.committed(partitions, timeout_ms)
            for partition in self._out_of_range & committed.keys():
                del committed[partition]
            reset = LATEST_TIMESTAMP if self._config.auto_offset_reset == "latest" else EARLIEST_TIMESTAMP
            unknown = {partition: reset for partition in partitions if partition not in committed}
            listed = await list_offsets(self._data, unknown, deadline_ms) if unknown else {}
        except KafkaError as error:
            if is_passing(error) or error.code in _NOT_YET:
                return
            raise
        for partition in partitions:
            if partition in self._ownership.held() and partition not in self._fetchers:
                known = committed.get(partition)
                self.seek(partition, listed[partition].offset or 0 if known is None else known.offset)

    def _forget_position(self, partition: TopicPartition) -> None:
        fetcher = self._fetchers.pop(partition, None)
        if fetcher is not None:
            fetcher.close()


def _decode(fetched: FetchedBatches, position: int) -> PolledRecords:
    """The records from ``position`` on: the first batch may begin below it."""
    shown = visible_batches(fetched.data, fetched.headers, fetched.aborted)
    records = [
        record
        for at, header in shown
        for record in decode_batch(fetched.data[at : at + header.size_bytes], header)
        if record.offset >= position
    ]
    epoch = fetched.headers[-1][1].partition_leader_epoch if fetched.headers else -1
    return PolledRecords(
        tuple(records), fetched.next_offset, epoch if epoch >= 0 else None, fetched.high_watermark
    )
