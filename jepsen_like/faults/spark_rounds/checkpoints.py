"""How far a query is, as its checkpoint says: nobody needs to ask a driver that may be dead."""

import json
from pathlib import Path

from pykraft.spark.stream_offsets import Offsets, from_json


def last_micro_batch(checkpoint: Path) -> int | None:
    """The newest whose end is stored."""
    return max(_numbered(checkpoint / "commits"), default=None)


def stored_offsets(checkpoint: Path) -> Offsets:
    """The end of :func:`last_micro_batch`; nothing if there is none. The query has a single source."""
    newest = last_micro_batch(checkpoint)
    if newest is None:
        return {}
    *_, offsets = (checkpoint / "offsets" / str(newest)).read_text(encoding="utf-8").splitlines()
    return from_json(json.loads(offsets))


def _numbered(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return [int(file.name) for file in directory.iterdir() if file.name.isdigit()]
