"""Feature levels this code understands: name → (lowest, highest), as Kafka 4.3 numbers them.

Finalizing ``transaction.version`` or ``share.version`` would promise clients what is not built, so they are
not listed.
"""

from __future__ import annotations

from typing import Final

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"
GROUP_VERSION: Final = "group.version"

SUPPORTED_FEATURES: Final[dict[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 30),
    KRAFT_VERSION: (0, 1),
    GROUP_VERSION: (0, 1),
}

BOOTSTRAP_FEATURES: Final[dict[str, int]] = {METADATA_VERSION: 30, GROUP_VERSION: 1}
"""What a newly formatted cluster starts with."""
