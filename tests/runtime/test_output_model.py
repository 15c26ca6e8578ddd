"""The output queue of a connection by seed: chunks of memory and file ranges, and a sink that takes a little
at a time. What arrives is what was added, once and in order, and nothing that was sent is still counted.
"""

from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pytest

from pykraft.runtime.network.streams import OutputQueue, Pieces
from pykraft.runtime.simulated.memory_disk import MemoryDisk, MemoryFile

CONTENT = bytes(i * 7 % 251 for i in range(200_000))


class SlowFile(MemoryFile):
    """Reads may return less than asked for."""

    rng: Random

    def pread_into(self, position: int, buffer: memoryview) -> int:
        return super().pread_into(position, buffer[: self.rng.choice((1, 100, 10_000, 300_000))])


@dataclass(frozen=True)
class Slice:
    file: MemoryFile
    position: int
    size_bytes: int


class World:
    """A queue, and the sink that it is pumped into."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        disk = MemoryDisk()
        disk.open("f").append(CONTENT)
        self.file = SlowFile(disk, "f", disk.open("f")._inode)
        self.file.rng = self.rng
        self.queue = OutputQueue(memoryview(bytearray(self.rng.choice((64, 4_096, 256 * 1024)))))
        self.added = bytearray()
        self.arrived = bytearray()
        self.in_memory: list[tuple[int, int]] = []  # (end in the output, size)

    # -- the sink --------------------------------------------------------------------------------------

    def _take(self, offered: int) -> int:
        return min(offered, self.rng.choice((0, 1, 50, 3_000, 3_000, 400_000)))

    def send(self, view: memoryview, more: bool) -> int:
        count = self._take(len(view))
        self.arrived += view[:count]
        return count

    def send_file(self, file: object, position: int, length_bytes: int) -> int | None:
        if self.rng.random() < 0.5:
            return None
        count = self._take(length_bytes)
        self.arrived += CONTENT[position : position + count]
        return count

    def close(self) -> None: ...

    # -- the run ---------------------------------------------------------------------------------------

    def add(self) -> None:
        size = self.rng.choice((0, 3, 90, 300, 5_000, 70_000))
        position = self.rng.randrange(len(CONTENT) - size)
        data = CONTENT[position : position + size]
        self.added += data
        kind = self.rng.random()
        if kind < 0.3:
            self.queue.add([data])
            self.in_memory.append((len(self.added), size))
        elif kind < 0.5:
            self._add_pieces(data)
        else:
            self.queue.add([Slice(self.file, position, size)])

    def _add_pieces(self, data: bytes) -> None:
        """The data in one chunk of some pieces, some of them empty."""
        cuts = sorted([0, len(data), *(self.rng.randint(0, len(data)) for _ in range(self.rng.randrange(5)))])
        pieces = [data[start:end] for start, end in pairwise(cuts)]
        self.queue.add([Pieces(pieces, len(data))])
        start = len(self.added) - len(data)
        self.in_memory += [(start + end, end - begin) for begin, end in pairwise(cuts)]

    def pump(self) -> None:
        before = len(self.arrived)
        sent, is_blocked = self.queue.pump(self, self.rng.choice((1, 256 * 1024)))
        assert sent == len(self.arrived) - before
        assert not is_blocked or self.queue.pending_chunks, "a queue without output is not blocked"
        assert self.added[before : len(self.arrived)] == self.arrived[before:], "other bytes were sent"
        self.in_memory = [(end, size) for end, size in self.in_memory if end > len(self.arrived)]
        unsent = sum(size for _, size in self.in_memory)
        assert self.queue.memory_bytes == unsent, "memory that was sent is counted"

    def run(self) -> None:
        for _ in range(25):
            for _ in range(self.rng.randrange(4)):
                self.add()
            self.pump()
        for _ in range(100_000):
            if not self.queue.pending_chunks:
                break
            self.pump()
        assert self.arrived == self.added


@pytest.mark.parametrize("seed", range(30))
def test_output_arrives_once_and_in_order_however_little_is_taken(seed: int) -> None:
    World(seed).run()
