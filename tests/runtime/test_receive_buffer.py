"""A receive buffer that grows without moving the bytes received."""

import errno
import mmap

import pytest

from pykraft.runtime.network.receive_buffer import MAPPED_BYTES, ReceiveBuffer

SIZES = pytest.mark.parametrize(
    ("before", "after"),
    [(1024, 4096), (MAPPED_BYTES - 1, 2 * MAPPED_BYTES), (MAPPED_BYTES, 5 * MAPPED_BYTES + 1)],
)


@SIZES
def test_received_bytes_stay_in_place(before: int, after: int) -> None:
    buffer = ReceiveBuffer(before)
    buffer.view[:] = b"a" * before
    buffer.grow(after)
    assert len(buffer) == after
    buffer.view[before:] = b"b" * (after - before)
    assert buffer.view == b"a" * before + b"b" * (after - before)


@SIZES
def test_earlier_views_stay_valid_and_do_not_see_later_bytes(before: int, after: int) -> None:
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
