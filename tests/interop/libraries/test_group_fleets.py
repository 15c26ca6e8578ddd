"""Groups of every client through what operators do to brokers and members, and the death of a coordinator.

All fleets go through a scenario of one cluster at the same time, and each has a test of its own that looks at
what became of it: a client that fails does not fail the others. The scenarios:

- *rolled*: three members with static membership (group.instance.id); each broker is restarted in order while
  records are produced. Nobody may notice: no callback, no new generation or epoch, and each record is
  consumed exactly once. Then one member is restarted within its session, and only it may notice.
- *bereft*: the coordinator is killed in the middle of a rebalance, which a frozen member holds open.
- *fifty* members join at once.

Three clients have faults of their own here, whatever the broker. kafkajs has no static membership: the first
scenario only asks that it loses nothing. @platformatic/kafka ends its stream when a leader leaves the
metadata, and reads again from the committed offset; a static member of it leaves for good when it closes; and
its members hang when the coordinator dies, so that its processes are restarted. A consumer of kafka-python
that asks a broker which has just left the metadata raises, never asks it again, and is made anew.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest

from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import ConfigChange
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType
from tests.interop.fleet import (
    KINDS,
    Background,
    Fleet,
    Produced,
    Watch,
    describe,
    wait_for,
)
from tests.interop.fleet_hall import Hall

pytestmark = [pytest.mark.interop, pytest.mark.slow]

PARTITIONS = 12
MEMBERS = 3
FIFTY = 50

every_kind = pytest.mark.parametrize("kind", list(KINDS))


def result_of(hall: Hall, fleets: dict[str, Fleet], kind: str) -> Fleet:
    """The fleet of this client, which did not fail; skips loudly where the client cannot run."""
    if reason := hall.missing.get(KINDS[kind].program):
        pytest.skip(reason)
    assert fleets[kind].failed is None, fleets[kind].failed
    return fleets[kind]


@dataclass(frozen=True)
class State:
    """What must not change while nobody rebalances."""

    callbacks: dict[str, int]
    """Of each member."""
    assignment: dict[str, tuple[int, ...]]
    """As the coordinator describes it: by group.instance.id, or by member id where there is none."""
    group_epoch: int | None
    """Of the consumer protocol."""
    generations: frozenset[int]
    """Of the classic protocol: all that were ever recorded."""

    def of_others(self, names: Iterable[str]) -> "State":
        """Without the callbacks of these members."""
        left = {name: count for name, count in self.callbacks.items() if name not in names}
        return replace(self, callbacks=left)


def states(hall: Hall, fleets: Iterable[Fleet]) -> dict[str, State]:
    generations = hall.generations()
    found = {}
    with hall.admin() as admin:
        for fleet in fleets:
            if fleet.failed is not None:
                continue
            described = describe(admin, fleet)
            assert described.state == "Stable", described
            found[fleet.name] = State(
                fleet.callbacks(),
                {
                    str(member.instance_id or member.member_id): member.assignment.get(
                        fleet.produced.topic, ()
                    )
                    for member in described.members
                },
                described.group_epoch,
                frozenset(generations.get(fleet.group, ())),
            )
    return found


def produce_until_committed(fleets: Iterable[Fleet], produced: Produced, what: str) -> None:
    """Records come until what was there before is committed: the next commit makes up for one that failed."""
    produced.produce()
    ends = list(produced.ends)
    with Background(produced):
        wait_for(fleets, f"commits {what}", lambda fleet: fleet.has_committed(ends))
    wait_for(fleets, f"all records {what}", lambda fleet: not fleet.missing)


@dataclass
class Rolled:
    fleets: dict[str, Fleet]
    before: dict[str, State]
    after: dict[str, State]
    doubled: dict[str, list[tuple[int, int]]]
    """Records that were consumed twice while the brokers were restarted."""
    last: dict[str, State]
    """After a member was restarted, too."""


@pytest.fixture(scope="module")
def rolled(hall: Hall) -> Rolled:
    produced = hall.topic("rolled", PARTITIONS)
    fleets = hall.fleets("rolled", produced)

    def start(fleet: Fleet, n: int) -> None:
        process = hall.process(fleet.kind.program, n // (MEMBERS - 1))
        fleet.start(process, n, f"i{n}" if fleet.kind.static else None)

    for fleet in fleets.values():
        for n in range(MEMBERS):
            start(fleet, n)
    everyone = fleets.values()
    wait_for(everyone, "three members share", lambda fleet: fleet.shared(MEMBERS))
    produce_until_committed(everyone, produced, "before the brokers are restarted")
    before = states(hall, everyone)
    with Watch(produced.servers, everyone):
        with Background(produced):
            for node in hall.cluster.nodes:
                hall.cluster.shut_down(node)
                hall.cluster.restart(node)
                hall.settle(produced.topic)
        produce_until_committed(everyone, produced, "after the brokers were restarted")
        wait_for(everyone, "offsets were read back", lambda fleet: fleet.read_back)
    after = states(hall, everyone)
    doubled = {name: fleet.doubled for name, fleet in fleets.items()}

    last = MEMBERS - 1
    closed = [f for f in everyone if not (f.kind.static and f.kind.protocol == "classic")]
    for fleet in closed:
        fleet.stop(last)
    wait_for(closed, "a member has closed", lambda fleet: fleet.is_stopped(last))
    for program in {fleet.kind.program for fleet in everyone}:
        hall.process(program, 1).kill()
        hall.process(program, 1).start()
    for fleet in everyone:
        start(fleet, last)
    wait_for(everyone, "three members share again", lambda fleet: fleet.shared(MEMBERS))
    produce_until_committed(everyone, produced, "after a member was restarted")
    return Rolled(fleets, before, after, doubled, states(hall, everyone))


@every_kind
def test_brokers_are_restarted_in_turn_without_a_rebalance_of_static_members(
    hall: Hall, rolled: Rolled, kind: str
) -> None:
    fleet = result_of(hall, rolled.fleets, kind)
    assert fleet.missing == []
    if fleet.kind.static:
        excused = fleet.restarted
        assert rolled.after[kind].of_others(excused) == rolled.before[kind].of_others(excused), fleet.story()
    if fleet.kind.static and fleet.kind.exactly_once and not fleet.restarted:
        assert rolled.doubled[kind] == [], fleet.story()


@every_kind
def test_static_member_is_restarted_without_a_rebalance_of_the_others(
    hall: Hall, rolled: Rolled, kind: str
) -> None:
    fleet = result_of(hall, rolled.fleets, kind)
    assert fleet.missing == []
    if fleet.kind.static and fleet.kind.releases:
        excused = {fleet.member(MEMBERS - 1), *fleet.restarted}
        assert rolled.last[kind].of_others(excused) == rolled.after[kind].of_others(excused), fleet.story()


@pytest.fixture(scope="module")
def bereft(hall: Hall) -> dict[str, Fleet]:
    produced = hall.topic("bereft", PARTITIONS)
    fleets = hall.fleets("bereft", produced)
    everyone = fleets.values()
    with hall.admin() as admin:
        for fleet in everyone:
            if not fleet.kind.survives:
                change = ConfigChange("consumer.session.timeout.ms", ConfigOperation.SET, "15000")
                admin.alter_configs(ConfigResourceType.GROUP, fleet.group, [change])
    for fleet in everyone:
        for n in range(MEMBERS):
            fleet.start(
                hall.process(fleet.kind.program, n // (MEMBERS - 1)), n, session_ms=fleet.kind.session_ms
            )
    wait_for(everyone, "three members share", lambda fleet: fleet.shared(MEMBERS))
    produce_until_committed(everyone, produced, "before the coordinator is killed")
    frozen = [hall.process(program, 1) for program in {fleet.kind.program for fleet in everyone}]
    with Watch(produced.servers, everyone), hall.admin() as admin:
        try:
            for process in frozen:
                process.freeze()
            for fleet in everyone:
                fleet.start(hall.process(fleet.kind.program, 0), MEMBERS, session_ms=fleet.kind.session_ms)
            wait_for(everyone, "a rebalance has begun", partial(is_rebalancing, admin))
            killed = hall.coordinator()
            hall.cluster.kill(killed)
            produced.produce(3)
            assert hall.coordinator() != killed
        finally:
            for process in frozen:
                process.thaw()
        restart_members(hall, [fleet for fleet in everyone if not fleet.kind.survives])
        wait_for(
            everyone, "four members share", lambda fleet: fleet.shared(MEMBERS + 1) and not fleet.missing
        )
        hall.cluster.heal()
        hall.settle(produced.topic)
        produce_until_committed(everyone, produced, "after the coordinator is back")
        wait_for(everyone, "offsets were read back", lambda fleet: fleet.read_back)
    # A client whose coordinator is back may rebalance once more.
    wait_for(everyone, "four members share at the end", lambda fleet: fleet.shared(MEMBERS + 1))
    return fleets


def restart_members(hall: Hall, fleets: Sequence[Fleet]) -> None:
    """Kill these processes and begin anew: what is left of the old members goes with their sessions."""
    for process in [hall.process(program, n) for program in {f.kind.program for f in fleets} for n in (0, 1)]:
        process.kill()
        process.start()
    for fleet in fleets:
        fleet.forget(*range(MEMBERS + 1))
        for n in range(MEMBERS + 1):
            fleet.start(hall.process(fleet.kind.program, n // MEMBERS), n, session_ms=fleet.kind.session_ms)


def is_rebalancing(admin: AdminClient, fleet: Fleet) -> bool:
    """Whether a new member waits for one that is frozen."""
    described = describe(admin, fleet)
    if described.type == "classic":
        return described.state == "PreparingRebalance"
    return described.state == "Reconciling" and len(described.members) == MEMBERS + 1


@every_kind
def test_coordinator_is_killed_in_a_rebalance(hall: Hall, bereft: dict[str, Fleet], kind: str) -> None:
    fleet = result_of(hall, bereft, kind)
    assert fleet.missing == [], fleet.story()
    assert fleet.read_back and min(fleet.committed.values()) > 0, fleet.story()


@pytest.fixture(scope="module")
def fifty(hall: Hall) -> dict[str, Fleet]:
    return hall.fleets("fifty", hall.topic("fifty", FIFTY))


@every_kind
def test_fifty_members_join_at_once(
    hall: Hall, fifty: dict[str, Fleet], kind: str, record_property: Callable[[str, object], None]
) -> None:
    fleet = result_of(hall, fifty, kind)
    process = hall.process(fleet.kind.program, 0)
    begun_s = time.monotonic()
    for n in range(FIFTY):
        fleet.start(process, n)
    wait_for([fleet], "fifty members own a partition each", lambda fleet: fleet.shared(FIFTY))
    record_property("stable_s", round(time.monotonic() - begun_s, 1))
    produce_until_committed([fleet], fleet.produced, "of fifty members")
    process.kill()
    process.start()
    assert fleet.failed is None, fleet.failed
    assert fleet.missing == []
