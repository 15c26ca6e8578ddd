"""Elapsed time includes the time in which the machine is suspended: a lease must end in it."""

import time

import pytest

from pykraft.runtime.clock import SystemClock


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has one monotonic clock")
def test_elapsed_time_includes_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    slept_ns = 60_000_000_000
    clocks = {time.CLOCK_MONOTONIC: 5_000_000_000, time.CLOCK_BOOTTIME: 5_000_000_000}
    monkeypatch.setattr(time, "clock_gettime_ns", clocks.__getitem__)
    monkeypatch.setattr(time, "monotonic_ns", lambda: clocks[time.CLOCK_MONOTONIC])
    clock = SystemClock()
    before_ms = clock.monotonic_ms()
    clocks[time.CLOCK_BOOTTIME] += slept_ns
    assert clock.monotonic_ms() - before_ms == 60_000
