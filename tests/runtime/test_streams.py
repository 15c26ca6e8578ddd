"""The output queue over sinks that take what they like, and the shared budget of a turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykraft.log_store.memory import MemoryDisk
from pykraft.runtime.streams import OutputQueue, TruncatedSliceError


@dataclass(frozen=True)
class Slice:
    file: Any
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

    def send_file(self, file: Any, position: int, length_bytes: int) -> int | None:
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


def test_file_that_became_shorter_is_an_error_and_never_sends_other_bytes() -> None:
    file = make_file(b"x" * 100)
    queue = OutputQueue(memoryview(bytearray(1000)))
    queue.add([b"head", Slice(file, 50, 50)])
    file.truncate(80)
    with pytest.raises(TruncatedSliceError):
        queue.pump(Sink([], False))
