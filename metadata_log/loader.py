"""Follows the committed metadata log on every node: batches in, images and deltas out.

One image, one order: every committed batch is folded in exactly once, and publishers are called one after the
other, in the order they were given, each time something changed. A batch that carries no metadata moves the
offset only. This file decides nothing about the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykraft.metadata_log.codec import decode_record
from pykraft.metadata_log.delta import Changes, MetadataDelta, build_delta
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.replay import replay, skip_to


class MetadataPublisher(Protocol):
    """Wants to know what changed. Runs on the event loop; must not block and must not fail."""

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None: ...


class CommittedBatch(Protocol):
    """What the loader reads of a committed batch; ``values`` is empty for control batches."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def values(self) -> tuple[bytes, ...]: ...


def replay_batch(image: MetadataImage, batch: CommittedBatch) -> tuple[MetadataImage, Changes]:
    """Fold one committed batch into the image. Batches come in order and none is left out."""
    assert batch.base_offset == image.offset + 1, f"batch at {batch.base_offset} after offset {image.offset}"
    if not batch.values:
        return skip_to(image, batch.last_offset, batch.epoch), Changes()
    records = [decode_record(value) for value in batch.values]
    assert batch.base_offset + len(records) - 1 == batch.last_offset, "a batch with holes"
    return replay(image, records, batch.base_offset, batch.epoch)


class MetadataLoader:
    """A quorum listener that keeps the newest committed image and tells its publishers."""

    def __init__(self, publishers: Sequence[MetadataPublisher] = ()) -> None:
        self._publishers = tuple(publishers)
        self.image = EMPTY_IMAGE

    @property
    def offset(self) -> int:
        """The last applied offset, -1 before the first."""
        return self.image.offset

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Fold the batches in and publish their joint delta, if they changed anything."""
        old, changes = self.image, Changes()
        for batch in batches:
            self.image, touched = replay_batch(self.image, batch)
            changes.merge(touched)
        delta = build_delta(old, self.image, changes)
        if not delta.is_empty:
            for publisher in self._publishers:
                publisher.publish(delta, self.image)

    def handle_leader_change(self, leader: object) -> None:
        """Committed metadata does not depend on who leads."""
