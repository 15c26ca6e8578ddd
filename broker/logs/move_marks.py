"""The mark of a log that a copy in another log directory is about to replace: an empty file in its directory.

``moved-to-<id of the other directory>.<unique part of the copy's name>`` is durable before the copy takes the
log's place. So a start that finds the log without the other one, whose directory may just have failed, knows
that it may lack what was acknowledged since. While the copy still has the name of a copy
(:mod:`.future_log`), the log is what it was: the mark goes, and only when that is durable, the copy. A log
with a mark left may have been replaced.

Kafka has no such file and passes over it. The file is empty since its disk may be full: logs are moved for
that reason, too.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from pykraft.kafka_protocol.ids import Uuid, uuid_from_str, uuid_to_str
from pykraft.runtime.disk import Disk

_NAME: Final = re.compile(r"moved-to-([A-Za-z0-9_-]{22})\.([0-9a-f]{32})")


class Mark(NamedTuple):
    """The copy that may have taken a log's place: the id of its log directory, and 32 hex digits."""

    directory: Uuid
    unique: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"moved-to-{uuid_to_str(self.directory)}.{self.unique}"


def write_mark(disk: Disk, log_path: str, mark: Mark) -> None:
    """Durable on return. Blocks."""
    disk.open(f"{log_path}/{mark.name}").close()
    disk.flush_dir(log_path)


def remove_mark(disk: Disk, log_path: str, mark: Mark) -> None:
    """Durable on return, also if there is none any more: its removal may not have been. Blocks."""
    if disk.exists(f"{log_path}/{mark.name}"):
        disk.remove(f"{log_path}/{mark.name}")
    disk.flush_dir(log_path)


def read_marks(disk: Disk, log_path: str) -> frozenset[Mark]:
    """The marks of a log. Blocks."""
    found = map(_NAME.fullmatch, disk.list(log_path))
    return frozenset(Mark(uuid_from_str(name[1]), name[2]) for name in found if name is not None)
