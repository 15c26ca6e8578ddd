"""Controllers in the states that many tests begin with."""

from collections.abc import Callable

import pytest

from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from tests.asynchronous import in_loop
from tests.metadata_log.driver_world import running_world
from tests.metadata_log.harness import ControllerHarness


@pytest.fixture
def make_controller() -> Callable[..., ControllerHarness]:
    """Builds harnesses: ``make_controller(seed, config)``."""
    return ControllerHarness


@pytest.fixture
def controller() -> ControllerHarness:
    """An active controller of a new cluster, without brokers."""
    return ControllerHarness()


@pytest.fixture
def cluster() -> ControllerHarness:
    """Brokers 1, 2 and 3, unfenced, everything committed."""
    harness = ControllerHarness()
    harness.start_brokers(1, 2, 3)
    harness.commit()
    return harness


world = in_loop(running_world, VirtualLoop)
