"""Which topics a consumer reads: one, or those whose names match an expression; also topics that are created later."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final

import click
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import TopicMetadata

from pykraft.node.cli.console.librdkafka import Connection

_MISSING_RETRY_S: Final = 0.5
"""How often it is looked for topics while there are none."""
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Subscription:
    """``wanted`` says what is read, ``with_internal`` whether internal topics may match an expression, and
    ``refresh_s`` how often topics are looked for that have come to match. ``callbacks`` are those of
    ``Consumer.subscribe``.
    """

    def __init__(
        self,
        consumer: Consumer,
        connection: Connection,
        wanted: str | re.Pattern[str] | TopicPartition,
        *,
        with_internal: bool,
        refresh_s: float,
        **callbacks: Callable[[Consumer, list[TopicPartition]], None],
    ) -> None:
        self._consumer = consumer
        self._connection = connection
        self._include = wanted if isinstance(wanted, re.Pattern) else None
        self._assigned = wanted if isinstance(wanted, TopicPartition) else None
        self.topic: str | None = wanted.topic if isinstance(wanted, TopicPartition) else None
        """The only topic that may be read; None for an expression."""
        if isinstance(wanted, str):
            self.topic = wanted
        self._hidden: frozenset[str] = frozenset() if with_internal else _INTERNAL
        self._refresh_s = inf if self._include is None else refresh_s
        self._callbacks: dict[str, Any] = dict(callbacks)
        self._read: list[str] = []
        self._misses = 0
        self._next_s = -inf

    def maybe_refresh(self, now_s: float) -> None:
        """Look for topics if it is time. :class:`OutageError` if no broker responds,
        :class:`click.ClickException` for a partition that its topic does not have.
        """
        if now_s < self._next_s:
            return
        topics = self._connection.metadata(self._consumer, self.topic).topics
        found = sorted(
            name for name, topic in topics.items() if topic.error is None and self._is_wanted(name)
        )
        if found and found != self._read:
            self._take(found, topics)
        if not found:
            self._misses += 1
            if self._misses == 2:  # a topic that this question creates is there when it is asked again
                missing = "topic that matches" if self.topic is None else f"topic {self.topic}"
                click.echo(f"warning: there is no {missing} yet", err=True)
        self._next_s = now_s + (self._refresh_s if self._read else _MISSING_RETRY_S)

    def _is_wanted(self, name: str) -> bool:
        if self._include is None:
            return name == self.topic
        return name not in self._hidden and self._include.fullmatch(name) is not None

    def _take(self, found: list[str], topics: Mapping[str, TopicMetadata]) -> None:
        one = self._assigned
        if one is None:
            self._consumer.subscribe(found, **self._callbacks)
        elif one.partition in topics[one.topic].partitions:
            self._consumer.assign([one])
        else:  # librdkafka would wait for it forever
            raise click.ClickException(f"topic {one.topic} has no partition {one.partition}")
        self._read = found
