"""Clusters that run on in the background: started, found again, stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import click

from pykraft.node.cli.dev.state import DevState, Home
from pykraft.node.supervisor import interpreter_command
from pykraft.runtime.directory_lock import DirectoryInUseError

STOP_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05
TAIL_LINES: Final = 20


def start_detached(home: Home, arguments: Sequence[str]) -> DevState:
    """Start ``pykraft dev`` with these arguments in a session of its own; returns when it is ready.

    :class:`click.ClickException` with the end of its log if it does not start.
    """
    home.make()
    if not _clear(home):
        raise click.ClickException(f"the cluster {home.name} is already running: `pykraft dev stop` stops it")
    readable, writable = os.pipe()
    detached = ("--detached-as", home.name, "--ready-fd", str(writable))
    with open(home.log, "wb") as log:
        process = subprocess.Popen(
            [*interpreter_command(), "-m", "pykraft.node", "dev", *arguments, *detached],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[writable],
            start_new_session=True,
        )
    os.close(writable)
    with open(readable, "rb") as ready:
        try:
            is_ready = ready.read(1) != b""
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            raise
    state = home.read() if is_ready else None
    if state is None:
        process.terminate()
        process.wait()
        _clear(home)
        said = "".join(tail(home, TAIL_LINES))
        raise click.ClickException(f"the cluster did not start:\n{said}".rstrip())
    return state


def stop_detached(home: Home) -> bool:
    """Ask it to stop, and wait until it has; False if it did not run."""
    if _clear(home):
        return False
    state = home.read()
    if state is None:
        raise click.ClickException(f"the cluster {home.name} is just starting or stopping: try again")
    with suppress(ProcessLookupError):
        os.kill(state.process_id, signal.SIGTERM)
    until = time.monotonic() + STOP_TIMEOUT_S
    while home.is_held:
        if time.monotonic() > until:
            seconds = round(STOP_TIMEOUT_S)
            raise click.ClickException(f"process {state.process_id} has not ended within {seconds} s")
        time.sleep(POLL_S)
    _clear(home)  # it may have been killed meanwhile
    return True


def _clear(home: Home) -> bool:
    """Remove what a cluster that was killed has left, when its nodes have ended, too; False if it runs."""
    if not home.path.is_dir():
        return True
    try:
        held = home.hold()  # so that none begins meanwhile
    except DirectoryInUseError:
        return False
    until = time.monotonic() + STOP_TIMEOUT_S
    try:
        while not home.forget():
            if time.monotonic() > until:
                raise click.ClickException(
                    f"the cluster {home.name} was killed, and its nodes have not ended within"
                    f" {round(STOP_TIMEOUT_S)} s"
                )
            time.sleep(POLL_S)
    finally:
        held.release()
    return True


def tail(home: Home, lines: int) -> list[str]:
    """The last lines of its log; none if there is none."""
    try:
        return home.log.read_text("utf-8", "replace").splitlines(keepends=True)[-lines:]
    except FileNotFoundError:
        return []


def follow(home: Home) -> None:
    """Print what is added to its log, until the cluster has ended."""
    with open(home.log, encoding="utf-8", errors="replace") as log:
        log.seek(0, os.SEEK_END)
        while True:
            was_held = home.is_held
            added = log.read()
            if added:
                click.echo(added, nl=False)
            elif not was_held:
                return
            else:
                time.sleep(POLL_S)
