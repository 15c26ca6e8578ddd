"""The mark of a log that a copy in another log directory is about to replace: an empty file in its directory.

``moved-to-<id of the other directory>`` is durable before the copy takes the log's place. So a start that
finds the log without the other one, whose directory may just have failed, knows that it may lack what was
acknowledged since; and a log without a mark is the replica's, whatever the controller has been told. While
the copy still has the name of a copy (:mod:`.future_log`), the log is what it was, and the mark goes.

Kafka has no such file and passes over it. The file is empty since its disk may be full: logs are moved for
that reason, too.
"""

from __future__ import annotations

import re
from typing import Final

from pykraft.kafka_protocol.ids import Uuid, uuid_from_str, uuid_to_str
from pykraft.runtime.disk import Disk

_NAME: Final = re.compile(r"moved-to-([A-Za-z0-9_-]{22})")


def mark(disk: Disk, directory: str, target: Uuid) -> None:
    """A copy in the log directory ``target`` may take this log's place from now on. Blocks."""
    disk.open(f"{directory}/moved-to-{uuid_to_str(target)}").close()
    disk.flush_dir(directory)


def unmark(disk: Disk, directory: str) -> None:
    """No copy has taken the log's place, and none is about to. Blocks."""
    marks = _marks(disk, directory)
    for found in marks:
        disk.remove(f"{directory}/{found[0]}")
    if marks:
        disk.flush_dir(directory)


def marked_for(disk: Disk, directory: str) -> Uuid | None:
    """The log directory in which a copy may have taken this log's place; None if there is none. Blocks."""
    return next((uuid_from_str(found[1]) for found in _marks(disk, directory)), None)


def _marks(disk: Disk, directory: str) -> list[re.Match[str]]:
    return [found for name in disk.list(directory) if (found := _NAME.fullmatch(name)) is not None]
