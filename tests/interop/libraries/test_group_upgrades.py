"""Groups of Java clients and of librdkafka that change from the classic to the consumer protocol, and back.

One member after another is closed and started again with the other protocol, while records are produced: no
record is lost, none is read again after its commit, and committed offsets never go back. The assignors are
those from which Kafka's documentation upgrades: range and cooperative-sticky, which keep no data of their own
in the members' metadata.
"""

from functools import partial

import pytest

from tests.interop.fleet import Background, Fleet, Kind, Watch, describe, group_at, wait_for
from tests.interop.fleet_hall import COORDINATOR, OFFSETS_PARTITIONS, Hall

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PARTITIONS = 12
MEMBERS = 3
CLASSIC = {
    "java-range": Kind("java", "classic", "range"),
    "java-cooperative": Kind("java", "classic", "cooperative-sticky"),
    "confluent-range": Kind("confluent", "classic", "range"),
    "confluent-cooperative": Kind("confluent", "classic", "cooperative-sticky"),
}


@pytest.fixture(scope="module")
def upgraded(hall: Hall) -> dict[str, Fleet]:
    produced = hall.topic("upgraded", PARTITIONS)
    fleets = {
        name: Fleet(name, kind, group_at(COORDINATOR, OFFSETS_PARTITIONS, f"upgraded-{name}"), produced)
        for name, kind in CLASSIC.items()
        if kind.program not in hall.missing
    }
    everyone = fleets.values()

    def start(fleet: Fleet, n: int, protocol: str) -> None:
        fleet.start(hall.process(fleet.kind.program, 0), n, protocol=protocol)

    for fleet in everyone:
        for n in range(MEMBERS):
            start(fleet, n, "classic")
    wait_for(everyone, "three classic members share", lambda fleet: fleet.shared(MEMBERS))
    with Watch(produced.servers, everyone), Background(produced):
        for protocol in ("consumer", "classic"):
            for n in range(MEMBERS):
                for fleet in everyone:
                    fleet.stop(n)
                wait_for(everyone, f"member {n} has closed", partial(Fleet.is_stopped, n=n))
                for fleet in everyone:
                    start(fleet, n, protocol)
                what = f"they share, {n} with the {protocol} protocol"
                wait_for(everyone, what, lambda fleet: fleet.shared(MEMBERS))
                wait_for(everyone, "commits", partial(Fleet.has_committed, ends=list(produced.ends)))
            with hall.admin() as admin:
                for fleet in everyone:
                    described = describe(admin, fleet)
                    if fleet.failed is None and described.type != protocol:
                        fleet.failed = f"after all members changed to the {protocol} protocol: {described}"
    wait_for(everyone, "all records", lambda fleet: not fleet.missing)
    return fleets


@pytest.mark.parametrize("kind", list(CLASSIC))
def test_members_change_their_protocol_one_by_one_and_back(
    hall: Hall, upgraded: dict[str, Fleet], kind: str
) -> None:
    if reason := hall.missing.get(CLASSIC[kind].program):
        pytest.skip(reason)
    fleet = upgraded[kind]
    assert fleet.failed is None, fleet.failed
    assert fleet.missing == []
    assert fleet.again == [], fleet.story()
