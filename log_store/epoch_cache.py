"""The start offset of each leader epoch (KIP-101, KIP-279, KIP-320), and where an epoch ends.

Entries rise strictly in both epoch and start offset. They are an immutable tuple that is swapped, so that a
flush in another thread can write the version it was given. The file is Kafka's ``leader-epoch-checkpoint``.
It need not be written when an epoch begins: entries at or above the recovery point are rebuilt from the
batch headers after an unclean stop, and no flush moves the recovery point past an entry that is not on disk.
If the file is damaged, all of them are.
"""

from __future__ import annotations

from bisect import bisect_right

from pykraft.kafka_protocol.records import BatchHeader
from pykraft.lazy_dataclass import dataclass
from pykraft.log_store.checkpoint import decode_checkpoint, encode_checkpoint
from pykraft.log_store.interface import CorruptCheckpointError, EpochEnd
from pykraft.runtime.disk import Disk, UnreadableError

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
UNKNOWN = EpochEnd(-1, -1)


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """The first offset written in a leader epoch."""

    epoch: int
    start_offset: int


Epochs = tuple[EpochEntry, ...]
"""The epochs of one log at one moment, oldest first: another thread can read it."""


class LeaderEpochCache:
    """The epochs of one log, oldest first in ``entries``."""

    __slots__ = ("entries", "path", "persisted")

    def __init__(self, path: str, entries: Epochs = ()) -> None:
        self.path = path
        self.entries = entries
        self.persisted: Epochs = entries

    @classmethod
    def load(cls, disk: Disk, directory: str) -> LeaderEpochCache:
        """Read the checkpoint of a log; empty when there is none, or none that can be read.

        Opening the log compares the entries with its batches (:mod:`.opening`).
        """
        path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        try:
            return cls(path, decode_entries(disk.read(path), path))
        except (FileNotFoundError, CorruptCheckpointError, UnreadableError):
            return cls(path)

    @property
    def latest_epoch(self) -> int:
        """The newest epoch, -1 if there is none."""
        return self.entries[-1].epoch if self.entries else -1

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that ``epoch`` begins at ``start_offset``; returns whether that was new.

        Entries that contradict it (a later epoch, or a start at or after this one) are dropped: the log was
        truncated and grows again under another leader.
        """
        entries = self.entries
        if epoch < 0 or start_offset < 0:
            return False
        if entries and entries[-1].epoch == epoch and start_offset >= entries[-1].start_offset:
            return False
        kept = len(entries)
        while kept and (entries[kept - 1].epoch >= epoch or entries[kept - 1].start_offset >= start_offset):
            kept -= 1
        self.entries = (*entries[:kept], EpochEntry(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch not above ``epoch`` and the offset at which the next one starts."""
        entries = self.entries
        if epoch < 0 or not entries or epoch > entries[-1].epoch:
            return UNKNOWN
        if epoch == entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        next_index = bisect_right(entries, epoch, key=lambda entry: entry.epoch)
        end_offset = entries[next_index].start_offset
        if next_index == 0:
            # older than every known epoch: no record of it is at or after the oldest entry
            return EpochEnd(epoch, end_offset)
        return EpochEnd(entries[next_index - 1].epoch, end_offset)

    def epoch_for_offset(self, offset: int) -> int:
        """See :func:`epoch_for_offset`."""
        return epoch_for_offset(self.entries, offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at or after ``end_offset``."""
        entries = self.entries
        if entries and entries[-1].start_offset >= end_offset:
            self.entries = tuple(entry for entry in entries if entry.start_offset < end_offset)

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what lies before ``start_offset``; the epoch in force there now starts there."""
        entries = self.entries
        index = bisect_right(entries, start_offset, key=_start_of)
        if index > 1 or (index == 1 and entries[0].start_offset < start_offset):
            self.entries = (EpochEntry(entries[index - 1].epoch, start_offset), *entries[index:])

    def clear(self) -> None:
        self.entries = ()

    @property
    def is_dirty(self) -> bool:
        """Whether the entries differ from those last written."""
        return self.entries is not self.persisted


def epoch_for_offset(entries: Epochs, offset: int) -> int:
    """The epoch in which ``offset`` was (or would be) written, -1 if older than all entries."""
    index = bisect_right(entries, offset, key=_start_of)
    return entries[index - 1].epoch if index else -1


def find_wrong_epoch(entries: Epochs, header: BatchHeader) -> str | None:
    """How the leader epoch of a stored batch, which no CRC covers, differs from that of its offset."""
    expected = epoch_for_offset(entries, header.base_offset)
    if expected in (-1, header.partition_leader_epoch):
        return None
    return f"leader epoch is {header.partition_leader_epoch}, offset {header.base_offset} is of {expected}"


def _start_of(entry: EpochEntry) -> int:
    return entry.start_offset


def encode_entries(entries: Epochs) -> bytes:
    """Kafka's text: version, count, ``epoch start_offset`` lines."""
    return encode_checkpoint([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def decode_entries(data: bytes, path: str) -> Epochs:
    """:class:`CorruptCheckpointError` unless epochs and offsets both rise."""
    entries: list[EpochEntry] = []
    for line in decode_checkpoint(data, path):
        try:
            epoch, start_offset = (int(number) for number in line)
        except ValueError:
            raise CorruptCheckpointError(path, f"malformed line {' '.join(line)!r}") from None
        if entries and (epoch <= entries[-1].epoch or start_offset <= entries[-1].start_offset):
            raise CorruptCheckpointError(path, f"epoch {epoch} at offset {start_offset} is out of order")
        entries.append(EpochEntry(epoch, start_offset))
    return tuple(entries)
