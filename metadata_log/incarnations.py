"""The id of a broker process is the hash of a secret that only it knows; the secret can prove its death.

The id is in the metadata log, where every client can read it. The secret is in the lock files of the
process's directories (:mod:`pykraft.runtime.directory_lock`) and nowhere else. Only the next process on these
directories, which holds their locks, reads the secret and sends it to the controller: a process that knows
the secret of an earlier one holds its directories, so the earlier process is dead. A mere claim that a broker
has died, which every client of the controllers' listener could make, proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from pykraft.kafka_protocol.ids import Uuid

MOST_SECRETS: Final = 1000
"""The limit for one registration: a lock file holds sixteen, and no broker has that many directories."""

_DOMAIN: Final = b"pykraft broker incarnation\0"


def incarnation_id_of(secret: bytes) -> Uuid:
    """The id under which the process with this secret registers: sixteen bytes, which look random."""
    return Uuid(sha256(_DOMAIN + secret).digest()[:16])


def proves_death(incarnation_id: Uuid, secrets: Iterable[bytes]) -> bool:
    """Whether one of the secrets is that of the process with this id."""
    return any(incarnation_id_of(secret) == incarnation_id for secret in secrets)
