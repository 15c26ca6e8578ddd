"""The small text files beside the segments, in Kafka's formats, all replaced atomically.

``recovery-point-offset-checkpoint``, ``replication-offset-checkpoint`` and ``log-start-offset-checkpoint``
(one line per partition of a log directory), ``partition.metadata`` (the topic id of one partition
directory) and the clean-shutdown marker. A malformed file is an error, never an empty one: a recovery point
or a high watermark that silently starts at zero would hide the damage.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pykraft.kafka_protocol.ids import Uuid, uuid_from_str, uuid_to_str
from pykraft.log_store.interface import CorruptCheckpointError
from pykraft.runtime.disk import Disk, UnreadableError

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
GAP_OFFSET_CHECKPOINT = "gap-offset-checkpoint"
"""Below which offsets Kafka's compaction may have left gaps. Kafka has no such file."""
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    """Version 0, the number of lines, the lines."""
    entries = list(lines)
    return "\n".join(["0", str(len(entries)), *entries, ""]).encode("utf-8")


def decode_checkpoint(data: bytes, path: str) -> list[list[str]]:
    """The lines split at spaces. :class:`CorruptCheckpointError` unless version and count agree."""
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(path, str(error)) from None
    if not lines or lines[0] != "0":
        raise CorruptCheckpointError(path, f"version is {lines[0] if lines else 'missing'!r}, known is '0'")
    entries = [line.split(" ") for line in lines[2:] if line]
    if len(lines) < 2 or lines[1] != str(len(entries)):
        raise CorruptCheckpointError(path, f"the count line is not {len(entries)}")
    return entries


def read_offset_checkpoint(disk: Disk, path: str) -> dict[tuple[str, int], int]:
    """(topic, partition) → offset; empty when the file does not exist.

    Kafka creates that of the cleaner with nothing in it.
    """
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return {}
    if not data and path.endswith(f"/{CLEANER_OFFSET_CHECKPOINT}"):
        return {}
    offsets: dict[tuple[str, int], int] = {}
    for entry in decode_checkpoint(data, path):
        try:
            topic, partition, offset = entry
            offsets[(topic, int(partition))] = int(offset)
        except ValueError:
            raise CorruptCheckpointError(path, f"malformed line {' '.join(entry)!r}") from None
    return offsets


def write_offset_checkpoint(disk: Disk, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Replace the file; durable on return."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    disk.write_atomic(path, encode_checkpoint(lines))


def read_partition_metadata(disk: Disk, directory: str) -> Uuid:
    """The topic id of a partition directory. :class:`FileNotFoundError` if it has none."""
    path = f"{directory}/{PARTITION_METADATA}"
    values = parse_properties(disk.read(path), path, separator=":")
    try:
        if values["version"] != "0":
            raise CorruptCheckpointError(path, f"version is {values['version']!r}, known is '0'")
        return uuid_from_str(values["topic_id"])
    except KeyError as missing:
        raise CorruptCheckpointError(path, f"{missing} is missing") from None
    except ValueError as error:
        raise CorruptCheckpointError(path, str(error)) from None


def write_partition_metadata(disk: Disk, directory: str, topic_id: Uuid) -> None:
    """Durable on return; the directory must exist."""
    text = f"version: 0\ntopic_id: {uuid_to_str(topic_id)}\n"
    disk.write_atomic(f"{directory}/{PARTITION_METADATA}", text.encode("ascii"))


def parse_properties(data: bytes, path: str, *, separator: str = "=") -> dict[str, str]:
    """``key<separator>value`` lines without blanks and comments; Java's ``\\=`` and ``\\:`` unescaped."""
    values: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        text = line.strip()
        if not text or text[0] in "#!":
            continue
        key, found, value = text.partition(separator)
        if not found:
            raise CorruptCheckpointError(path, f"malformed line {line!r}")
        values[key.strip()] = value.strip().replace("\\=", "=").replace("\\:", ":")
    return values


def write_clean_shutdown(disk: Disk, log_directory: str, broker_epoch: int = -1) -> None:
    """Mark that every log in the directory was flushed and closed. The last write of an orderly stop."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    disk.write_atomic(f"{log_directory}/{CLEAN_SHUTDOWN}", content.encode("ascii"))


def read_clean_shutdown(disk: Disk, log_directory: str) -> int | None:
    """The broker epoch in the marker (-1 unknown), or None after an unclean stop.

    An unreadable marker still counts as present: only its existence matters.
    """
    try:
        content = json.loads(disk.read(f"{log_directory}/{CLEAN_SHUTDOWN}") or b"{}")
        return int(content["brokerEpoch"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, UnreadableError):
        return -1


def remove_clean_shutdown(disk: Disk, log_directory: str) -> None:
    """Remove the marker, durably, before the first append of a new run."""
    disk.remove(f"{log_directory}/{CLEAN_SHUTDOWN}")
    disk.flush_dir(log_directory)
