"""A memory disk on which a process can be made to die in the middle of its writes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykraft.jepsen_like.sim.processes import ProcessKilledError
from pykraft.log_store.memory import MemoryDisk

if TYPE_CHECKING:
    from pykraft.jepsen_like.sim.cluster.world import SimNode

WRITING = ("append", "flush", "rename", "truncate", "flush_dir", "remove", "write_atomic")


class CrashPointDisk(MemoryDisk):
    """One node's disk; it outlives the node's processes. ``was_damaged``: a fault was injected here."""

    def __init__(self, node: SimNode) -> None:
        super().__init__(recorded_calls=0)
        self._node = node
        self._calls_left = 0
        self._path_part = ""
        self._power_loss = False
        self.was_damaged = False

    def die_in_call(self, number: int, path_part: str, *, power_loss: bool) -> None:
        """The ``number``-th writing call from now on whose path holds ``path_part`` is the last."""
        self._calls_left, self._path_part, self._power_loss = number, path_part, power_loss

    def live_on(self) -> None:
        self._calls_left = 0

    def inject(self, operation: str, error_number: int, *, path_part: str = "", times: int = 1) -> None:
        self.was_damaged = True
        super().inject(operation, error_number, path_part=path_part, times=times)

    def enter(self, operation: str, path: str, target: str = "") -> int | None:
        if operation in WRITING:
            self._node.world.events += 1
            if self._calls_left and self._path_part in path + target:
                self._calls_left -= 1
                if not self._calls_left:
                    self._node.world.crash_point_reached(self._node, power_loss=self._power_loss)
                    raise ProcessKilledError
        return super().enter(operation, path, target)
