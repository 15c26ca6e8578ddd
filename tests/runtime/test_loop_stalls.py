"""The delays of an event loop, by a clock that the test sets."""

from collections.abc import Callable

from pykraft.runtime.loop_stalls import PERIOD_S, LoopStalls


class Loop:
    def __init__(self) -> None:
        self.now_us = 0
        self.due: Callable[[], None] | None = None

    def call_later(self, delay_s: float, call: Callable[[], None]) -> "Loop":
        assert delay_s == PERIOD_S
        self.due = call
        return self

    def cancel(self) -> None:
        self.due = None

    def pass_time(self, late_us: int) -> None:
        self.now_us += int(PERIOD_S * 1_000_000) + late_us
        assert self.due is not None
        self.due()


def test_delays_are_counted_until_it_is_stopped() -> None:
    loop = Loop()
    stalls = LoopStalls(loop.call_later, lambda: loop.now_us)
    stalls.start()
    for late_us in (0, 300, 90_000, 0):
        loop.pass_time(late_us)
    assert (stalls.late.count, stalls.late.sum_us, stalls.longest_us) == (4, 90_300, 90_000)
    stalls.stop()
    assert loop.due is None
