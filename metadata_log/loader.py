"""Follows the committed metadata log on one node: batches in, images and deltas out.

A node folds each committed batch once, here, a piece at a time if it comes in pieces; a batch that the node's
own controller appended is not folded again: the image that the controller made of it is taken. A standby
controller takes the loader's image.
Publishers are called one after the other, in the order they were given, each time something changed, but not
before the node has first caught up with the high watermark it knows: no publisher sees a half-loaded cluster.
A snapshot replaces the image as a whole. This file makes no decisions about the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from pykraft.metadata_log.codec import decode_record
from pykraft.metadata_log.delta import Changes, MetadataDelta, build_delta, build_full_delta
from pykraft.metadata_log.image import EMPTY_IMAGE, MetadataImage
from pykraft.metadata_log.replay import Fold
from pykraft.metadata_log.snapshot import ImageBuilder
from pykraft.quorum.core.log_shape import SnapshotId
from pykraft.quorum.listener import CommittedBatch, LeaderAndEpoch

CHECK_EVERY_BATCHES: Final = 64
"""How often (in batches) an image of the controller is compared with a fold of the bytes in the log, unless
they come in pieces.
"""

GROWTH_RECORDS: Final = 5_000
"""``on_growth`` is called each time the image has grown by this many records."""


class MetadataPublisher(Protocol):
    """Is told what changed. Runs on the event loop; must not block and must not fail."""

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None: ...


class LocalController(Protocol):
    """The controller of this node, active or standby."""

    def take_committed(self, batch: CommittedBatch) -> tuple[MetadataImage, Changes] | None:
        """Return the controller's result from when it appended this batch; None if it did not."""
        ...

    def handle_commit(self, batches: Sequence[CommittedBatch], image: MetadataImage) -> None:
        """The batches are committed; ``image`` includes them."""
        ...

    def handle_snapshot(self, image: MetadataImage) -> None:
        """A snapshot has replaced everything: ``image`` is the committed state."""
        ...

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None: ...


class CommitFollower(Protocol):
    """Is told how far the node's image has come, whether anything changed or not."""

    def handle_commit(self, batches: Sequence[CommittedBatch], image: MetadataImage) -> None: ...

    def begin_snapshot(self) -> None: ...

    def finish_snapshot(self, image: MetadataImage, append_time_ms: int) -> None: ...


def fold_batch(image: MetadataImage, batch: CommittedBatch) -> tuple[MetadataImage, Changes]:
    """Decode one committed batch and fold it into the image. Batches must be given in order, without gaps."""
    fold = Fold(image)
    _apply(fold, batch)
    return fold.finish(), fold.changes


def _apply(fold: Fold, batch: CommittedBatch) -> None:
    offset = batch.base_offset + batch.earlier
    assert offset == fold.offset + 1, f"batch at {offset} after offset {fold.offset}"
    if batch.values:
        fold.apply([decode_record(value) for value in batch.values], offset, batch.epoch)
        assert fold.offset == batch.last_offset or not batch.is_last_piece, "a batch with gaps"
    else:
        fold.skip_to(batch.last_offset, batch.epoch)


