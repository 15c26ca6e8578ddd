"""Coordinator and leaders of transactions, in virtual time."""

import pytest

from pykraft.runtime.simulated.virtual_loop import VirtualLoop
from pykraft.transaction_coordinator.transaction import TransactionVersion
from tests.asynchronous import in_loop
from tests.kafka_client.transaction_world import running_world

world = in_loop(running_world, VirtualLoop)


@pytest.fixture
def rules() -> TransactionVersion:
    """Where a test names no others."""
    return TransactionVersion.TV_2
