"""The rings of the simulation, the innermost first."""

from importlib import import_module
from typing import Final

from pykraft.jepsen_like.simulation.schedule import Ring

_NAMES: Final = ("quorum", "quorum_nodes", "cluster")


class _Rings(dict[str, Ring]):
    """Imports a ring on request: ring 1 needs only the standard library, so that PyPy runs it as well."""

    def __getitem__(self, name: str) -> Ring:
        known = self.get(name)
        if known is None:
            known = self[name] = import_module(f"{__package__}.{name}.ring").RING
        return known


RINGS: Final[dict[str, Ring]] = _Rings.fromkeys(_NAMES)  # type: ignore[assignment]
