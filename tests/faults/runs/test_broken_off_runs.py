"""A run that breaks off leaves nothing of its clients behind."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pykraft.jepsen_like.faults.runs import foreign_run, process_run
from pykraft.jepsen_like.faults.runs.run_config import RunConfig


class Clients:
    """With a process, as those of Java have one."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class Cluster:
    """Of which no workload can be made."""

    bootstrap_servers = "127.0.0.1:1"

    def __init__(self, *_: object) -> None:
        pass

    def connect(self, say: object = None) -> None:
        pass

    def settings(self) -> dict[str, object]:
        return {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def fail(*_: object) -> Any:
    raise ZeroDivisionError("broke off")


@pytest.mark.parametrize("play", [process_run.play_on_processes, foreign_run.play_on_foreign_cluster])
def test_processes_of_clients_end_with_a_run_that_breaks_off(
    play: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = Clients()
    for module in (process_run, foreign_run):
        monkeypatch.setattr(module, "open_clients", lambda *_: clients)
    monkeypatch.setattr(process_run, "_cluster", Cluster)
    monkeypatch.setattr(process_run, "no_standstill", nullcontext)
    monkeypatch.setattr(process_run, "WORKLOADS", {"append": fail})
    monkeypatch.setattr(foreign_run, "ForeignCluster", Cluster)
    monkeypatch.setattr(foreign_run, "foreign_workload", fail)
    with pytest.raises(ZeroDivisionError):
        play(RunConfig(bootstrap_servers="127.0.0.1:1"), tmp_path, Console(quiet=True))
    assert clients.process.returncode == 0
