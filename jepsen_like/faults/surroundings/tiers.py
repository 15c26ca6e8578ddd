"""The tiers by name."""

from collections.abc import Callable, Mapping
from typing import Final

from pykraft.jepsen_like.faults.surroundings.portable import Portable
from pykraft.jepsen_like.faults.surroundings.root import Root
from pykraft.jepsen_like.faults.surroundings.surroundings import Surroundings

TIERS: Final[Mapping[str, Callable[[], Surroundings]]] = {
    "bare": Surroundings,
    "portable": Portable,
    "root": Root,
}
