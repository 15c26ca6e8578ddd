"""The rings of the simulation, from the innermost outwards."""

from __future__ import annotations

from pykraft.jepsen_like.sim import cluster, quorum
from pykraft.jepsen_like.sim.schedule import Ring

RINGS: dict[str, Ring] = {ring.name: ring for ring in (quorum.RING, cluster.RING)}
