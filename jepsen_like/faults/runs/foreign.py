"""A cluster that somebody else runs: what a run makes there has names of its own, and is removed again.

All names begin with a prefix that no topic there has had before. Decides how many replicas a topic has on so
many brokers, which groups are possible, and what may be removed: only what has the run's own prefix.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from pykraft.jepsen_like.faults.history import Recorder
from pykraft.jepsen_like.faults.workloads.workload import TopicSpec
from pykraft.testing.processes.waits import Deadline

PREFIX: Final = "pykraft-jepsen-"
TIMEOUT_S: Final = 30.0
MEMBERS_GONE_S: Final = 120.0
"""Within it sessions of members are over, whatever they are on a usual cluster."""
RETRY_AFTER_S: Final = 5.0
IN_SYNC: Final = "min.insync.replicas"

_GONE: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND})


class ForeignClusterError(RuntimeError):
    """The cluster cannot be reached, or refuses what the run needs."""


class ForeignCluster:
    """All topics and groups of the run begin with ``prefix``. Use as a context manager: an exception removes
    them, and else :meth:`tidy_up` must be called."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.brokers: tuple[int, ...] = ()
        self.prefix = f"{PREFIX}{secrets.token_hex(4)}-"
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def connect(self, say: Callable[[str], None]) -> None:
        """Learn the brokers; ``say`` what an earlier run left. :class:`ForeignClusterError`."""
        try:
            found = self._admin.list_topics(timeout=TIMEOUT_S)
        except KafkaException as error:
            raise ForeignClusterError(f"no cluster at {self.bootstrap_servers}: {_text(error)}") from error
        self.brokers = tuple(sorted(found.brokers))
        left = sorted(topic for topic in found.topics if topic.startswith(PREFIX))
        if any(topic.startswith(self.prefix) for topic in left):
            raise ForeignClusterError(f"there is already a topic {self.prefix}…")
        if left:
            at = f"--bootstrap-server {self.bootstrap_servers}"
            say(f"LEFT BY ANOTHER RUN, perhaps one that goes on: {', '.join(left)}")
            say(f"To remove it: kafka-topics {at} --delete --topic '{PREFIX}.*'")
            say(f"and kafka-consumer-groups {at} --list, then --delete --group")

    def settings(self) -> dict[str, object]:
        """For the history, in the place of those of a run with nodes of its own."""
        return {
            "nemesis": "none",
            "tier": None,
            "system": "somebody else's",
            "nodes": len(self.brokers),
            "prefix": self.prefix,
        }

    def create(self, topics: Sequence[TopicSpec], history: Recorder) -> None:
        """Create a workload's topics, with replicas as brokers allow. :class:`ForeignClusterError`."""
        wanted = []
        for topic in map(self._fitting, topics):
            configs = dict(topic.configs)
            wanted.append(NewTopic(topic.name, topic.partitions, topic.replication_factor, config=configs))
            history.record("info", "runner", "topic", value=topic.name, detail=configs)
        failed = _failures(self._admin.create_topics(wanted, operation_timeout=TIMEOUT_S))
        for name, why in failed.items():
            raise ForeignClusterError(f"the topic {name} cannot be created: {why}")

    def broker_configs(self) -> Mapping[str, str]:
        """Those of one broker; empty if it does not answer."""
        resource = ConfigResource(ResourceType.BROKER, str(self.brokers[0]))
        try:
            entries = self._admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        except (KafkaException, TimeoutError):
            return {}
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}

    def tidy_up(self, say: Callable[[str], None], is_kept: bool = False) -> None:
        """Remove what has been made, unless it is kept; ``say`` is told what is still there."""
        if is_kept:
            say(f"topics and groups are kept on the cluster: their names begin with {self.prefix}")
        elif failed := self._remove(Deadline(MEMBERS_GONE_S)):
            say(f"NOT REMOVED: {'; '.join(f'{name}: {why}' for name, why in failed.items())}")

    def _remove(self, deadline: Deadline) -> dict[str, str]:
        """Reasons why things stayed, by name. Groups of static members are empty after their sessions."""
        try:
            topics = self._owned(self._admin.list_topics(timeout=TIMEOUT_S).topics)
            listed = self._admin.list_consumer_groups(request_timeout=TIMEOUT_S).result(2 * TIMEOUT_S)
        except (KafkaException, TimeoutError) as error:
            return {self.prefix: str(error)}
        failed: dict[str, str] = {}
        if topics:
            failed |= _failures(self._admin.delete_topics(topics, operation_timeout=TIMEOUT_S))
        groups = self._owned(group.group_id for group in listed.valid)
        while groups and (
            left := _failures(self._admin.delete_consumer_groups(groups, request_timeout=TIMEOUT_S))
        ):
            if deadline.passed:
                return failed | left
            time.sleep(deadline.left_s(RETRY_AFTER_S))
        return failed

    def _owned(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name.startswith(self.prefix)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and (failed := self._remove(Deadline(0))):
            print(f"NOT REMOVED: {'; '.join(failed)}")

    def _fitting(self, topic: TopicSpec) -> TopicSpec:
        replicas = min(topic.replication_factor, len(self.brokers))
        configs = dict(topic.configs)
        if IN_SYNC in configs:
            configs[IN_SYNC] = str(min(int(configs[IN_SYNC]), max(1, replicas - 1)))
        return replace(topic, replication_factor=replicas, configs=configs)


def _failures(futures: Mapping[str, Future[Any]]) -> dict[str, str]:
    """Why, by name."""
    failed: dict[str, str] = {}
    for name, future in futures.items():
        try:
            future.result(2 * TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in _GONE:
                failed[name] = _text(error)
        except TimeoutError:
            failed[name] = "no answer"
    return failed


def _text(error: KafkaException) -> str:
    return str(error.args[0].str())
