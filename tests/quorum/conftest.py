"""A quorum in virtual time, so that a slow machine has no influence."""

from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.asynchronous import in_loop
from tests.quorum.nodes import running_cluster

cluster = in_loop(running_cluster, VirtualLoop)
