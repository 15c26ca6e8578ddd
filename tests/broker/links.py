"""The transport of a connection, in memory."""

from collections.abc import Sequence

from pykraft.runtime.network.streams import Chunk, Pieces


class RecordedLink:
    """What a connection wrote, and whether it was closed."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.closed = False

    @property
    def answers(self) -> int:
        count = at = 0
        while at < len(self.sent):
            at += 4 + int.from_bytes(self.sent[at : at + 4], "big")
            count += 1
        return count

    def write(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            for piece in chunk.pieces if isinstance(chunk, Pieces) else [chunk]:
                assert isinstance(piece, bytes | bytearray | memoryview)
                self.sent += piece

    def close(self) -> None:
        self.closed = True

    def has_turn(self) -> bool:
        return True

    def receive_more(self) -> None: ...

    def keep_received(self) -> bool:
        return False
