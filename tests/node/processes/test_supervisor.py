"""One process per node: how they start, end and are stopped together. The processes are only stand-ins."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

import pytest

from pykraft.node.supervisor import Command, supervise

SERVES_UNTIL_ASKED = "os.write(fd, b'.'); wait()"
SERVES_FOR_EVER = "os.write(fd, b'.'); signal.pause()"
FAILS_TO_START = "sys.exit(3)"
NEVER_SERVES = "wait()"


def stand_in(code: str) -> Command:
    # Like a node, it reads nothing. Data that the other end left unread would be an error here.
    prelude = (
        "import os, select, signal, sys; fd = int(sys.argv[1]); wait = lambda: select.select([fd], [], []); "
    )
    return lambda fd: [sys.executable, "-S", "-E", "-c", prelude + code, str(fd)]


def tell_this_process(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def is_gone(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return True
    return False


class Run:
    """One run, and its messages."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.process_ids: list[int] = []
        self.when_ready: Callable[[], None] = lambda: tell_this_process(signal.SIGTERM)
        self.when_said: Callable[[], None] = lambda: None

    def __call__(self, *codes: str) -> int:
        commands = {node_id: stand_in(code) for node_id, code in enumerate(codes, start=1)}
        return supervise(commands, os.environ, self.on_ready, self.say)

    def on_ready(self, process_ids: Mapping[int, int]) -> None:
        self.process_ids = [process_ids[node_id] for node_id in sorted(process_ids)]
        self.when_ready()

    def say(self, text: str) -> None:
        self.said.append(text)
        self.when_said()


@pytest.fixture
def run() -> Run:
    return Run()


def test_all_are_asked_to_stop_by_one_signal(run: Run) -> None:
    assert run(*[SERVES_UNTIL_ASKED] * 3) == 0
    assert run.said == [] and len(set(run.process_ids)) == 3
    assert all(map(is_gone, run.process_ids))


def test_node_that_fails_to_start_stops_the_others(run: Run) -> None:
    assert run(SERVES_UNTIL_ASKED, FAILS_TO_START, NEVER_SERVES) == 1
    assert run.said == ["Node 2 ended (exit code 3) before all nodes had started: stopping"]
    assert run.process_ids == []


def test_killed_node_is_reported_and_the_others_continue(run: Run) -> None:
    def check_and_stop() -> None:
        assert not is_gone(run.process_ids[0]) and not is_gone(run.process_ids[2])
        tell_this_process(signal.SIGTERM)

    run.when_ready = lambda: os.kill(run.process_ids[1], signal.SIGKILL)
    run.when_said = check_and_stop
    assert run(*[SERVES_UNTIL_ASKED] * 3) == 1
    assert run.said == ["Node 2 ended (killed by SIGKILL); the others continue"]


def test_supervisor_ends_with_the_last_node(run: Run) -> None:
    def kill_all() -> None:
        for process_id in run.process_ids:
            os.kill(process_id, signal.SIGKILL)

    run.when_ready = kill_all
    assert run(*[SERVES_UNTIL_ASKED] * 2) == 1
    assert len(run.said) == 2 and run.said[1].endswith("(killed by SIGKILL); it was the last")


def test_second_signal_kills_nodes_that_do_not_stop(run: Run) -> None:
    def ask_twice() -> None:
        tell_this_process(signal.SIGINT)
        tell_this_process(signal.SIGTERM)

    run.when_ready = ask_twice
    assert run(SERVES_UNTIL_ASKED, SERVES_FOR_EVER) == 1
    assert all(map(is_gone, run.process_ids))


def test_paused_node_is_also_stopped(run: Run) -> None:
    def pause_and_stop() -> None:
        os.kill(run.process_ids[0], signal.SIGSTOP)
        tell_this_process(signal.SIGTERM)

    run.when_ready = pause_and_stop
    assert run(*[SERVES_UNTIL_ASKED] * 2) == 0


def test_exit_code_of_a_node_that_ends_while_it_is_signalled_is_not_lost(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio waits for the processes: a second waiter, as Popen.poll, may take the exit code away."""
    polled = []
    poll = subprocess.Popen.poll

    def watched(process: subprocess.Popen[bytes]) -> int | None:
        polled.append(process.pid)
        return poll(process)

    monkeypatch.setattr(subprocess.Popen, "poll", watched)
    assert run(*[SERVES_UNTIL_ASKED] * 2) == 0
    assert polled == []


def test_signal_before_all_serve_stops_those_that_do(run: Run) -> None:
    asks = "os.write(fd, b'.'); os.kill(os.getppid(), signal.SIGTERM); wait()"
    assert run(NEVER_SERVES, asks) == 0
    assert run.said == []
