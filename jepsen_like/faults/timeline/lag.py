"""How far readers are behind what has been acknowledged, for each second.

The lag of a partition is its acknowledged end offset minus the end of what any reader has polled of it.
With several readers of one partition that is the lag of the first of them: a reader that is gone must not
look like one that is slow. ``checkers/lag`` has the lag in time."""

from pykraft.jepsen_like.faults.history import Event
from pykraft.jepsen_like.faults.timeline.seconds import second_of


class ConsumerLag:
    """Told of every event, in the order of the history."""

    def __init__(self) -> None:
        self._ends: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self._second = 0
        self._lags: list[int | None] = []

    def add(self, event: Event) -> None:
        if event.type != "ok" or event.key is None:
            return
        if event.op == "send" and event.offset is not None:
            self._pass_to(second_of(event.time_us))
            self._ends[event.key] = max(self._ends.get(event.key, 0), event.offset + 1)
        elif event.op == "poll" and event.records:
            self._pass_to(second_of(event.time_us))
            self._read[event.key] = max(self._read.get(event.key, 0), event.records[-1][0] + 1)

    def results(self, seconds: int) -> list[int | None]:
        """At the end of each second the largest lag of a partition that has been polled; None if none has."""
        self._pass_to(self._second + 1)
        return [*self._lags, *[None] * (seconds - len(self._lags))][:seconds]

    def _pass_to(self, second: int) -> None:
        if second > self._second:
            lags = [max(0, self._ends.get(key, 0) - end) for key, end in self._read.items()]
            self._lags += [max(lags, default=None)] * (second - self._second)
            self._second = second
