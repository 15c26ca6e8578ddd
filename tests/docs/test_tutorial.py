"""The tutorial is true: its commands run in order in one shell, and print what the page shows.

After a change that alters the output, rewrite it with ``PYKRAFT_REWRITE_DOCS=1`` and read the diff.
"""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pykraft.runtime.free_ports import free_ports
from tests.docs.cells import Shell

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
VARIES = (
    r"process \d+",
    r"(?<=Bootstrap controllers: ).*",
    r"http://127\.0\.0\.1:\d+/",
    r"(?<=Data: )/[\w./-]+",
    r"(?<=TopicId: )\S+",
    r"(?<=Leader: )\d",
    r"(?<=Replicas: )\S+",
    r"(?<=Isr: )\S+",
    r"(?<=LeaderId: ).*",
    r"(?<=MaxFollowerLag: ).*",
)


@pytest.fixture
def ports() -> list[int]:
    """Three free ones in a row, as ``pykraft dev --nodes 3`` takes them."""
    for first in free_ports(20):
        with ExitStack() as held:
            try:
                for port in range(first, first + 3):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return list(range(first, first + 3))
    raise AssertionError("no three free ports in a row")


@pytest.fixture
def shell(ports: list[int], tmp_path: Path) -> Iterator[Shell]:
    replaced = {f"127.0.0.1:{9092 + n}": f"127.0.0.1:{port}" for n, port in enumerate(ports)}
    replaced["pykraft dev --"] = f"pykraft dev --port {ports[0]} --"
    # Clusters of whoever runs the test are left alone.
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "TMPDIR": str(tmp_path)}
    shell = Shell(tmp_path, environment, replaced, VARIES, not_run=("make setup",))
    try:
        yield shell
    finally:
        shell.end()
        stop = (sys.executable, "-m", "pykraft.node", "dev", "stop")
        subprocess.run(stop, env=os.environ | environment, capture_output=True, check=False)


def leader_of_first_partition(described: str) -> int:
    (leader,) = re.findall(r"Partition: 0\s+Leader: (\d)", described)
    return int(leader)


def in_sync(described: str) -> list[set[int]]:
    return [set(map(int, isr.split(","))) for isr in re.findall(r"Isr: (\S+)", described)]


def test_commands_print_what_the_page_shows(shell: Shell) -> None:
    shell.run_page(PAGE)
    described = [printed for printed in shell.printed if "Partition: 0" in printed]
    _, before, killed, back = described
    dead = leader_of_first_partition(before)
    assert in_sync(before) == in_sync(back) == [{1, 2, 3}] * 3
    assert leader_of_first_partition(killed) != dead and in_sync(killed) == [{1, 2, 3} - {dead}] * 3
