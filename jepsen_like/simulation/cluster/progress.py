"""Whether an active controller makes progress, for the watches that limit how long it may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.node import SimNode


class CommitProgress:
    """Over a network that passes fetches and loses the responses a leader stays leader and commits nothing:
    the time until it fences a broker does not count then."""

    def __init__(self) -> None:
        self._seen: tuple[str, int] | None = None

    def commits(self, controller: SimNode) -> bool:
        """Whether it has committed something since the last call, or has nothing to commit."""
        quorum, process = controller.parts.quorum, controller.process
        if quorum is None or process is None:
            return False
        before, self._seen = self._seen, (process.name, quorum.high_watermark)
        return self._seen != before or quorum.high_watermark == quorum.log_end_offset