class MetadataLoader:
    """The quorum listener that keeps the newest committed image and tells its publishers.

    ``high_watermark`` returns the quorum's high watermark (exclusive, 0 while it is not known);
    ``controller`` is the controller of the same node, if it has one; ``follower`` writes its snapshots.
    ``on_growth`` is called after every :data:`GROWTH_RECORDS` records; the caller may then exempt the image
    from garbage collection.
    """

    def __init__(
        self,
        publishers: Sequence[MetadataPublisher] = (),
        controller: LocalController | None = None,
        follower: CommitFollower | None = None,
        on_growth: Callable[[], None] | None = None,
        high_watermark: Callable[[], int] = lambda: 0,
    ) -> None:
        self._publishers = tuple(publishers)
        self._controller = controller
        self._follower = follower
        self._on_growth = on_growth or (lambda: None)
        self._high_watermark = high_watermark
        self._published: MetadataImage | None = None
        self._builder: ImageBuilder | None = None
        self._snapshot: tuple[SnapshotId, int] | None = None
        self._unfinished: tuple[Fold | None, tuple[MetadataImage, Changes] | None] = None, None
        """For a batch of which not all pieces have come: its fold, or what the controller has made of it."""
        self._taken = 0
        self._grown = 0
        self.image = EMPTY_IMAGE

    @property
    def offset(self) -> int:
        """The last applied offset, -1 before the first."""
        return self.image.offset

    def handle_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Fold the batches in and publish their joint delta, if they changed anything.

        A batch in pieces comes alone, and counts when the last has come.
        """
        assert self._builder is None, "a batch in the middle of a snapshot"
        changes = Changes()
        fold, taken = self._unfinished
        self._unfinished = None, None
        for batch in batches:
            if batch.earlier == 0 and self._controller is not None:
                taken = self._controller.take_committed(batch)
            if taken is None:
                fold = fold or Fold(self.image)
                _apply(fold, batch)
            if not batch.is_last_piece:
                self._unfinished = fold, taken
                return
            if taken is not None:
                self._close(fold, changes)
                fold = None
                self._take(batch, taken[0])
                changes.merge(taken[1])
        self._close(fold, changes)
        self._grow(sum(batch.last_offset + 1 - batch.base_offset for batch in batches if batch.values))
        if self._controller is not None:
            self._controller.handle_commit(batches, self.image)
        if self._follower is not None and batches:
            self._follower.handle_commit(batches, self.image)
        self._publish(changes)

    def handle_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Nothing to do: committed metadata does not depend on the leader."""
        if self._controller is not None:
            self._controller.handle_leader_change(leader)

    # A snapshot in place of the log

    def begin_snapshot(self, snapshot_id: SnapshotId, append_time_ms: int) -> None:
        """All state is about to be replaced by the snapshot's."""
        self._builder, self._unfinished = ImageBuilder(self.image), (None, None)
        self._snapshot = snapshot_id, append_time_ms
        if self._follower is not None:
            self._follower.begin_snapshot()

    def handle_snapshot_values(self, values: Sequence[bytes]) -> None:
        """The next values of the snapshot. They are published only when the last is loaded."""
        assert self._builder is not None, "values of a snapshot that has not begun"
        self._builder.load(values)
        self._grow(len(values))

    def finish_snapshot(self) -> None:
        """The snapshot is complete: its image replaces the old one, and the difference is published."""
        assert self._builder is not None and self._snapshot is not None
        snapshot_id, append_time_ms = self._snapshot
        self.image, changes = self._builder.finish(snapshot_id.end_offset - 1, snapshot_id.epoch)
        self._builder = self._snapshot = None
        if self._controller is not None:
            self._controller.handle_snapshot(self.image)
        if self._follower is not None:
            self._follower.finish_snapshot(self.image, append_time_ms)
        self._publish(changes)

    # Inside

    def _close(self, fold: Fold | None, changes: Changes) -> None:
        if fold is not None:
            self.image = fold.finish()
            changes.merge(fold.changes)

    def _take(self, batch: CommittedBatch, image: MetadataImage) -> None:
        assert batch.base_offset == self.image.offset + 1 and image.offset == batch.last_offset
        if self._taken % CHECK_EVERY_BATCHES == 0 and batch.earlier == 0:
            self._check(batch, image)
        self._taken += 1
        self.image = image

    def _check(self, batch: CommittedBatch, taken: MetadataImage) -> None:
        """The controller's image must equal a fold of the log's bytes, or no standby would agree with it."""
        folded, touched = fold_batch(self.image, batch)
        differ = not build_delta(taken, folded, touched).is_empty
        assert not differ and folded.next_producer_id == taken.next_producer_id, (
            f"the controller's image and the log differ at offset {batch.last_offset}"
        )

    def _publish(self, changes: Changes) -> None:
        if self._published is None:
            if self.image.offset + 1 < self._high_watermark():
                return
            delta = build_full_delta(self.image)
        else:
            delta = build_delta(self._published, self.image, changes)
        self._published = self.image
        if not delta.is_empty:
            for publisher in self._publishers:
                publisher.publish(delta, self.image)

    def _grow(self, records: int) -> None:
        self._grown += records
        if self._grown >= GROWTH_RECORDS:
            self._grown = 0
            self._on_growth()
