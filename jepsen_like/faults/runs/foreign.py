"""A cluster that somebody else runs: what a run makes there has names of its own, and is removed again.

All names begin with a prefix that no topic there has had before. Decides how many replicas a topic has on so
many brokers, which groups are possible, and what may be removed: only what a run has asked for.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic

from pykraft.jepsen_like.faults.clients.names import Names, Sort
from pykraft.jepsen_like.faults.history import Recorder
from pykraft.jepsen_like.faults.runs.belongings import Belongings, forget, keep, left_behind
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
    """``directory`` is the run's. Use as a context manager: an exception removes what has been made, and else
    :meth:`tidy_up` must be called."""

    def __init__(self, bootstrap_servers: str, directory: Path) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.brokers: tuple[int, ...] = ()
        self.names = Names(f"{PREFIX}{secrets.token_hex(4)}-", self._note)
        self._directory = directory
        self._made = Belongings.none_yet(bootstrap_servers)
        self._admin = _admin(bootstrap_servers)

    def connect(self) -> None:
        """Learn the brokers. :class:`ForeignClusterError` if nobody answers."""
        try:
            found = self._admin.list_topics(timeout=TIMEOUT_S)
        except KafkaException as error:
            raise ForeignClusterError(f"no cluster at {self.bootstrap_servers}: {_text(error)}") from error
        self.brokers = tuple(sorted(found.brokers))
        if taken := [topic for topic in found.topics if topic.startswith(self.names.prefix)]:
            raise ForeignClusterError(f"there is already a topic {taken[0]}")

    def settings(self) -> dict[str, object]:
        """For the history, in the place of those of a run with nodes of its own."""
        return {
            "nemesis": "none",
            "tier": None,
            "system": "somebody else's",
            "nodes": len(self.brokers),
            "prefix": self.names.prefix,
        }

    def create(self, topics: Sequence[TopicSpec], history: Recorder) -> None:
        """Create a workload's topics under their names here, with no more replicas than there are brokers.
        :class:`ForeignClusterError`."""
        wanted = []
        for topic in map(self._fitting, topics):
            name, configs = self.names.new_topic(topic.name), dict(topic.configs)
            wanted.append(NewTopic(name, topic.partitions, topic.replication_factor, config=configs))
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
            say(f"topics and groups are kept on the cluster: {keep(self._directory)}")
        else:
            self._remove(say, MEMBERS_GONE_S)

    def _remove(self, say: Callable[[str], None], patience_s: float) -> None:
        if failed := _remove(self._admin, self._made, patience_s):
            say(f"NOT REMOVED: {'; '.join(failed)}")
        else:
            forget(self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._remove(print, patience_s=0)

    def _note(self, sort: Sort, name: str) -> None:
        self._made.note(sort, name)
        self._made.write(self._directory)

    def _fitting(self, topic: TopicSpec) -> TopicSpec:
        replicas = min(topic.replication_factor, len(self.brokers))
        configs = dict(topic.configs)
        if IN_SYNC in configs:
            configs[IN_SYNC] = str(min(int(configs[IN_SYNC]), max(1, replicas - 1)))
        return replace(topic, replication_factor=replicas, configs=configs)


def remove_left_behind(out_dir: Path, say: Callable[[str], None]) -> None:
    """Remove what runs below ``out_dir`` that were killed have left on clusters; each is told to ``say``."""
    for directory, made in left_behind(out_dir):
        failed = _remove(_admin(made.bootstrap_servers), made, patience_s=0)
        if failed:
            say(f"NOT REMOVED, left behind by the run in {directory}: {'; '.join(failed)}")
        else:
            forget(directory)
            say(f"removed {len(made.topics)} topics that the run in {directory} had left behind")


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


def _remove(admin: AdminClient, made: Belongings, patience_s: float) -> list[str]:
    """In words what could not be removed."""
    topics = [name for name in made.topics if name.startswith(PREFIX)]
    groups = [name for name in made.groups if name.startswith(PREFIX)]
    failed: dict[str, str] = {}
    if topics:
        failed |= _failures(admin.delete_topics(topics, operation_timeout=TIMEOUT_S))
    if groups:
        failed |= _remove_groups(admin, groups, Deadline(patience_s))
    return [f"{name}: {why}" for name, why in failed.items()]


def _remove_groups(admin: AdminClient, groups: list[str], deadline: Deadline) -> dict[str, str]:
    """Static members do not leave: their groups are empty when their sessions are over."""
    while failed := _failures(admin.delete_consumer_groups(groups, request_timeout=TIMEOUT_S)):
        if deadline.passed:
            return failed
        time.sleep(deadline.left_s(RETRY_AFTER_S))
    return {}


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
