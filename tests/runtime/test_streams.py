"""The output queue over sinks that accept any number of bytes, and the shared budget of a turn."""

import asyncio
import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.runtime.disk import DiskFile
from pykraft.runtime.network.file_slices import TruncatedSliceError, UnreadableSliceError
from pykraft.runtime.network.sinks import SocketSink
from pykraft.runtime.network.streams import OutputQueue
from pykraft.runtime.os_disk import OsDisk
from pykraft.runtime.simulated.memory_disk import MemoryDisk


@dataclass(frozen=True)
class Slice:
    file: DiskFile
    position: int
    size_bytes: int


class Sink:
    """Takes at most the next of ``limits`` bytes each time it is offered some."""

    def __init__(self, limits: list[int], takes_files: bool) -> None:
        self.limits = limits
        self.takes_files = takes_files
        self.got = bytearray()

    def _limit(self, offered: int) -> int:
        return min(offered, self.limits.pop(0) if self.limits else offered)

    def send(self, view: memoryview, more: bool) -> int:
        count = self._limit(len(view))
        self.got += view[:count]
        return count

    def send_file(self, file: DiskFile, position: int, length_bytes: int) -> int | None:
        if not self.takes_files:
            return None
        count = self._limit(length_bytes)
        self.got += file.pread(position, count)
        return count

    def close(self) -> None: ...


def make_file(content: bytes) -> Any:
    file = MemoryDisk().open("f")
    file.append(content)
    return file


FILE = make_file(bytes(i * 7 % 251 for i in range(400_000)))
chunks = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 90_000).map(lambda n: b"m" * n),
    st.tuples(st.integers(0, 200_000), st.integers(0, 200_000)).map(lambda t: Slice(FILE, *t)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(chunks, max_size=8), st.lists(st.integers(0, 70_000), max_size=30), st.booleans())
def test_everything_arrives_once_and_in_order(parts: list[Any], limits: list[int], takes_files: bool) -> None:
    queue = OutputQueue(memoryview(bytearray(256 * 1024)))
    sink = Sink(limits, takes_files)
    expected = b"".join(
        FILE.pread(p.position, p.size_bytes) if isinstance(p, Slice) else bytes(p) for p in parts
    )
    for at, part in enumerate(parts):
        queue.add([part])
        if at % 3 == 0:
            queue.pump(sink)
    for _ in range(200):
        if not queue.pending_chunks:
            break
        queue.pump(sink)
    assert bytes(sink.got) == expected
    assert (queue.pending_chunks, queue.memory_bytes) == (0, 0)


def test_bad_sector_is_reported_with_the_range_that_cannot_be_sent() -> None:
    disk = MemoryDisk()
    file = disk.open("f")
    file.append(b"x" * 100)
    disk.make_unreadable("f", 90)
    queue = OutputQueue(memoryview(bytearray(1000)))
    good, bad = Slice(file, 0, 50), Slice(file, 50, 50)
    queue.add([b"head", good, bad])
    with pytest.raises(UnreadableSliceError, match="f") as raised:
        queue.pump(Sink([], False))
    assert raised.value.chunk is bad and raised.value.errno == errno.EIO


def test_bad_sector_met_by_sendfile_is_left_to_a_reader(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = OsDisk().open(f"{tmp_path}/a")
    file.append(b"x" * 100)

    def broken(*_arguments: object) -> int:
        raise OSError(number, "planted")

    monkeypatch.setattr(os, "sendfile", broken)
    loop, (ours, theirs) = asyncio.new_event_loop(), socket.socketpair()
    sink = SocketSink(loop, True, ours.fileno(), lambda: None)
    try:
        number = errno.EIO
        assert sink.send_file(file, 0, 100) is None
        number = errno.EPIPE
        with pytest.raises(BrokenPipeError):
            sink.send_file(file, 0, 100)
    finally:
        sink.close()
        ours.close()
        theirs.close()
        loop.close()


def test_file_that_became_shorter_is_an_error_and_never_sends_other_bytes() -> None:
    file = make_file(b"x" * 100)
    queue = OutputQueue(memoryview(bytearray(1000)))
    queue.add([b"head", Slice(file, 50, 50)])
    file.truncate(80)
    with pytest.raises(TruncatedSliceError):
        queue.pump(Sink([], False))


def test_chunks_after_a_partly_sent_one_are_sent_whole() -> None:
    queue = OutputQueue(memoryview(bytearray(1024)))
    queue.add([b"abc", b"def", b"ghi"])
    sink = Sink([2, 1, 2], takes_files=False)
    while queue.pending_chunks:
        queue.pump(sink)
    assert bytes(sink.got) == b"abcdefghi"


def test_file_that_is_read_a_little_at_a_time_is_sent_whole() -> None:
    class Slow:
        path = "f"

        def pread_into(self, position: int, buffer: memoryview) -> int:
            piece = b"abcdefghij"[position : position + min(3, len(buffer))]
            buffer[: len(piece)] = piece
            return len(piece)

    queue = OutputQueue(memoryview(bytearray(1024)))
    queue.add([Slice(cast(DiskFile, Slow()), 1, 8)])
    sink = Sink([], takes_files=False)
    queue.pump(sink)
    assert bytes(sink.got) == b"bcdefghi"
