"""The identity of this process: a secret of its own, and the secrets of predecessors that are known to be
dead.

The controller reserves a broker's id until its session has expired, because a dead process cannot be
distinguished from a silent one. The exception is the next process on the same directories
(:mod:`pykraft.runtime.directory_lock`), which proves that its predecessor is dead by the secret that it finds
there (:mod:`pykraft.metadata_log.incarnations`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import field

from pykraft.kafka_protocol.ids import Uuid, make_uuid, uuid_from_str, uuid_to_str
from pykraft.lazy_dataclass import dataclass
from pykraft.metadata_log.incarnations import incarnation_id_of
from pykraft.runtime.directory_lock import DirectoryLock


@dataclass(frozen=True, slots=True)
class Incarnation:
    """``secret`` is new with every process; ``dead_secrets`` are those of earlier processes of this node that
    are certainly dead. A repr shows neither.
    """

    secret: Uuid = field(repr=False)
    dead_secrets: tuple[Uuid, ...] = field(default=(), repr=False)

    @property
    def id(self) -> Uuid:
        """The public id."""
        return incarnation_id_of(self.secret)


def draw_uuid(random_bytes: Callable[[int], bytes]) -> Uuid:
    """An id from ``random_bytes``, drawn again while it is a reserved one."""
    while True:
        value = make_uuid(random_bytes(16))
        if value is not None:
            return value


def enter_directories(locks: Iterable[DirectoryLock], own: Uuid) -> Incarnation:
    """A new incarnation, written into the locked directories, with the secrets of its predecessors."""
    dead: dict[Uuid, None] = {}
    for lock in locks:
        for name in lock.enter(uuid_to_str(own)):
            with contextlib.suppress(ValueError):
                dead[uuid_from_str(name)] = None
    return Incarnation(own, tuple(dead))
