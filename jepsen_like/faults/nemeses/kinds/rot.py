"""Files of one replica that rot: which, how they are changed, and whether they still are.

Files of the metadata log are left alone: a node that cannot read them does not start, as is documented, and
it is the operator who replaces them. So are transaction indexes, since what hides a transaction there is
found by nothing but the scrub. In checkpoint files of text, which have no checksum, only such bits are
flipped as no text has: another digit is another valid offset. The base offset and the leader epoch of a batch
are not in its CRC: followers and the scrub notice another one, clients cannot. They are not flipped.
"""

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pykraft.kafka_protocol.primitives import ProtocolError
from pykraft.kafka_protocol.records import crc_is_valid, iter_headers
from pykraft.log_store.checkpoint import (
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from pykraft.log_store.epoch_cache import LEADER_EPOCH_CHECKPOINT
from pykraft.log_store.interface import METADATA_LOG_DIRECTORY

SEGMENTS: Final[Sequence[str]] = ("*.log",)
OF_A_LOG: Final[Sequence[str]] = (
    "*.log",
    "*.index",
    "*.timeindex",
    "*.snapshot",
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
)
CHECKPOINTS: Final[Sequence[str]] = (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
_IN_NO_TEXT: Final = 7
"""This bit of a byte is set in no ASCII text."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A file that was changed. ``size_bytes`` and ``changed`` (position and byte) are as it was left."""

    path: Path
    what: str
    inode: int
    size_bytes: int
    changed: tuple[tuple[int, int], ...] = ()

    @property
    def is_found(self) -> bool:
        """Whether it is repaired, or need not be found by a running node that has scrubbed its logs: other
        files than segments and indexes are read at a start only, and the scrub leaves the index of a segment
        that still grows to those who read with it."""
        if self.path.suffix == ".log":
            return find_fault(self.path.parent) is None
        if self.path.suffix not in (".index", ".timeindex") or not self._is_of_a_sealed_segment:
            return True
        try:
            data = self.path.read_bytes()
            is_another_file = self.path.stat().st_ino != self.inode
        except FileNotFoundError:
            return True
        if self.changed:
            return is_another_file or any(data[at : at + 1] != bytes([byte]) for at, byte in self.changed)
        return is_another_file or len(data) != self.size_bytes

    @property
    def _is_of_a_sealed_segment(self) -> bool:
        return any(segment.stem > self.path.stem for segment in self.path.parent.glob("*.log"))


def replicas(log_dir: Path) -> Iterator[Path]:
    """The directories of the partitions of which a node has a replica with records."""
    for path in sorted(log_dir.iterdir()):
        is_in_use = path.name.rpartition("-")[2].isdigit() and path.name != METADATA_LOG_DIRECTORY
        if is_in_use and any(segment.stat().st_size for segment in path.glob("*.log")):
            yield path


def find_fault(directory: Path) -> str | None:
    """Return what is wrong with a partition's segments, by their bytes; the last batch may be incomplete."""
    expected, epoch = None, -1
    try:
        for segment in sorted(directory.glob("*.log")):
            data, end = memoryview(segment.read_bytes()), 0
            for position, header in iter_headers(data):
                if not crc_is_valid(data, position, header):
                    return f"{segment}: wrong CRC at {position}"
                if expected is not None and header.base_offset != expected:
                    return f"{segment}: offset {header.base_offset} follows {expected - 1}"
                if header.partition_leader_epoch < epoch:
                    return f"{segment}: epoch {header.partition_leader_epoch} follows {epoch}"
                expected, epoch = header.next_offset, header.partition_leader_epoch
                end = position + header.size_bytes
            if end < len(data):
                return f"{segment}: part of a batch at {end}"
    except ProtocolError as error:
        return f"{directory}: {error}"
    except FileNotFoundError:
        return None  # set aside, or a segment was deleted, just now
    return None


def find_file(directory: Path, patterns: Sequence[str], rng: random.Random) -> Path:
    """A file that is not empty. :class:`FileNotFoundError` if there is none."""
    for pattern in rng.sample(patterns, len(patterns)):
        files = [path for path in sorted(directory.glob(pattern)) if path.stat().st_size]
        if files:
            return rng.choice(files)
    raise FileNotFoundError(f"{directory} has no files of {patterns}")


def flip_bits(path: Path, count: int, rng: random.Random) -> Damage:
    """Change one bit of each of ``count`` bytes of a file, or of as many as it has, in place, beneath anyone
    who has it open. :class:`FileNotFoundError` if it is empty."""
    data = _contents(path)
    spared = set(_not_in_a_crc(data)) if path.suffix == ".log" else ()
    there = [position for position in range(len(data)) if position not in spared]
    changed: dict[int, int] = {}
    with path.open("r+b") as file:
        for position in sorted(rng.sample(there, min(count, len(there)))):
            bit = _IN_NO_TEXT if path.name in CHECKPOINTS else rng.randrange(8)
            changed[position] = data[position] ^ 1 << bit
            file.seek(position)
            file.write(bytes([changed[position]]))
    what = f"bits flipped in bytes {', '.join(map(str, changed))} of {len(data)}"
    return Damage(path, what, path.stat().st_ino, len(data), tuple(changed.items()))


def _contents(path: Path) -> bytes:
    data = path.read_bytes()
    if not data:
        raise FileNotFoundError(f"{path} has been emptied")
    return data


def _not_in_a_crc(data: bytes) -> Iterator[int]:
    with contextlib.suppress(ProtocolError):  # damaged already, from here on
        for position, _ in iter_headers(data):
            yield from range(position, position + 8)
            yield from range(position + 12, position + 16)


def cut(path: Path, rng: random.Random, *, middle: bool) -> Damage:
    """Cut off a file's end, or out of its middle. :class:`FileNotFoundError` if there is nothing in it."""
    data = _contents(path)
    begin = rng.randrange(len(data))
    end = rng.randrange(begin + 1, len(data) + 1) if middle else len(data)
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(data[end:])
        file.truncate()
    what = f"bytes {begin} to {end} of {len(data)} taken away"
    return Damage(path, what, path.stat().st_ino, len(data) - (end - begin))
