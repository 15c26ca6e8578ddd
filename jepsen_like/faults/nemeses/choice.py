"""All kinds of faults by name, and the choice of some of them by names, families and presets."""

from collections.abc import Mapping, Sequence
from typing import Final

from pykraft.jepsen_like.faults.nemeses.kind import Kind
from pykraft.jepsen_like.faults.nemeses.kinds import (
    bad_links,
    clocks,
    damage,
    disks,
    file_systems,
    levels,
    links,
    membership,
    moves,
    power,
    processes,
    resources,
    versions,
    voters,
)

_MODULES: Final = (
    processes,
    links,
    bad_links,
    clocks,
    disks,
    power,
    file_systems,
    resources,
    voters,
    membership,
    moves,
    levels,
    damage,
    versions,
)

KINDS: Final[Mapping[str, Kind]] = {kind.name: kind for module in _MODULES for kind in module.KINDS}

SIGNALS: Final = ("kill", "pause", "kill-all")
PRESETS: Final[Mapping[str, Sequence[str]]] = {
    "none": (),
    "signals": SIGNALS,
    "mixed": tuple(KINDS),
}


def choose(names: str) -> tuple[Kind, ...]:
    """The kinds that a list with commas names: kinds, families (``links``), presets (``mixed``), and with a
    ``-`` before it what is left out (``mixed,-clock``). :class:`ValueError` for a name that is none."""
    chosen: dict[str, Kind] = {}
    for name in filter(None, (part.strip() for part in names.split(","))):
        if name.startswith("-"):
            for kind in _named(name[1:]):
                chosen.pop(kind.name, None)
        else:
            chosen |= {kind.name: kind for kind in _named(name)}
    return tuple(chosen.values())


def _named(name: str) -> Sequence[Kind]:
    if name in PRESETS:
        return [KINDS[kind] for kind in PRESETS[name]]
    found = [kind for kind in KINDS.values() if name in (kind.name, kind.family)]
    if not found:
        families = dict.fromkeys(kind.family for kind in KINDS.values())
        known = ", ".join([*PRESETS, *families, *KINDS])
        raise ValueError(f"no nemesis {name!r}; there are: {known}")
    return found
