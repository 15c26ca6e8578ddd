"""Workloads' group member through pykraft's own."""

import random
from collections.abc import Mapping, Sequence

from pykraft.jepsen_like.faults.clients.interface import (
    Commit,
    MemberConfig,
    Polled,
    PositionLostError,
    RefusedError,
)
from pykraft.jepsen_like.faults.clients.outcomes import answered, text
from pykraft.kafka_client.cluster import ClientConfig
from pykraft.kafka_client.errors import CommitRefusedError, LogTruncatedError, OffsetOutOfRangeError
from pykraft.kafka_client.fetcher import FetchConfig
from pykraft.kafka_client.group.config import GroupConfig, OwnershipListener
from pykraft.kafka_client.group.member import GroupMember, OffsetAndMetadata
from pykraft.kafka_client.metadata import TopicPartition
from pykraft.kafka_client.network import ConcurrentNetwork


class OwnMember:
    """:class:`~pykraft.jepsen_like.faults.clients.interface.Member`."""

    def __init__(
        self,
        network: ConcurrentNetwork,
        client: ClientConfig,
        config: MemberConfig,
        listener: OwnershipListener,
        rng: random.Random,
        fetch: FetchConfig,
    ) -> None:
        group = GroupConfig(
            config.group,
            config.topics,
            config.protocol,
            config.assignor,
            config.instance_id,
            config.session_timeout_ms,
            config.heartbeat_interval_ms,
            max_poll_interval_ms=config.session_timeout_ms,
            auto_offset_reset="earliest",
        )
        self._member = GroupMember(network, client, group, listener, rng, fetch)

    async def poll(self, timeout_s: float) -> Mapping[TopicPartition, Polled]:
        with answered():
            try:
                found = await self._member.poll(round(timeout_s * 1000))
            except (OffsetOutOfRangeError, LogTruncatedError) as error:
                place = TopicPartition(error.topic, error.partition)
                raise PositionLostError(place, -1, error.message) from error
        return {
            partition: Polled(
                tuple((record.offset, (record.value or b"").decode()) for record in polled.records),
                polled.high_watermark,
            )
            for partition, polled in found.items()
        }

    async def commit(self, commits: Mapping[TopicPartition, Commit]) -> None:
        offsets = {
            partition: OffsetAndMetadata(commit.offset, metadata=commit.tag)
            for partition, commit in commits.items()
        }
        with answered():
            try:
                await self._member.commit(offsets)
            except CommitRefusedError as error:
                raise RefusedError(text(error)) from error

    async def subscribe(self, topics: Sequence[str]) -> None:
        self._member.subscribe(topics)

    async def close(self) -> None:
        await self._member.close()

    async def abandon(self) -> None:
        self._member.abandon()
