"""Damaged and stray logs and their directories, which are set aside under another name and never deleted.

A damaged log is offline from when its damage is found until the replica starts over
(``replicas.lost_replicas``), also across restarts: a directory that was set aside, without a new one in its
place, means that the replica has not started over yet. This module handles names and files; it decides
nothing about replicas.
"""

from __future__ import annotations

import re

from pykraft.kafka_protocol.ids import Uuid
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.checkpoint import read_partition_metadata
from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.log_store.log.log import rename_directory, renamed_directory
from pykraft.runtime.disk import Disk, UnreadableError

DAMAGED_SUFFIX = "-damaged"
STRAY_SUFFIX = "-stray"
_SET_ASIDE = re.compile(r"(.+)-(\d+)\.(\d{8})" + DAMAGED_SUFFIX)

TopicPartition = tuple[str, int]


@dataclass(slots=True, eq=False)
class OfflineLog:
    """A log that is no longer used.

    ``topic_id`` is None if it could not be read. ``directory`` is where the log is (or should be); None if it
    does not exist. ``partition_epoch``: from this one on the controller does not count on this replica; None
    until it has confirmed the loss.
    """

    topic_id: Uuid | None
    log_dir: str
    directory: str | None
    reason: str
    is_set_aside: bool = False
    partition_epoch: int | None = None


def read_topic_id(disk: Disk, directory: str) -> Uuid | None:
    """The topic id of a partition directory; None if it is missing or cannot be read."""
    try:
        return read_partition_metadata(disk, directory)
    except (FileNotFoundError, CorruptCheckpointError, UnreadableError):
        return None


def set_aside(disk: Disk, offline: OfflineLog) -> None:
    """Rename the directory, durably, to an unused name. Blocks."""
    if not offline.is_set_aside and offline.directory is not None:
        number = 0
        taken = {_number(name) for name in disk.list(offline.log_dir)}
        while number in taken:
            number += 1
        if disk.is_dir(offline.directory):
            target = renamed_directory(offline.directory, f".{number:08d}{DAMAGED_SUFFIX}")
            rename_directory(disk, offline.directory, target)
            offline.directory = target
        else:
            offline.directory = None
    offline.is_set_aside = True


def rename_stray(disk: Disk, directory: str, topic_id: Uuid | None) -> None:
    """Rename the directory of a log that no replica uses, durably: it may be the last copy. Blocks."""
    name = "unknown" if topic_id is None else topic_id.hex()
    target, number = renamed_directory(directory, f".{name}{STRAY_SUFFIX}"), 0
    while disk.exists(target):
        number += 1
        target = renamed_directory(directory, f".{name}.{number}{STRAY_SUFFIX}")
    rename_directory(disk, directory, target)


def find_set_aside(disk: Disk, log_dir: str) -> dict[TopicPartition, OfflineLog]:
    """The newest set-aside directory of each partition. Blocks."""
    found: dict[TopicPartition, OfflineLog] = {}
    for name in sorted(disk.list(log_dir), key=_number):
        match = _SET_ASIDE.fullmatch(name)
        if match is not None:
            path = f"{log_dir}/{name}"
            reason = f"set aside as {path}"
            found[match[1], int(match[2])] = OfflineLog(
                read_topic_id(disk, path), log_dir, path, reason, is_set_aside=True
            )
    return found


def size_bytes(disk: Disk, directory: str) -> int:
    """The total size of the segments in a directory. Blocks."""
    names = [name for name in disk.list(directory) if name.endswith(".log")]
    total = 0
    for name in names:
        file = disk.open(f"{directory}/{name}", create=False)
        total += file.size()
        file.close()
    return total


def _number(name: str) -> int:
    """The number of a directory that was set aside; -1 for others."""
    match = re.search(r"\.(\d{8})" + DAMAGED_SUFFIX + "$", name)
    return -1 if match is None else int(match[1])
