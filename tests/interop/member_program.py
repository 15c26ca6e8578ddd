"""What the programs of group members in Python share: orders come in on stdin, events go out on stdout.

An order is a line of JSON: ``{"start": name, "group": …, "topic": …, "protocol": …, "assignor": …,
"instance": …, "servers": …, "session_ms": …}`` or ``{"stop": name}``. An event is a line of JSON that names
its member: ``{"member": name, "what": "assigned" | "revoked" | "lost", "owned": [partition, …]}`` after each
callback, ``"got"`` and ``"committed"``: [[partition, offset], …], ``"stopped"`` after it has closed,
``"restarted"`` when the client had to be made anew, ``"error"`` when the member ended by itself, ``"note"``
for people. The programs for Java and Node.js speak the same; tests/interop/fleet.py is the other end.
"""

import json
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Protocol

warnings.simplefilter("ignore", DeprecationWarning)

_printing = threading.Lock()
Pairs = list[tuple[int, int]]


class Order:
    """How to take part in which group."""

    def __init__(self, line: dict[str, object]) -> None:
        def text(key: str) -> str:
            return str(line[key])

        self.name, self.group, self.topic = text("start"), text("group"), text("topic")
        self.protocol, self.servers = text("protocol"), text("servers")
        self.assignor: str | None = None if line["assignor"] is None else text("assignor")
        self.instance: str | None = None if line["instance"] is None else text("instance")
        self.session_ms = int(text("session_ms"))


class Report:
    """The events of one member."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owned: set[int] = set()

    def say(self, **what: object) -> None:
        line = json.dumps({"member": self.name, **what})
        with _printing:
            print(line, flush=True)

    def assigned(self, partitions: Iterable[int]) -> None:
        self.owned.update(partitions)
        self.say(what="assigned", owned=sorted(self.owned))

    def revoked(self, partitions: Iterable[int], what: str = "revoked") -> None:
        self.owned.difference_update(partitions)
        self.say(what=what, owned=sorted(self.owned))

    def restarted(self) -> None:
        """The client failed for a reason of its own, and its application makes another one."""
        self.owned.clear()
        self.say(restarted=True, what="restarted", owned=[])

    def turn(self, got: Pairs, commit: Callable[[dict[int, int]], dict[int, int]]) -> None:
        """Say what came, then commit it; ``commit`` returns the offsets that were taken."""
        if got:
            self.say(got=got)
            ends = {partition: 1 + max(o for p, o in got if p == partition) for partition, _ in got}
            committed = commit(ends)
            if committed:
                self.say(committed=sorted(committed.items()))


class Running(Protocol):
    def __call__(self, order: Order, report: Report, stopping: threading.Event) -> None: ...


def serve_in_threads(run: Running) -> None:
    """Run each member in a thread of its own until stdin ends."""
    stopping: dict[str, threading.Event] = {}

    def guarded(order: Order, event: threading.Event) -> None:
        report = Report(order.name)
        try:
            run(order, report, event)
            report.say(stopped=True)
        except Exception as error:
            report.say(error="".join(traceback.format_exception(error)))

    for line in sys.stdin:
        read = json.loads(line)
        if "stop" in read:
            stopping[read["stop"]].set()
            continue
        order = Order(read)
        event = stopping[order.name] = threading.Event()
        threading.Thread(target=guarded, args=(order, event), daemon=True).start()
