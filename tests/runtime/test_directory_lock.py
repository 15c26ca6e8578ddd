"""One process a data directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykraft.runtime.directory_lock import DirectoryInUseError, DirectoryLock


def test_a_held_directory_is_refused_and_a_released_one_taken(tmp_path: Path) -> None:
    held = DirectoryLock(str(tmp_path))
    with pytest.raises(DirectoryInUseError, match="in use by another process"):
        DirectoryLock(str(tmp_path))
    held.release()
    DirectoryLock(str(tmp_path)).release()
