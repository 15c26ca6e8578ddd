"""Memory that grows under what was received."""

from __future__ import annotations

import errno
import mmap

import pytest

from pykraft.runtime.receive_buffer import MAPPED_BYTES, ReceiveBuffer

SIZES = pytest.mark.parametrize(
    ("before", "after"),
    [(1024, 4096), (MAPPED_BYTES - 1, 2 * MAPPED_BYTES), (MAPPED_BYTES, 5 * MAPPED_BYTES + 1)],
)


@SIZES
def test_what_was_received_stays_at_its_place(before: int, after: int) -> None:
    buffer = ReceiveBuffer(before)
    buffer.view[:] = b"a" * before
    buffer.grow(after)
    assert len(buffer) == after
    buffer.view[before:] = b"b" * (after - before)
    assert buffer.view == b"a" * before + b"b" * (after - before)


@SIZES
def test_views_of_before_stay_valid_and_see_nothing_of_what_comes_after(before: int, after: int) -> None:
    buffer = ReceiveBuffer(before)
    buffer.view[:] = b"a" * before
    view = buffer.view[10:20]
    buffer.grow(after)
    buffer.view[:20] = b"b" * 20
    assert view == b"a" * 10
    del buffer
    assert view == b"a" * 10


@pytest.mark.parametrize(
    "error",
    [SystemError("mmap: resizing not available--no mremap()"), OSError(errno.EPERM, "not in this sandbox")],
)
def test_mapping_that_the_system_cannot_extend_is_copied(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    class Fixed(mmap.mmap):
        def resize(self, newsize: int) -> None:
            raise error

    monkeypatch.setattr("mmap.mmap", Fixed)
    buffer = ReceiveBuffer(MAPPED_BYTES)
    buffer.view[-1] = 7
    buffer.grow(2 * MAPPED_BYTES)
    assert len(buffer) == 2 * MAPPED_BYTES
    assert buffer.view[MAPPED_BYTES - 1] == 7
