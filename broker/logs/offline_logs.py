"""Logs that are damaged, and what becomes of their directories: set aside under another name, never deleted.

A log is offline from when its damage is found until the replica begins anew (``replicas.lost_replicas``),
across restarts too: a directory that was set aside, without a new one in its place, says that the replica
has not begun anew yet. Only names and files here; nothing is decided about replicas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pykraft.kafka_protocol.ids import Uuid
from pykraft.log_store.checkpoint import read_partition_metadata
from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.log_store.log import rename_directory, renamed_directory
from pykraft.runtime.disk import Disk, UnreadableError

DAMAGED_SUFFIX = "-damaged"
_SET_ASIDE = re.compile(r"(.+)-(\d+)\.(\d{8})" + DAMAGED_SUFFIX)

TopicPartition = tuple[str, int]


@dataclass(slots=True, eq=False)
class OfflineLog:
    """A log that is not used any more.

    ``topic_id`` is None where it could not be read, ``directory`` where the log lies (or should), None if
    there is none at all. ``partition_epoch``: from this one on the controller counts on the replica
    nowhere; None as long as it has not said so.
    """

    topic_id: Uuid | None
    log_dir: str
    directory: str | None
    reason: str
    is_set_aside: bool = False
    partition_epoch: int | None = None


def read_topic_id(disk: Disk, directory: str) -> Uuid | None:
    """The topic id of a partition directory, None if there is none that can be read."""
    try:
        return read_partition_metadata(disk, directory)
    except (FileNotFoundError, CorruptCheckpointError, UnreadableError):
        return None


def set_aside(disk: Disk, offline: OfflineLog) -> None:
    """Rename the directory, durably, to a name that no other has. Blocks."""
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


def find_set_aside(disk: Disk, log_dir: str) -> dict[TopicPartition, OfflineLog]:
    """The newest directory that was set aside for each partition. Blocks."""
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
    """The segments in a directory, together. Blocks."""
    names = [name for name in disk.list(directory) if name.endswith(".log")]
    total = 0
    for name in names:
        file = disk.open(f"{directory}/{name}", create=False)
        total += file.size()
        file.close()
    return total


def _number(name: str) -> int:
    """Of a directory that was set aside; -1 for others."""
    match = re.search(r"\.(\d{8})" + DAMAGED_SUFFIX + "$", name)
    return -1 if match is None else int(match[1])
