"""What tests of the data plane begin with."""

from __future__ import annotations

import pytest

from tests.broker.data_cluster import DataPlaneTools


@pytest.fixture
def data_plane() -> DataPlaneTools:
    return DataPlaneTools()
