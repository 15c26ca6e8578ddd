"""Fleets of unmodified clients: a group of one client, in processes that can be frozen or killed.

A program (member_confluent.py, member_kafka_python.py, member_aiokafka.py, member_kafkajs.mjs,
member_platformatic.mjs, GroupMembers.java) hosts any number of members of any groups. Each prints what
happens to them; a :class:`Fleet` keeps what its members own, consumed and committed, so that one set of
checks serves all clients, and many fleets go through the same fault of one cluster at the same time.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from confluent_kafka import Producer

from pykraft.coordinator.partitioning import partition_for_key
from pykraft.kafka_client.admin.client import AdminClient
from pykraft.kafka_client.results import GroupDescription
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.testing.processes.waits import PATIENCE_S, WaitError, wait_until
from tests.narrowing import present

ROOT: Final = Path(__file__).parents[2]
SESSION_MS: Final = 45_000
"""Longer than any fault here lasts: a member that is only slow keeps its place."""


@dataclass(frozen=True)
class Kind:
    """A client, and how it takes part in a group. ``static``: it can have a group.instance.id."""

    program: str
    protocol: str = "classic"
    assignor: str | None = None
    static: bool = True
    session_ms: int = SESSION_MS
    """Of members with the classic protocol whose coordinator is killed: some clients then forget who they
    are, and the others wait until that member's session is over.
    """
    exactly_once: bool = True
    """Whether its position survives what is not a rebalance, so that it reads no record twice."""
    survives: bool = True
    """Whether its members go on when the coordinator dies; otherwise their processes are restarted."""
    releases: bool = True
    """Whether a static member of the consumer protocol says on closing that it will be back (epoch -2)."""


KINDS: Final[Mapping[str, Kind]] = {
    "confluent-range": Kind("confluent", "classic", "range"),
    "confluent-cooperative": Kind("confluent", "classic", "cooperative-sticky"),
    "confluent-consumer": Kind("confluent", "consumer"),
    "kafka-python": Kind("kafka_python", session_ms=15_000),
    "aiokafka": Kind("aiokafka"),
    "kafkajs": Kind("kafkajs", static=False, session_ms=15_000),
    "platformatic-classic": Kind("platformatic", exactly_once=False, survives=False, session_ms=15_000),
    "platformatic-consumer": Kind(
        "platformatic", "consumer", exactly_once=False, survives=False, releases=False
    ),
    "java-classic": Kind("java"),
    "java-consumer": Kind("java", "consumer"),
}


class MemberProcess:
    """A running program. Its members report to the fleets that started them."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self._command = command
        self._fleets: dict[str, Fleet] = {}
        self._errors = directory.with_suffix(".err")
        self.start()

    def start(self) -> None:
        """Again, after it was killed, without members."""
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )
        self._killed = False
        self._fleets.clear()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def order(self, fleet: "Fleet", name: str, order: Mapping[str, object]) -> None:
        self._fleets[name] = fleet
        stdin = present(self._process.stdin)
        try:
            stdin.write(json.dumps(dict(order)) + "\n")
            stdin.flush()
        except BrokenPipeError:
            fleet.failed = fleet.failed or f"its program has ended: {self.errors}"

    def freeze(self) -> None:
        """Its sockets stay open, and its members do nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """At once: no member says goodbye."""
        self._killed = True
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._listener.join(PATIENCE_S)
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(BrokenPipeError):
                present(stream).close()

    @property
    def errors(self) -> str:
        """The end of what it printed to stderr."""
        return self._errors.read_text("utf-8", "replace")[-2000:]

    def _listen(self) -> None:
        for line in present(self._process.stdout):
            if line.endswith("\n"):  # a process that is killed may end in the middle of a line
                event = json.loads(line)
                self._fleets[event["member"]].note(event)
        if not self._killed:
            for fleet in self._fleets.values():
                fleet.failed = fleet.failed or f"its program ended by itself: {self.errors}"


@dataclass
class Seen:
    """What one member said."""

    process: MemberProcess
    owned: frozenset[int] = frozenset()
    callbacks: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stopped: bool = False
    restarts: int = 0
    """How often its client had to be made anew."""


class Produced:
    """A topic that all fleets read, and what was acknowledged in it."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self.servers, self.topic, self.partitions = servers, topic, partitions
        self.ends = [0] * partitions
        """Of acknowledged records."""
        self._failed: list[str] = []
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})

    def produce(self, count: int = 1) -> None:
        """``count`` records in each partition; they are acknowledged when this returns."""
        for n in range(count * self.partitions):
            self._producer.produce(
                self.topic, b"x", partition=n % self.partitions, on_delivery=self._delivered
            )
        assert self._producer.flush(PATIENCE_S) == 0
        assert not self._failed, self._failed

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._failed.append(str(error))
        else:
            offset, partition = message.offset(), message.partition()  # type: ignore[attr-defined]
            self.ends[partition] = max(self.ends[partition], offset + 1)


