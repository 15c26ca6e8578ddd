"""Feature levels this code understands, as Kafka 4.3 numbers them, and what each of them asks for.

``kraft.version`` belongs to the quorum: it is chosen when a node is formatted and stands in the quorum's own
records, not among the features of an image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykraft.metadata_log.records import FeatureRange

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"

SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 30),
    KRAFT_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
}
"""Name → (lowest, highest) level."""

UNSERVED_FEATURES: Final = frozenset({"transaction.version", "share.version", "streams.version"})
"""Kafka's features that are known at level 0 only, which is off: any other level would promise clients what
is not built. Like features of Kafka without a usable level, they are not among the supported ones."""

SUPPORTED_RANGES: Final = tuple(
    FeatureRange(name, low, high) for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
)
"""The same, as a node states it when it registers."""


def known_range(name: str) -> tuple[int, int] | None:
    """The levels (lowest, highest) that a feature can have here; None for a feature that is not Kafka's."""
    return (0, 0) if name in UNSERVED_FEATURES else SUPPORTED_FEATURES.get(name)


_RELEASES: Final[tuple[tuple[str, int], ...]] = (
    ("3.3", 7),
    ("3.4", 8),
    ("3.5", 9),
    ("3.6", 12),
    ("3.7", 15),
    ("3.8", 20),
    ("3.9", 21),
    ("4.0", 22),
    ("4.1", 26),
    ("4.2", 28),
    ("4.3", 30),
)
"""Releases with the first ``metadata.version`` of each."""
_FIRST_NUMBERS: Final = {"3.3": 3}
"""A release counts its versions from 0; only 3.3 had earlier ones, which nobody supports any more."""

REQUIRED_METADATA_VERSION: Final[Mapping[tuple[str, int], int]] = {
    (KRAFT_VERSION, 1): 21,
    (GROUP_VERSION, 1): 22,
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): 23,
}
"""(feature, level) → the least ``metadata.version`` it may be finalized with."""

_DEFAULT_FROM: Final[Mapping[tuple[str, int], int]] = {
    (GROUP_VERSION, 1): 22,
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): 26,
}
"""(feature, level) → the ``metadata.version`` from which a new cluster has it without being asked."""


def _metadata_version_names() -> dict[int, str]:
    names = {}
    ends = [first for _, first in _RELEASES[1:]] + [SUPPORTED_FEATURES[METADATA_VERSION][1] + 1]
    for (release, first), end in zip(_RELEASES, ends, strict=True):
        for level in range(first, end):
            names[level] = f"{release}-IV{level - first + _FIRST_NUMBERS.get(release, 0)}"
    return names


METADATA_VERSION_NAMES: Final = _metadata_version_names()
"""Level → Kafka's name of it, such as ``4.1-IV1``."""
LATEST_METADATA_VERSION: Final = SUPPORTED_FEATURES[METADATA_VERSION][1]


def parse_metadata_version(text: str) -> int:
    """The level called ``4.1-IV1``, or the last one of release ``4.1``; :class:`ValueError` for no such."""
    release = ".".join(text.split("-")[0].split(".")[:2])
    for level in sorted(METADATA_VERSION_NAMES, reverse=True):
        name = METADATA_VERSION_NAMES[level]
        if name == text or ("-" not in text and name.startswith(f"{release}-")):
            return level
    low, high = SUPPORTED_FEATURES[METADATA_VERSION]
    raise ValueError(
        f"{text} is no metadata.version that is supported:"
        f" {METADATA_VERSION_NAMES[low]} to {METADATA_VERSION_NAMES[high]} are"
    )


def level_name(feature: str, level: int) -> str:
    """How people write a level: a name for ``metadata.version``, a number for all others."""
    return METADATA_VERSION_NAMES.get(level, str(level)) if feature == METADATA_VERSION else str(level)


def default_features(metadata_version: int) -> dict[str, int]:
    """What a new cluster of that ``metadata.version`` starts with."""
    defaults = {
        feature: level for (feature, level), first in _DEFAULT_FROM.items() if metadata_version >= first
    }
    return {METADATA_VERSION: metadata_version, **defaults}


BOOTSTRAP_FEATURES: Final = default_features(LATEST_METADATA_VERSION)
"""What a newly formatted cluster starts with unless told otherwise."""


def find_unsupported(features: Mapping[str, int]) -> str | None:
    """The first of a cluster's levels that this code cannot run, and what it can; None if it can run all."""
    for name, level in sorted(features.items()):
        low, high = SUPPORTED_FEATURES.get(name, (0, 0))
        if not low <= level <= high:
            return f"{name} at level {level}; this software supports {low} to {high}"
    return None


def missing_requirement(features: Mapping[str, int]) -> str | None:
    """Why these levels do not go together; None if they do."""
    metadata_version = features.get(METADATA_VERSION, 0)
    for (name, level), required in REQUIRED_METADATA_VERSION.items():
        if features.get(name, 0) >= level and metadata_version < required:
            return (
                f"{name} {level} needs metadata.version {METADATA_VERSION_NAMES[required]},"
                f" it would be {level_name(METADATA_VERSION, metadata_version)}"
            )
    return None
