"""One turn of one system at one family of rows: it runs rows, and notes figures and failures."""

import contextlib
import itertools
import re
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from comparison.cluster import Cluster, Cost
from comparison.results import Failure, FamilyResults, Figure, Results
from comparison.systems import System
from comparison.table import figure

WARM_UP_S = 20
"""For how long the first load of a new process is repeated before it is measured."""

_QUICK_SHARE = 20
_ERROR_CHARACTERS = 300
_GB = 1_000_000_000


@dataclass
class Figures:
    """The figures of one row, entered only if the whole row succeeds."""

    noted: list[Figure] = field(default_factory=list)

    def note(self, measure: str, unit: str, value: float) -> None:
        self.noted.append(Figure(measure, unit, float(f"{value:.6g}")))

    def per_gb(self, cost: Cost, size_bytes: int) -> None:
        self.note("CPU", "s/GB", cost.cpu_s / size_bytes * _GB)
        self.note("wall", "s/GB", cost.wall_s / size_bytes * _GB)

    def per_request(self, cost: Cost, count: int) -> None:
        self.note("CPU", "µs", cost.cpu_s / count * 1e6)
        self.note("wall", "µs", cost.wall_s / count * 1e6)

    def latencies(self, seconds: Sequence[float]) -> None:
        thousandths = statistics.quantiles(seconds, n=1000, method="inclusive")
        for name, at in (("p50", 500), ("p99", 990), ("p99.9", 999)):
            self.note(name, "µs", thousandths[at - 1] * 1e6)


@dataclass
class Turn:
    """``match`` selects rows by their names; ``directory`` is deleted after the turn."""

    system: System
    round: int
    directory: Path
    quick: bool
    match: re.Pattern[str]
    results: Results
    family: FamilyResults
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of all nodes."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def next_number(self) -> int:
        """For names of topics and groups that are new in this turn."""
        return next(self._numbers)

    def scaled(self, count: int) -> int:
        """The load of a whole run, or a twentieth of it."""
        return max(2, count // _QUICK_SHARE) if self.quick else count

    @contextlib.contextmanager
    def cluster(self, count: int, **properties: str) -> Iterator[Cluster]:
        """New nodes; in ``properties`` _ stands for a dot."""
        directory = self.directory / "cluster"
        named = {key.replace("_", "."): value for key, value in properties.items()}
        try:
            with Cluster(self.system, directory, count, {**self.properties, **named}) as cluster:
                yield cluster
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def warm_up(self, cluster: Cluster, load: Callable[[], object]) -> None:
        """The load of a row before it is measured: once, on a new process for :data:`WARM_UP_S` at least."""
        enough = time.monotonic() + (0 if cluster.is_warm or self.quick else WARM_UP_S)
        load()
        while time.monotonic() < enough:
            load()
        cluster.is_warm = True

    def wants(self, row: str) -> bool:
        return self.match.search(row) is not None

    def row(self, name: str, measure: Callable[[Figures], None]) -> None:
        """Run one row if it is selected. If it fails, its error is noted, and the turn goes on."""
        if not self.wants(name):
            return
        figures = Figures()
        try:
            measure(figures)
        except Exception as error:
            self.fail(name, error)
        else:
            self.results.note(self.family, name, self.system.name, self.round, figures.noted)
            texts = (f"{one.measure} {figure(one.value)} {one.unit}" for one in figures.noted)
            print(f"  {self.system.name:8} {name}: " + ", ".join(texts), flush=True)

    def fail(self, row: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]
        self.family.failures.append(Failure(row, self.system.name, self.round, text))
        print(f"  {self.system.name:8} {row}: FAILED: {text}", flush=True)