class Background:
    """Produces a record in each partition again and again until it is left."""

    def __init__(self, produced: Produced) -> None:
        self._produced = produced
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._stopping.wait(0.2):
                self._produced.produce()
        except BaseException as error:
            self._error = error


class Fleet:
    """The members of one group. ``failed`` is what went wrong first; after that nothing waits for it."""

    def __init__(self, name: str, kind: Kind, group: str, produced: Produced) -> None:
        self.name, self.kind, self.group, self.produced = name, kind, group, produced
        self.members: dict[str, Seen] = {}
        self.consumed: Counter[tuple[int, int]] = Counter()
        self.committed: dict[int, int] = {}
        """The latest offsets whose commits were acknowledged."""
        self.again: list[tuple[int, int]] = []
        """Records that a member got although their commit was acknowledged: their partition had two owners.
        Says something only where all members are in one process, whose events come in order.
        """
        self.stored: dict[int, int] = {}
        """The latest offsets that a broker returned."""
        self.failed: str | None = None
        self._lock = threading.Lock()

    def start(self, process: MemberProcess, n: int, instance: str | None = None, **changes: object) -> None:
        name = self.member(n)
        with self._lock:
            self.members[name] = Seen(process)
        order = {
            "start": name,
            "group": self.group,
            "topic": self.produced.topic,
            "protocol": self.kind.protocol,
            "assignor": self.kind.assignor,
            "instance": instance,
            "servers": self.produced.servers,
            "session_ms": SESSION_MS,
        }
        process.order(self, name, order | changes)

    def stop(self, n: int) -> None:
        """Ask it to close; :meth:`is_stopped` says when it has."""
        self.members[self.member(n)].process.order(self, self.member(n), {"stop": self.member(n)})

    def is_stopped(self, n: int) -> bool:
        return self.members[self.member(n)].stopped

    def forget(self, *numbers: int) -> None:
        """These members were killed."""
        with self._lock:
            for n in numbers:
                self.members.pop(self.member(n), None)

    def member(self, n: int) -> str:
        return f"{self.group}.{n}"

    def note(self, event: Mapping[str, object]) -> None:
        """One event of one member."""
        with self._lock:
            seen = self.members.get(str(event["member"]))
            got = list(_pairs(event.get("got")))
            self.consumed.update(got)
            self.again += [(p, o) for p, o in got if o < self.committed.get(p, 0)]
            for partition, offset in _pairs(event.get("committed")):
                self.committed[partition] = max(offset, self.committed.get(partition, 0))
            if seen is None:
                return
            if "owned" in event:
                seen.owned = frozenset(event["owned"])  # type: ignore[call-overload]
                seen.callbacks.append(f"{event['what']} {event['owned']}")
            if "note" in event:
                seen.notes.append(str(event["note"])[:300])
            seen.restarts += bool(event.get("restarted"))
            if event.get("stopped"):
                seen.stopped, seen.owned = True, frozenset()
            if "error" in event:
                self.failed = self.failed or f"{event['member']} ended: {event['error']}"

    def shared(self, count: int) -> bool:
        """Whether ``count`` members own every partition, each once, in shares as equal as can be."""
        with self._lock:
            owned = [sorted(seen.owned) for seen in self.members.values() if not seen.stopped]
        sizes = [len(part) for part in owned]
        return (
            len(owned) == count
            and sorted(n for part in owned for n in part) == list(range(self.produced.partitions))
            and max(sizes) - min(sizes) <= 1
        )

    def owners(self) -> dict[str, list[int]]:
        with self._lock:
            return {name: sorted(seen.owned) for name, seen in self.members.items()}

    def callbacks(self) -> dict[str, int]:
        """How often each member was told of its partitions."""
        with self._lock:
            return {name: len(seen.callbacks) for name, seen in self.members.items()}

    @property
    def restarted(self) -> set[str]:
        with self._lock:
            return {name for name, seen in self.members.items() if seen.restarts}

    @property
    def missing(self) -> list[tuple[int, int]]:
        """Acknowledged records that no member has consumed."""
        ends = list(self.produced.ends)
        with self._lock:
            return [(p, o) for p, end in enumerate(ends) for o in range(end) if (p, o) not in self.consumed]

    @property
    def doubled(self) -> list[tuple[int, int]]:
        with self._lock:
            return [record for record, times in self.consumed.items() if times > 1]

    def has_committed(self, ends: Sequence[int]) -> bool:
        """Whether all partitions are committed up to these ends, or further."""
        with self._lock:
            return all(self.committed.get(partition, 0) >= end for partition, end in enumerate(ends))

    @property
    def read_back(self) -> bool:
        """Whether a broker has returned every committed offset, or a later one."""
        with self._lock:
            return all(self.stored.get(partition, 0) >= end for partition, end in self.committed.items())

    def check_stored(self, admin: AdminClient) -> None:
        """Read the committed offsets back, if the broker answers; one that has gone back fails the fleet."""
        with self._lock:
            floors = {
                p: max(self.committed.get(p, 0), self.stored.get(p, 0))
                for p in range(len(self.produced.ends))
            }
        try:
            offsets = admin.group_offsets(self.group, timeout_ms=3000)
        except KafkaError:
            return
        stored = {where.partition: item.offset for where, item in offsets.items()}
        with self._lock:
            for partition, floor in floors.items():
                now = stored.get(partition, 0)
                if now < floor:
                    self.failed = (
                        self.failed or f"committed offset of {partition} went back from {floor} to {now}"
                    )
                self.stored[partition] = now

    def story(self) -> str:
        missing, owners = self.missing, self.owners()
        with AdminClient(self.produced.servers) as admin:
            described = admin.describe_groups([self.group], timeout_ms=5000)
        with self._lock:
            told = {name: [seen.callbacks[-6:], seen.notes[-6:]] for name, seen in self.members.items()}
        return (
            f"{self.failed}; {described}; owners {owners}; told {told}; missing {len(missing)}:"
            f" {missing[:20]}; committed {self.committed} of {self.produced.ends}; stderr: "
            + "".join({seen.process.errors for seen in self.members.values()})
        )


