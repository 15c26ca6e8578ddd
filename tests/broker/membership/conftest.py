"""A broker and its controllers, in virtual time."""

from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.asynchronous import in_loop
from tests.broker.lifecycle_world import running_world

world = in_loop(running_world, VirtualLoop)
