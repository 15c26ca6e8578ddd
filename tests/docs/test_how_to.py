"""The commands of the how-tos for a cluster of three hosts, in order: made, upgraded, and given new disks.

The hosts are three addresses of this machine, each with directories and a process of its own. systemd, and
what root installs, are stood for by the test.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.runtime.free_ports import free_ports
from pykraft.testing.processes.node_process import NodeProcess
from pykraft.testing.processes.waits import PATIENCE_S, wait_until
from tests.docs.cells import Shell

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8"),
]

PAGES: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to"
FOR_ROOT: Final = ("useradd ", "python3 -m venv", "/opt/pykraft/bin/pip", "install --directory")
"""Beginnings of lines that install something."""


class Host:
    """``hostN`` of the pages."""

    def __init__(self, number: int, directory: Path, broker: int, controller: int) -> None:
        self.number = number
        self.broker = f"127.0.0.{number}:{broker}"
        self.directory = directory / f"host{number}"
        (self.directory / "etc").mkdir(parents=True)
        self.properties = self.directory / "etc" / "server.properties"
        self.meant = {
            "/etc/pykraft": str(self.directory / "etc"),
            "/var/lib/pykraft": str(self.directory / "lib"),
        }
        command = (sys.executable, "-m", "pykraft.node", "server", "start", str(self.properties))
        self.process = NodeProcess(number, command, self.directory / "log")

    def systemctl(self, verb: str) -> None:
        if verb == "stop":
            assert self.process.stop(), self.process.output_tail()
        else:
            self.process.start()


class Hosts:
    """All three, and the shell in which the commands of the pages are run."""

    def __init__(self, directory: Path) -> None:
        broker, controller, http = free_ports(3)
        self.all = [Host(number, directory, broker, controller) for number in (1, 2, 3)]
        self._said = {
            f"host{it.number}:909{2 + n}": f"127.0.0.{it.number}:{port}"
            for it in self.all
            for n, port in enumerate((broker, controller))
        }
        self._http = f"127.0.0.1:{http}"
        self.shell = Shell(directory, {}, self._said, varies=())

    def end(self) -> None:
        self.shell.end()
        for host in self.all:
            host.process.kill()

    def write_properties(self, page: Path) -> None:
        """As the page says: the number of the node and the host in ``listeners`` differ."""
        (said,) = re.findall(r"^```properties\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        for host in self.all:
            text = said.replace("node.id=1", f"node.id={host.number}").replace(
                "://host1:", f"://host{host.number}:"
            )
            text = text.replace("127.0.0.1:9464", f"127.0.0.{host.number}:{self._http.rpartition(':')[2]}")
            for name, meant in (self._said | host.meant).items():
                text = text.replace(name, meant)
            host.properties.write_text(text, encoding="utf-8")

    def run(self, page: Path) -> None:
        """Every cell; one that begins with ``# on`` is run for that host, or for each."""
        for cell in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            where = re.match(r"# on (?:host(\d)|each host)", cell)
            if where is None:
                self.shell.run("sh", cell)
                continue
            for host in [self.all[int(where[1]) - 1]] if where[1] else self.all:
                self._run_on(host, cell)

    def _run_on(self, host: Host, cell: str) -> None:
        for line in cell.splitlines()[1:]:
            if line.startswith("systemctl "):
                host.systemctl(line.split()[1])
            elif not line.startswith(FOR_ROOT):
                for name, meant in host.meant.items():
                    line = line.replace(name, meant)
                self.shell.run("sh", line)

    def admin(self) -> AdminClient:
        return AdminClient(",".join(host.broker for host in self.all))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path)
    try:
        yield hosts
    finally:
        hosts.end()


def directories(hosts: Hosts) -> dict[int, object]:
    """Of each voter."""
    with hosts.admin() as admin:
        return {voter.replica_id: voter.directory_id for voter in admin.describe_quorum().voters}


def all_in_sync(hosts: Hosts) -> bool:
    with hosts.admin() as admin:
        (orders,) = admin.describe_topics(["orders"])
        return all(len(partition.isr) == 3 for partition in orders.partitions)


def test_cluster_is_made_upgraded_and_given_new_disks_as_the_pages_say(hosts: Hosts) -> None:
    made = PAGES / "three-hosts.md"
    hosts.write_properties(made)
    hosts.run(made)
    assert all_in_sync(hosts)
    first = directories(hosts)
    assert set(first) == {1, 2, 3}

    hosts.run(PAGES / "upgrade.md")
    assert all_in_sync(hosts) and directories(hosts) == first

    hosts.run(PAGES / "replace-a-disk.md")
    wait_until("all replicas are in sync", lambda: all_in_sync(hosts), PATIENCE_S)
    now = directories(hosts)
    assert {number for number in first if first[number] != now[number]} == {3}
    for host in hosts.all:
        assert "Traceback" not in host.process.output_tail(), host.process.output_tail()
