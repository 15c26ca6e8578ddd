"""Whether an active controller gets anything done, for those who watch how soon it does what it should."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pykraft.jepsen_like.sim.cluster.node import SimNode


class CommitProgress:
    """Over a network that carries fetches and loses their answers a leader remains leader and commits
    nothing: nobody knows what it decides, which says nothing about its patience."""

    def __init__(self) -> None:
        self._seen: tuple[str, int] | None = None

    def commits(self, controller: SimNode) -> bool:
        """Whether it has committed something since the last call, or has nothing to commit."""
        quorum, process = controller.parts.quorum, controller.process
        if quorum is None or process is None:
            return False
        before, self._seen = self._seen, (process.name, quorum.high_watermark)
        return self._seen != before or quorum.high_watermark == quorum.log_end_offset
