"""Changes that the simulation's command line makes to its process must end with a test."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _logging_is_restored() -> Iterator[None]:
    """A simulation logs nothing about the nodes that it kills: it disables logging in its process."""
    yield
    logging.disable(logging.NOTSET)
