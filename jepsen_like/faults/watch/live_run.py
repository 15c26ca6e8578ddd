"""The state of a run so far."""

import time
from array import array
from collections import Counter, deque
from pathlib import Path
from typing import Final, Literal

import msgspec

from pykraft.jepsen_like.faults.history import NEMESIS, OBSERVER, Event, HistoryError
from pykraft.jepsen_like.faults.nemeses.fault import Plan, read_plan
from pykraft.jepsen_like.faults.run_files import CLUSTER, HISTORY, PAGE, PLAN, SUMMARY
from pykraft.jepsen_like.faults.timeline.overview import FAULTS_BEGIN, IN_SYNC, RUNNER, Overview, Surveyor
from pykraft.jepsen_like.faults.timeline.seconds import LONGEST_S, second_of
from pykraft.jepsen_like.faults.watch.follower import HistoryFollower

NOBODY: Final = "-1"
_NEWS: Final = 40
_SPOKEN: Final = frozenset((NEMESIS, OBSERVER, RUNNER))
_TAIL_BYTES: Final = 4_096
_TAIL_LINES: Final = 8
_QUIET_S: Final = 60.0


class Verdict(msgspec.Struct, frozen=True):
    """The part of ``summary.json`` that is read."""

    outcome: Literal["clean", "anomaly", "does not count"]
    anomalies: dict[str, int]


class LiveRun:
    """One run, read on by :meth:`read_on`. Not for several threads at once.

    ``overview``: of the events so far; ``plan`` None: not written yet. ``controller``: the node, or
    :data:`NOBODY`. ``news``: the last events of the nemesis, the observer and the runner, the newest last.
    ``problem``: why no more of the history is read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.overview = Overview()
        self.plan: Plan | None = None
        self.controller = NOBODY
        self.news: deque[Event] = deque(maxlen=_NEWS)
        self.problem: str | None = None
        self._surveyor = Surveyor()
        self._follower = HistoryFollower(directory / HISTORY)
        self._per_second: dict[tuple[str, str], array[int]] = {}

    @property
    def left_bytes(self) -> int:
        """How much of the history is not read yet."""
        return 0 if self.problem else self._follower.left_bytes

    def read_on(self, for_s: float) -> None:
        """Read what was written, for about so long at most."""
        try:
            self._follow(time.monotonic() + for_s)
        except (HistoryError, OSError) as error:
            self.problem = str(error)
        if self.plan is None:
            self._read_plan()

    def _follow(self, end_s: float) -> None:
        try:
            while self.problem is None and (events := self._follower.read()):
                for event in events:
                    self._add(event)
                if time.monotonic() > end_s:
                    break
        finally:
            self.overview = self._surveyor.result()

    def _add(self, event: Event) -> None:
        self._surveyor.add(event)
        if event.process in _SPOKEN:
            self.news.append(event)
        if event.process == OBSERVER and event.op == "controller":
            self.controller = event.value or NOBODY
        if event.type == "invoke":
            return
        second = second_of(event.time_us)
        if second > LONGEST_S:
            raise HistoryError(f"an event after {second:,} s: no run is that long")
        counts = self._per_second.setdefault((event.op, event.type), array("I"))
        if second >= len(counts):
            counts.extend([0] * (second + 1 - len(counts)))
        counts[second] += 1

    def _read_plan(self) -> None:
        try:
            self.plan = read_plan(self.directory / PLAN)
        except FileNotFoundError:
            return
        except (ValueError, OSError) as error:
            self.problem = self.problem or str(error)

    @property
    def seconds(self) -> int:
        """How many seconds of the run have begun."""
        return second_of(self.overview.end_us) + 1

    def per_second(self, *kinds: str) -> list[int]:
        """How many operations by which availability is judged had these outcomes in each second."""
        total, waited_on = [0] * self.seconds, self.overview.waited_on
        for (op, kind), counts in self._per_second.items():
            if kind in kinds and op in waited_on:
                for second, count in enumerate(counts):
                    total[second] += count
        return total

    @property
    def stage(self) -> str:
        """The stage the run is at."""
        marks = self.overview.marks
        if (self.directory / PAGE).exists():
            return "finished"
        if IN_SYNC in marks:
            return "everything is in sync again; the last reads, and the verdict, follow"
        begin_us = self.overview.mark_us(FAULTS_BEGIN)
        if self.plan is None or begin_us is None:
            return "starting"
        if self.progress is not None and self.progress >= 1:
            return "the last repairs, and healing"
        return "faults"

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on a finished run; None also if its summary has none."""
        if self.stage != "finished":
            return None
        try:
            return msgspec.json.decode((self.directory / SUMMARY).read_bytes(), type=Verdict)
        except (OSError, msgspec.MsgspecError):
            return None

    @property
    def progress(self) -> float | None:
        """The share of the time of faults that is over; None if it has not begun."""
        begin_us = self.overview.mark_us(FAULTS_BEGIN)
        if self.plan is None or begin_us is None:
            return None
        return min(1.0, (self.overview.end_us - begin_us) / 1e6 / self.plan.time_limit_s)

    @property
    def quiet_s(self) -> float | None:
        """For how long nothing was written, if that is long and the run has not finished."""
        try:
            silent_s = time.time() - (self.directory / HISTORY).stat().st_mtime
        except FileNotFoundError:
            return None
        return silent_s if silent_s > _QUIET_S and self.stage != "finished" else None

    def leaders(self) -> Counter[str]:
        """How many partitions each node leads, as far as it is known; :data:`NOBODY` is one of them."""
        return Counter(changes[-1][1] for changes in self.overview.leaders.values())

    def output_tails(self) -> list[tuple[str, list[str]]]:
        """The names of the nodes' outputs, and their last lines."""
        tails = []
        for file in sorted((self.directory / CLUSTER).glob("*.log")):
            try:
                with file.open("rb") as output:
                    output.seek(max(0, file.stat().st_size - _TAIL_BYTES))
                    lines = output.read().decode("utf-8", "replace").splitlines()[-_TAIL_LINES:]
            except OSError:
                continue
            tails.append((file.name, lines))
        return tails


def find_run(directory: Path) -> Path | None:
    """The directory itself if it is that of a run, or of the runs in it the one that was written to last."""
    if (directory / HISTORY).exists():
        return directory
    runs = [(it.stat().st_mtime, it) for it in directory.glob(f"*/{HISTORY}") if it.is_file()]
    return max(runs)[1].parent if runs else None
