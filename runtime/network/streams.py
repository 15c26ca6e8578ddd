"""Byte streams without sockets: the ports and the output queue.

Output is a queue of memory and file ranges. A sink takes what it can and returns how much; a file range is
read into one scratch buffer that all connections share, and is read again if the sink took only part of it,
so a slow reader costs a position in a file and no memory. This file never touches a socket, so it runs
unmodified in simulation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from pykraft.runtime.disk import Buffer, DiskFile, UnreadableError
from pykraft.runtime.network.file_slices import FileSlice, TruncatedSliceError, UnreadableSliceError

SCRATCH_BYTES = 256 * 1024
#: Chunks of memory at least this large are sent as they are; smaller ones are gathered in the scratch buffer.
DIRECT_BYTES = 64 * 1024
CALLBACK_BYTES = 256 * 1024


class Pieces:
    """Memory in pieces, sent one after the other and never joined: many of them may be the same object."""

    __slots__ = ("pieces", "size_bytes")

    def __init__(self, pieces: Sequence[Buffer], size_bytes: int) -> None:
        """``size_bytes``: of all ``pieces``, of which there are some."""
        self.pieces = pieces
        self.size_bytes = size_bytes


Chunk = Buffer | FileSlice | Pieces


def size_of(chunk: Chunk) -> int:
    """In bytes."""
    return len(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else chunk.size_bytes


class ByteSink(Protocol):
    """A destination of output. If it takes less than offered, it is full, and calls back when it has room."""

    def send(self, view: memoryview, more: bool) -> int:
        """Bytes accepted (copied or sent on return); 0 when blocked. :class:`OSError` if the peer is dead."""
        ...

    def send_file(self, file: DiskFile, position: int, length_bytes: int) -> int | None:
        """As :meth:`send`, straight from a file; None if that is impossible and the bytes must be read."""
        ...

    def close(self) -> None: ...


class OutputQueue:
    """Bytes and file ranges waiting for one sink, in order.

    ``pending_chunks`` and ``memory_bytes`` (without file ranges) tell the owner when to add no more.
    """

    __slots__ = ("_chunks", "_offset", "_scratch", "memory_bytes")

    def __init__(self, scratch: memoryview) -> None:
        self._chunks: deque[Chunk] = deque()
        self._offset = 0  # bytes of the first chunk already accepted
        self._scratch = scratch
        self.memory_bytes = 0

    @property
    def pending_chunks(self) -> int:
        return len(self._chunks)

    def add(self, chunks: Sequence[Chunk]) -> None:
        """Queue chunks. Memory is kept by reference and must not change until it has been sent."""
        for chunk in chunks:
            if isinstance(chunk, (bytes, bytearray, memoryview)):
                self.memory_bytes += len(chunk)
            elif isinstance(chunk, Pieces):
                self.memory_bytes += chunk.size_bytes
            self._chunks.append(chunk)

    def clear(self) -> None:
        self._chunks.clear()
        self._offset = 0
        self.memory_bytes = 0

    def pump(self, sink: ByteSink, limit_bytes: int = CALLBACK_BYTES) -> tuple[int, bool]:
        """Send up to about ``limit_bytes``. Returns (bytes accepted, whether the sink is blocked)."""
        if self.is_one_response():
            return self._send_one(sink)
        sent = 0
        while self._chunks and sent < limit_bytes:
            offered, accepted = self._send_some(sink)
            sent += accepted
            self._advance(accepted)
            if accepted < offered:
                return sent, True
        return sent, False

    def is_one_response(self) -> bool:
        """Whether one chunk of memory is all that is queued, as nearly always."""
        return len(self._chunks) == 1 and not self._offset and isinstance(self._chunks[0], (bytes, bytearray))

    def _send_one(self, sink: ByteSink) -> tuple[int, bool]:
        """As :meth:`pump` where :meth:`is_one_response`."""
        response = self._chunks[0]
        assert isinstance(response, (bytes, bytearray))
        accepted = sink.send(memoryview(response), False)
        if accepted < len(response):
            self._offset = accepted
            return accepted, True
        self._chunks.clear()
        self.memory_bytes = 0
        return accepted, False

    def _send_some(self, sink: ByteSink) -> tuple[int, int]:
        """Offer the head of the queue once. Returns (offered, accepted)."""
        head = self._chunks[0]
        if isinstance(head, Pieces):
            self._chunks.popleft()
            self._chunks.extendleft(reversed(head.pieces))
            head = self._chunks[0]
            assert isinstance(head, (bytes, bytearray, memoryview))
        if isinstance(head, (bytes, bytearray, memoryview)):
            left = len(head) - self._offset
            if len(self._chunks) == 1 or left >= DIRECT_BYTES:
                view = memoryview(head)[self._offset :]
                return left, sink.send(view, len(self._chunks) > 1) if left else 0
        else:
            left = head.size_bytes - self._offset
            if left >= DIRECT_BYTES:
                offered = min(left, SCRATCH_BYTES)
                accepted = sink.send_file(head.file, head.position + self._offset, offered)
                if accepted is not None:
                    return offered, accepted
        filled = self._fill_scratch()
        return filled, sink.send(self._scratch[:filled], filled == SCRATCH_BYTES) if filled else 0

    def _fill_scratch(self) -> int:
        """Gather the head of the queue into the scratch buffer; returns its bytes."""
        filled = 0
        offset = self._offset
        room = len(self._scratch)
        for chunk in self._chunks:
            if isinstance(chunk, (bytes, bytearray, memoryview)):
                take = min(len(chunk) - offset, room - filled)
                self._scratch[filled : filled + take] = memoryview(chunk)[offset : offset + take]
            elif isinstance(chunk, Pieces):
                break  # until it is the head
            else:
                take = min(chunk.size_bytes - offset, room - filled)
                if take and _read_fully(chunk, offset, self._scratch[filled : filled + take]) < take:
                    raise TruncatedSliceError(f"{chunk.file.path} ended inside a range that is being sent")
            filled += take
            offset = 0
            if filled == room:
                break
        return filled

    def _advance(self, accepted: int) -> None:
        chunks = self._chunks
        self._offset += accepted
        while chunks:
            head = chunks[0]
            size = size_of(head)
            if self._offset < size:
                return
            if isinstance(head, (bytes, bytearray, memoryview)):
                self.memory_bytes -= size
            chunks.popleft()
            self._offset -= size


def _read_fully(chunk: FileSlice, offset: int, into: memoryview) -> int:
    """Fill ``into``; a positioned read may be short before the end of the file."""
    done = 0
    while done < len(into):
        try:
            count = chunk.file.pread_into(chunk.position + offset + done, into[done:])
        except UnreadableError as error:
            raise UnreadableSliceError(chunk, error) from error
        if count == 0:
            break
        done += count
    return done
