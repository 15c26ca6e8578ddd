"""One fault of a plan, and the plan of a run as a file."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec


class Target(StrEnum):
    """Whom a fault hits; on whom that falls is decided when it happens.

    ``controller`` is the active one, ``busiest`` the broker that leads most partitions of the first topic.
    ``minority`` and ``majority`` are as many nodes as that takes, with the busiest or the controller among
    them half of the time.
    """

    ANY = "any"
    CONTROLLER = "controller"
    BUSIEST = "busiest"
    MINORITY = "minority"
    MAJORITY = "majority"
    ALL = "all"
    CLUSTER = "cluster"
    """No node in particular: a change of the cluster itself."""


class Intensity(StrEnum):
    """How much happens in a phase of a run."""

    NONE = "none"
    FEW = "few"
    MANY = "many"


class Phase(msgspec.Struct, frozen=True):
    """Seconds from the beginning of the run; ends where the next one begins."""

    intensity: Intensity
    start_s: float


class Fault(msgspec.Struct, frozen=True):
    """``number`` names it in the plan and in the history; times are in seconds from the run's beginning.

    ``draw`` in [0, 1) picks the victims where the target leaves a choice. A ``reckless`` fault may leave less
    than a majority of undisturbed nodes. ``settings`` are those of its kind, drawn with the plan.
    """

    number: int
    kind: str
    target: Target
    at_s: float
    lasts_s: float
    draw: float = 0.0
    reckless: bool = False
    settings: Mapping[str, float] = {}


class Plan(msgspec.Struct, frozen=True):
    """All faults of a run, in the order of their beginnings."""

    seed: int
    time_limit_s: float
    phases: tuple[Phase, ...]
    faults: tuple[Fault, ...]

    def where(self, done_s: float) -> str:
        """In words, where a run is after so many seconds."""
        begun = [phase.intensity.value for phase in self.phases if phase.start_s <= done_s]
        faults = f", {begun[-1].replace('none', 'no')} faults" if begun else ""
        return f"{done_s:.0f} of {self.time_limit_s:.0f} s{faults}"

    def write(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def read_plan(path: Path) -> Plan:
    """:class:`ValueError` if the file is no plan."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is no plan of a run: {error}") from None
