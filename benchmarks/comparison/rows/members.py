"""Members of groups, each in a thread of its own with a connection, and heartbeats much faster than usual."""

import threading
from typing import Any

from comparison.frames import connect
from comparison.group_members import NOT_YET, Ask, Life

HEARTBEAT_S = 0.05


class Member(threading.Thread):
    """Plays ``life`` until it is stopped."""

    def __init__(self, port: int, life: Life) -> None:
        super().__init__(daemon=True)
        self._life = life
        self._client = connect(port)
        self._stopped = threading.Event()
        self._error: Exception | None = None

    @property
    def owned(self) -> frozenset[int]:
        return self._life.owned

    def run(self) -> None:
        steps = self._life.steps()
        try:
            step = next(steps)
            while not self._stopped.is_set():
                if step is not None:
                    step = steps.send(self._ask(step))
                elif not self._stopped.wait(HEARTBEAT_S):
                    step = next(steps)
        except Exception as error:
            self._error = error

    def check(self) -> None:
        """Raise what ended the thread."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._stopped.set()

    def leave(self) -> None:
        """Once it is stopped."""
        if self.ident is not None:
            self.join()
        if self._error is None:
            self._ask(self._life.goodbye())
        self._client.socket.close()

    def _ask(self, ask: Ask) -> Any:
        """Again while the coordinator loads the group."""
        while True:
            answer = self._client.call(*ask)
            if answer.error_code not in NOT_YET or self._stopped.wait(HEARTBEAT_S):
                return answer
