"""The first Ctrl-C ends the faults of a run early; the next one breaks it off."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from pykraft.jepsen_like.faults.runs.interruption import early_end
from pykraft.testing.processes.waits import PATIENCE_S


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_first_interrupt_ends_early_and_second_breaks_off() -> None:
    ended = threading.Event()
    with early_end(ended.set) as asked:
        assert not asked.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        assert ended.wait(PATIENCE_S)
        assert asked.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_outside_an_interrupt_is_what_it_was() -> None:
    with early_end(lambda: None):
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_ignored_interrupt_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with early_end(lambda: None) as asked:
        signal.raise_signal(signal.SIGINT)
        assert not asked.is_set()
