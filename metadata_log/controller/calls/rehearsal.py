"""A request that only validates is decided like any other, on an image that nobody else sees.

A request in parts (:mod:`.request_parts`) needs it, since a later part is decided on what the earlier ones
have made, for example on the names of their topics.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import Record
from pykraft.metadata_log.replay import replay_in_slices


class Rehearsal:
    """The image that one request has made so far."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image

    def append(self, records: Sequence[Record]) -> Generator[None, None, None]:
        """Replay the records of a part, in slices. Not in the log, they have offsets that mean nothing."""
        before = self.image
        self.image, _ = yield from replay_in_slices(before, records, before.offset + 1, before.epoch)