def _pairs(value: object) -> Iterable[tuple[int, int]]:
    return ((int(p), int(o)) for p, o in value) if isinstance(value, list) else ()


def wait_for(
    fleets: Iterable[Fleet], what: str, done: Callable[[Fleet], bool], timeout_s: float = PATIENCE_S
) -> None:
    """Until it is so for every fleet that has not failed. One that does not come there fails alone."""
    waiting = [fleet for fleet in fleets if fleet.failed is None]

    def all_done() -> bool:
        waiting[:] = [fleet for fleet in waiting if fleet.failed is None and not done(fleet)]
        return not waiting

    try:
        wait_until(what, all_done, timeout_s)
    except WaitError as error:
        for fleet in waiting:
            fleet.failed = str(error)
            fleet.failed = fleet.story()


def group_at(index: int, partitions: int, prefix: str) -> str:
    """A name for a group that the given partition of the offsets topic coordinates."""
    return next(
        name for n in range(10_000) if partition_for_key(name := f"{prefix}-{n}", partitions) == index
    )


def describe(admin: AdminClient, fleet: Fleet) -> GroupDescription:
    found: list[GroupDescription] = []

    def answered() -> bool:
        try:
            result = admin.describe_groups([fleet.group], timeout_ms=5000)[fleet.group]
        except KafkaError:
            return False
        if isinstance(result, GroupDescription):
            found.append(result)
        return bool(found)

    wait_until(f"a description of {fleet.group}", answered, PATIENCE_S)
    return found[0]


def program_command(program: str) -> list[str]:
    """Of a program in Python."""
    return [sys.executable, "-m", f"tests.interop.member_{program}"]


class Watch:
    """Reads the committed offsets of the fleets again and again; one that goes back fails its fleet."""

    def __init__(self, servers: str, fleets: Iterable[Fleet]) -> None:
        self._servers, self._fleets = servers, list(fleets)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with AdminClient(self._servers) as admin:
            while not self._stopping.wait(0.2):
                for fleet in self._fleets:
                    fleet.check_stored(admin)
