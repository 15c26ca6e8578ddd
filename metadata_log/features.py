"""The feature levels this code supports, numbered as in Kafka 4.3, and the requirements of each.

``kraft.version`` belongs to the quorum: its level is in the quorum's own records, not among the features of
an image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pykraft.metadata_log.records import FeatureRange

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"

SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 30),
    KRAFT_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
    TRANSACTION_VERSION: (0, 2),
    ELIGIBLE_LEADER_REPLICAS_VERSION: (0, 1),
}
"""Name → (lowest, highest) level."""

UNSERVED_FEATURES: Final = frozenset({"share.version", "streams.version"})
"""Kafka's features that are known at level 0 only, which means off: any other level would promise clients
functions that do not exist here. Like features without a usable level in Kafka, they are not listed as
supported.
"""

SUPPORTED_RANGES: Final = tuple(
    FeatureRange(name, low, high) for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
)
"""The same, in the form that a node registers with."""


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
"""Releases, each with its first ``metadata.version``."""
_FIRST_NUMBERS: Final = {"3.3": 3}
"""A release numbers its versions from 0; only 3.3 starts later: its earlier ones are not supported."""

CORDONED_LOG_DIRS_FROM: Final = 30
"""The first ``metadata.version`` in which the controller knows the cordoned directories (KIP-1066)."""

REQUIRED_METADATA_VERSION: Final[Mapping[tuple[str, int], int]] = {
    (KRAFT_VERSION, 1): 21,
    (GROUP_VERSION, 1): 22,
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): 23,
}
"""(feature, level) → the lowest ``metadata.version`` it may be finalized with."""

_DEFAULT_FROM: Final[Mapping[tuple[str, int], int]] = {
    (GROUP_VERSION, 1): 22,
    (TRANSACTION_VERSION, 2): 24,
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1): 26,
}
"""(feature, level) → the ``metadata.version`` from which on a new cluster has it by default."""


def _metadata_version_names() -> dict[int, str]:
    names = {}
    ends = [first for _, first in _RELEASES[1:]] + [SUPPORTED_FEATURES[METADATA_VERSION][1] + 1]
    for (release, first), end in zip(_RELEASES, ends, strict=True):
        for level in range(first, end):
            names[level] = f"{release}-IV{level - first + _FIRST_NUMBERS.get(release, 0)}"
    return names


METADATA_VERSION_NAMES: Final = _metadata_version_names()
"""Level → Kafka's name for it, such as ``4.1-IV1``."""
LATEST_METADATA_VERSION: Final = SUPPORTED_FEATURES[METADATA_VERSION][1]


def parse_metadata_version(text: str) -> int:
    """The level called ``4.1-IV1``, or the last of release ``4.1``. :class:`ValueError` if it is unknown."""
    release = ".".join(text.split("-")[0].split(".")[:2])
    for level in sorted(METADATA_VERSION_NAMES, reverse=True):
        name = METADATA_VERSION_NAMES[level]
        if name == text or ("-" not in text and name.startswith(f"{release}-")):
            return level
    low, high = SUPPORTED_FEATURES[METADATA_VERSION]
    raise ValueError(
        f"{text} is not a supported metadata.version; supported are"
        f" {METADATA_VERSION_NAMES[low]} to {METADATA_VERSION_NAMES[high]}"
    )


def level_name(feature: str, level: int) -> str:
    """A level as it is shown to people: a name for ``metadata.version``, a number for all other features."""
    return METADATA_VERSION_NAMES.get(level, str(level)) if feature == METADATA_VERSION else str(level)


def default_features(metadata_version: int) -> dict[str, int]:
    """The feature levels that a new cluster of that ``metadata.version`` starts with."""
    defaults = {
        feature: level for (feature, level), first in _DEFAULT_FROM.items() if metadata_version >= first
    }
    return {METADATA_VERSION: metadata_version, **defaults}


def release_levels(metadata_version: int) -> dict[str, int]:
    """The level of every feature in the release with that ``metadata.version``; 0 if it is off there."""
    defaults = default_features(metadata_version)
    kraft_version = int(metadata_version >= REQUIRED_METADATA_VERSION[KRAFT_VERSION, 1])
    others = {name: defaults.get(name, 0) for name in (*SUPPORTED_FEATURES, *sorted(UNSERVED_FEATURES))}
    return {**others, METADATA_VERSION: metadata_version, KRAFT_VERSION: kraft_version}


BOOTSTRAP_FEATURES: Final = default_features(LATEST_METADATA_VERSION)
"""The feature levels that a newly formatted cluster starts with by default."""


def find_unsupported(features: Mapping[str, int]) -> str | None:
    """The first level of a cluster that this code cannot run, as a message; None if it can run all."""
    for name, level in sorted(features.items()):
        low, high = SUPPORTED_FEATURES.get(name, (0, 0))
        if not low <= level <= high:
            return f"{name} at level {level}; this software supports {low} to {high}"
    return None


def missing_requirement(features: Mapping[str, int]) -> str | None:
    """Why these levels are not compatible with each other; None if they are."""
    metadata_version = features.get(METADATA_VERSION, 0)
    for (name, level), required in REQUIRED_METADATA_VERSION.items():
        if features.get(name, 0) >= level and metadata_version < required:
            return (
                f"{name} {level} needs metadata.version {METADATA_VERSION_NAMES[required]},"
                f" not {level_name(METADATA_VERSION, metadata_version)}"
            )
    return None
