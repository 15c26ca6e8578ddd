"""The id of a broker process is the hash of a secret that it alone knows, and that can prove its death.

The id stands in the metadata log, where anybody can read it. The secret stands in the lock files of the
process's directories (:mod:`pykraft.runtime.directory_lock`) and nowhere else. Only the next process on these
directories, which holds the locks, reads it and shows it to the controller: who knows the secret of a process
has its directories, and so the process is dead. A bare claim that a broker has died, which anybody who
reaches the controllers' listener could make, proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from pykraft.kafka_protocol.ids import Uuid

MOST_SECRETS: Final = 1000
"""A registration shows no more: a lock file names sixteen, and a broker has not that many directories."""

_DOMAIN: Final = b"pykraft broker incarnation\0"


def incarnation_id_of(secret: bytes) -> Uuid:
    """The id under which the process with this secret registers: sixteen bytes, as good as random."""
    return Uuid(sha256(_DOMAIN + secret).digest()[:16])


def proves_death(incarnation_id: Uuid, secrets: Iterable[bytes]) -> bool:
    """Whether one of the secrets is that of the process with this id."""
    return any(incarnation_id_of(secret) == incarnation_id for secret in secrets)
