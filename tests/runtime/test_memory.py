"""Garbage collection among very many objects that are about to go."""

import gc
from collections.abc import Iterator

import pytest

from pykraft.runtime.memory import YoungCollectionsOnly


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def collects_fully() -> bool:
    """Whether a full collection comes by itself while many objects are made."""
    before: int = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(300_000)]
    assert kept
    after: int = gc.get_stats()[2]["collections"]
    return after > before


def test_full_collections_are_held_off_until_the_last_has_ended(thresholds: tuple[int, int, int]) -> None:
    assert collects_fully()
    first, second = YoungCollectionsOnly(), YoungCollectionsOnly()
    assert not collects_fully()
    first.end()
    first.end()
    assert not collects_fully()
    second.end()
    assert gc.get_threshold() == thresholds
    assert collects_fully()
