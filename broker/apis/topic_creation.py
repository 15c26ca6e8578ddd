"""Creation of topics that clients need and nobody has created: auto-created ones, and internal ones.

Nobody waits for them. As in Kafka, a client is told that its topic does not exist, or that its coordinator is
not available, and asks again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

from pykraft.broker.config import BrokerConfig
from pykraft.broker.membership.controller_channel import ControllerChannel
from pykraft.broker.metadata.cache import INTERNAL_TOPICS
from pykraft.coordinator.partitioning import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from pykraft.kafka_protocol.api_keys import ApiKey
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.runtime.tasks import TaskSupervisor

logger = logging.getLogger(__name__)

MOST_BEGUN: Final = 1_000
"""Topics that are being created. What is asked for beyond it is begun when its client asks again."""
_VERSION: Final = 4
"""Partitions and replicas may be left to the controller; answers of later versions list settings, too."""
_TIMEOUT_MS: Final = 5_000


class TopicCreations:
    """The topics that one broker has created."""

    def __init__(self, config: BrokerConfig, controller: ControllerChannel, tasks: TaskSupervisor) -> None:
        self._config = config
        self._controller = controller
        self._tasks = tasks
        self._begun: set[str] = set()
        self._refusals: dict[str, str] = {}
        """Why internal topics were not created; their clients are told."""

    def begin(self, context: RequestContext, names: Collection[str]) -> None:
        """Have topics created for a client that does not wait; those that are being created are left alone.

        There is always room for internal topics. What the controller refuses is logged in one line.
        """
        begun = self._begun
        new = [name for name in sorted(INTERNAL_TOPICS) if name in names and name not in begun]
        begun.update(new)
        for name in names:
            if len(begun) >= MOST_BEGUN:  # of a hundred thousand names the others are not even looked at
                break
            if name not in begun:
                begun.add(name)
                new.append(name)
        if new:
            self._tasks.start(self._create_begun(context, new), "create-topics")

    def refusal(self, name: str) -> str | None:
        """Why an internal topic could not be created when that was last tried; None if it may be."""
        return self._refusals.get(name)

    async def _create_begun(self, context: RequestContext, names: Sequence[str]) -> None:
        refused: dict[str, str] = {}
        try:
            refusals = await self._ask(context, names)
            refused = {name: refusal.message for name, refusal in refusals.items()}
            if refusals:
                _log_refusal(list(refusals), next(iter(refusals.values())))
        except KafkaError as error:
            refused = dict.fromkeys(names, error.message)
            _log_refusal(names, error)
        finally:
            self._begun.difference_update(names)
        for name in INTERNAL_TOPICS.intersection(names):
            self._refusals.pop(name, None)
            if name in refused:
                self._refusals[name] = refused[name]

    async def _ask(self, context: RequestContext, names: Sequence[str]) -> dict[str, KafkaError]:
        """Ask the controller for topics; return its refusals by name."""
        request = CreateTopicsRequest(
            topics=[self._creatable(name) for name in names], timeout_ms=_TIMEOUT_MS
        )
        body = await self._controller.forward(
            context, ApiKey.CREATE_TOPICS, _VERSION, request.encode(_VERSION), _TIMEOUT_MS
        )
        return {
            result.name: KafkaError(ErrorCode(result.error_code), result.error_message or result.name)
            for result in CreateTopicsResponse.decode(body, _VERSION).topics
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        }

    def _creatable(self, name: str) -> CreatableTopic:
        config = self._config
        if name == OFFSETS_TOPIC:
            return _topic(
                name,
                config.offsets_topic_num_partitions,
                config.offsets_topic_replication_factor,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.offsets_topic_segment_bytes),
                },
            )
        if name == TRANSACTION_STATE_TOPIC:  # a leader out of sync must never be elected
            return _topic(
                name,
                config.transaction_log_num_partitions,
                config.transaction_log_replication_factor,
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(config.transaction_log_min_isr),
                    "segment.bytes": str(config.transaction_log_segment_bytes),
                    "unclean.leader.election.enable": "false",
                },
            )
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)


def _log_refusal(names: Sequence[str], of_first: KafkaError) -> None:
    code, reason = of_first.code.name, of_first.message
    logger.warning("%d topics not auto-created, the first is %s: %s: %s", len(names), names[0], code, reason)


def _topic(name: str, partitions: int, replication_factor: int, configs: dict[str, str]) -> CreatableTopic:
    """With Kafka's settings for internal topics."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
