"""What the simulation's command line does to its process must not outlive a test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _logging_goes_on() -> Iterator[None]:
    """A simulation says nothing of the nodes that it kills, and disables logging for good."""
    yield
    logging.disable(logging.NOTSET)
