"""The transport of a connection, in memory."""

from collections.abc import Sequence

from pykraft.kafka_protocol.connection import Connection, RequestHandler
from pykraft.runtime.network.streams import Chunk, Pieces


class RecordedLink:
    """What a connection wrote, and whether it was closed."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.closed = False

    @property
    def frames(self) -> list[bytes]:
        """The answers."""
        found, at = [], 0
        while at < len(self.sent):
            end = at + 4 + int.from_bytes(self.sent[at : at + 4], "big")
            found.append(bytes(self.sent[at + 4 : end]))
            at = end
        return found

    @property
    def answers(self) -> int:
        return len(self.frames)

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


class ConnectedLink(RecordedLink):
    """With its connection, to which what is sent is given as far as it takes it."""

    def __init__(
        self, handler: RequestHandler, peer_address: str = "::1", max_request_bytes: int = 100 << 20
    ) -> None:
        super().__init__()
        self._unread = bytearray()
        self.connection = Connection(
            self,
            handler,
            connection_id=1,
            peer_address=peer_address,
            listener_name="PLAINTEXT",
            max_request_bytes=max_request_bytes,
        )

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self._unread += len(frame).to_bytes(4, "big") + frame
        if not self.connection.stalled:
            self.receive_more()

    def receive_more(self) -> None:
        if not self.closed:
            taken = self.connection.receive(memoryview(bytes(self._unread)))
            del self._unread[:taken]
