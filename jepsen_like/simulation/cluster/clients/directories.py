"""Moves of logs between the directories of a broker, and the invariants of where logs are.

Administrators ask a broker to move logs to other directories, cancel moves by asking for the present
directory, and limit how fast they are. When all faults have ended, every move ends within a bound: then each
replica is in exactly one directory, which the controller knows, and DescribeLogDirs says so, too.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from pykraft.jepsen_like.faults.workloads.append import AppendConfig
from pykraft.jepsen_like.simulation.cluster.settings import data_dirs
from pykraft.jepsen_like.simulation.violation import InvariantViolation
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode
from pykraft.kafka_protocol.messages.cluster import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from pykraft.metadata_log.controller.elections import iter_partitions
from pykraft.metadata_log.records import UNASSIGNED_DIRECTORY

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.clients.settings_admin import SettingsAdmin
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.cluster.requests import ClientRequests
    from pykraft.jepsen_like.simulation.cluster.world import World

ONE_DIRECTORY: Final = "a replica is in one directory, which the controller and DescribeLogDirs name"
RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
MOVES_WITHIN_MS: Final = 25_000
"""More than the longest pause between two reports of directories to the controller."""

_RATES: Final = (None, "500", "20000")
_QUIET: Final = AppendConfig().topic
"""The topic whose logs no longer change when the workload has ended."""

Replica = tuple[str, int]


class Directories:
    """Administrators' requests about directories, and the checks at the end."""

    def __init__(self, world: World, requests: ClientRequests, settings: SettingsAdmin) -> None:
        self._world = world
        self._requests = requests
        self._settings = settings
        self._rng = random.Random(f"log moves {world.seed}")
        self.checked: set[int] = set()
        """The brokers whose directories agree with their disks."""
        self.differences: dict[int, str] = {}
        """Those of the others, at the last comparison: what a late request did just then is no violation."""

    # --- requests ---------------------------------------------------------------------------------------

    async def move_log(self, node: SimNode) -> None:
        """Have a broker move one of its logs to any of its directories, seldom to one that it has not."""
        rng, paths = self._rng, data_dirs(self._world.options)
        found = [
            (topic.name, index)
            for topic, index, partition in iter_partitions(node.image)
            if node.id in partition.replicas
        ]
        if not found:
            return
        name, index = rng.choice(found)
        path = rng.choice(paths) if rng.random() < 0.95 else "/elsewhere"
        topic = AlterReplicaLogDirTopic(name=name, partitions=[index])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        response = await self._requests.call(node, request)
        answer = response.results[0].partitions[0]
        self._requests.note(f"move to {path} of broker {node.id}", f"{name}-{index}", answer.error_code)
        if answer.error_code == ErrorCode.NONE and path not in paths:
            self._fail(f"broker {node.id} moves {name}-{index} to {path}, which it has not")

    async def limit_moves(self, node: SimNode) -> None:
        """Limit how fast a broker, or every broker, moves logs; or lift the limit."""
        broker = self._rng.choice(("", *(str(one.id) for one in self._world.brokers)))
        await self._settings.set(node, ConfigResourceType.BROKER, broker, RATE, self._rng.choice(_RATES))

    # --- the end ----------------------------------------------------------------------------------------

    def find_unfinished(self) -> str | None:
        """A move under way, or a log that the controller knows elsewhere, that is left, or to be opened."""
        for node in self._world.brokers:
            logs = node.logs
            for name, index in sorted(logs.futures.keys() | (logs.wanted_dirs.keys() & logs.logs.keys())):
                return f"the move of {name}-{index} at broker {node.id} to {logs.wanted_dirs}"
            for topic_id, topic in self._world.checker.model.topics.items():
                for index, partition in enumerate(topic.partitions):
                    if node.id not in partition.replicas or (topic.name, index) in logs.offline:
                        continue
                    opened = logs.logs.get((topic.name, index))
                    if opened is None or opened.topic_id != topic_id:
                        return f"{topic.name}-{index} of broker {node.id} is not open"
                    known = logs.dirs.path_of(partition.directories.get(node.id, UNASSIGNED_DIRECTORY))
                    if known != opened.log_dir:
                        return f"{topic.name}-{index} of broker {node.id}: {opened.log_dir}, known is {known}"
            for path in data_dirs(self._world.options):
                used = {key for key, opened in logs.logs.items() if opened.log_dir == path}
                if differ := used ^ node.disk.log_sizes(path).keys():
                    return f"{path} of broker {node.id}: {sorted(differ)}"
        return None

    async def check(self, node: SimNode) -> None:
        """Compare the disk of a broker with its answer."""
        response = await self._requests.call(node, DescribeLogDirsRequest(topics=None))
        difference = self._find_difference(node, response)
        if difference is None:
            self.checked.add(node.id)
        else:
            self.differences[node.id] = difference

    def fail(self) -> None:
        """The brokers that were not checked differ for good."""
        for node_id, difference in sorted(self.differences.items()):
            if node_id not in self.checked:
                self._fail(difference)

    def _find_difference(self, node: SimNode, response: DescribeLogDirsResponse) -> str | None:
        described = {one.log_dir: one for one in response.results if one.error_code == ErrorCode.NONE}
        there: dict[Replica, list[str]] = {}
        for path in data_dirs(self._world.options):
            if path not in described:
                return f"broker {node.id} does not describe {path}: {response.results}"
            on_disk = node.disk.log_sizes(path)
            for replica in on_disk:
                there.setdefault(replica, []).append(path)
            difference = _compare(node, path, on_disk, described[path])
            if difference is not None:
                return difference
        for replica, paths in there.items():
            if len(paths) > 1:
                return f"{replica[0]}-{replica[1]} of broker {node.id} is in {paths}"
        return None

    def _fail(self, detail: str) -> None:
        violation = InvariantViolation(ONE_DIRECTORY, detail)
        self._world.failed(violation)
        raise violation


def _compare(
    node: SimNode, path: str, on_disk: dict[Replica, int], described: DescribeLogDirsResult
) -> str | None:
    listed = {
        (topic.name, replica.partition_index): replica
        for topic in described.topics
        for replica in topic.partitions
    }
    if listed.keys() != on_disk.keys() or any(replica.is_future_key for replica in listed.values()):
        differ = sorted(listed.keys() ^ on_disk.keys())
        return f"broker {node.id} describes {path} with {sorted(listed)}; on the disk differ {differ}"
    for replica, size_bytes in on_disk.items():
        if replica[0] == _QUIET and listed[replica].partition_size != size_bytes:
            return f"broker {node.id} describes {replica} in {path} as {listed[replica]}, it has {size_bytes}"
    return None
