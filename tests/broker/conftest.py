"""What tests of the data plane begin with."""

import pytest

from pykraft.broker.replicas.leading import validate
from pykraft.kafka_protocol import compiled_walk
from tests.asynchronous import in_loop
from tests.broker.data_cluster import DataPlaneTools, running_cluster

cluster = in_loop(running_cluster)


@pytest.fixture
def data_plane() -> DataPlaneTools:
    return DataPlaneTools()


@pytest.fixture
def walked_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are walked as where the compiled walk is not installed: long ones take several turns."""
    for module in (compiled_walk, validate):
        monkeypatch.setattr(module, "IS_COMPILED", False)
