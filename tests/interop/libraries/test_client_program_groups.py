"""Groups of the clients for Go, Rust and Python: they share, hand over, and resume where they committed.

The groups of all clients live through the same at the same time; each has a test of its own that looks at
what became of it, so that a client that fails does not fail the others. Their members take the orders of
member_program.py.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import ConfigChange
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from pykraft.testing import Cluster
from tests.interop.built_programs import GO_CLIENTS, RUST_CLIENTS, Program, built
from tests.interop.client_program import client_program
from tests.interop.clients import CLIENTS, ORDERED, each_program
from tests.interop.clusters import create_in_sync
from tests.interop.fleet import SESSION_MS, Fleet, Kind, MemberProcess, Produced, describe, wait_for

pytestmark = pytest.mark.interop

PARTITIONS = 4
PROTOCOLS = ("classic", "consumer")


@dataclass
class Lives:
    """A fleet for each client and protocol, its groups named ``client-protocol``."""

    fleets: dict[str, Fleet]
    missing: dict[str, str]
    """Clients that cannot run here, and why."""
    types: dict[str, str]
    """Of the groups, as the coordinator describes them while they have members."""

    def of(self, name: str, protocol: str) -> Fleet:
        """Which did not fail; skips loudly where the client cannot run."""
        if reason := self.missing.get(name):
            pytest.skip(reason)
        fleet = self.fleets[f"{name}-{protocol}"]
        assert fleet.failed is None, fleet.failed
        return fleet


@pytest.fixture(scope="module")
def lives(trio: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    directory = tmp_path_factory.mktemp("members")
    create_in_sync(trio, "shared", PARTITIONS)
    produced = Produced(trio.bootstrap_servers, "shared", PARTITIONS)
    processes: dict[str, MemberProcess] = {}
    found = Lives({}, {}, {})
    for name in ORDERED:
        protocols = [one for one in PROTOCOLS if f"{one} group" not in CLIENTS[name].lacks]
        if not protocols:
            continue
        try:
            processes[name] = client_program(name).host(directory / name)
        except pytest.skip.Exception as reason:
            found.missing[name] = str(reason)
            continue
        for protocol in protocols:
            group = f"{name}-{protocol}"
            found.fleets[group] = Fleet(name, Kind(name, protocol), group, produced)
    try:
        live(found, processes, produced)
        yield found
    finally:
        for process in processes.values():
            process.kill()


def live(lives: Lives, processes: dict[str, MemberProcess], produced: Produced) -> None:
    fleets = lives.fleets.values()

    def start(n: int) -> None:
        for fleet in fleets:
            fleet.start(processes[fleet.name], n)

    def stop(n: int) -> None:
        for fleet in fleets:
            fleet.stop(n)
        wait_for(fleets, f"member {n} has left", lambda fleet: fleet.is_stopped(n))

    def produce() -> None:
        produced.produce(5)
        wait_for(fleets, "all records are committed", lambda fleet: fleet.has_committed(produced.ends))

    with AdminClient(produced.servers) as admin:
        session = ConfigChange("consumer.session.timeout.ms", ConfigOperation.SET, str(SESSION_MS))
        for fleet in fleets:
            admin.alter_configs(ConfigResourceType.GROUP, fleet.group, [session])
    start(0)
    wait_for(fleets, "one member has everything", lambda fleet: fleet.shared(1))
    produce()
    start(1)
    wait_for(fleets, "two members share", lambda fleet: fleet.shared(2))
    produce()
    with AdminClient(produced.servers) as admin:
        lives.types |= {fleet.group: describe(admin, fleet).type for fleet in fleets if fleet.failed is None}
    stop(1)
    wait_for(fleets, "the other one has everything", lambda fleet: fleet.shared(1))
    produce()
    stop(0)
    produced.produce(5)  # while nobody is there
    start(2)
    wait_for(fleets, "a successor has everything", lambda fleet: fleet.shared(1))
    produce()
    with AdminClient(produced.servers) as admin:
        for fleet in fleets:
            fleet.check_stored(admin)


@pytest.mark.parametrize("program", [GO_CLIENTS, RUST_CLIENTS], ids=lambda program: program.name)
def test_program_is_built(program: Program) -> None:
    """Each in a test of its own, before both are needed at once: the first time takes minutes."""
    assert built(program).exists()


@each_program("{protocol} group", protocol=PROTOCOLS)
def test_members_share_and_resume_where_they_committed(lives: Lives, name: str, protocol: str) -> None:
    fleet = lives.of(name, protocol)
    assert lives.types[fleet.group] == protocol
    assert fleet.missing == []
    assert fleet.doubled == [], "each record is read once, since it is committed before anything changes"
    assert fleet.read_back, fleet.stored
