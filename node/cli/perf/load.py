"""The load of a test: payloads, partitions and pacing. Pure: time and randomness come in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from pykraft.kafka_protocol.records import HEADER_BYTES

if TYPE_CHECKING:
    import random

MIN_PAUSE_MS: Final = 2.0
"""Shorter pauses are less exact than the timers of an event loop."""

_LETTERS: Final = bytes(ord("A") + byte % 26 for byte in range(256))

Payloads = Callable[[int], bytes]
"""The value of the record with a number, from 0 on."""


def pause_ms(sent: int, elapsed_ms: float, records_per_s: float) -> float:
    """How long to wait before the next record, if ``sent`` were sent in ``elapsed_ms``; 0: send it now.

    A sender that was held up catches up: the average since the start is what is kept. A negative rate means
    no limit.
    """
    if records_per_s < 0:
        return 0.0
    early_ms = 1000 * sent / records_per_s - elapsed_ms
    return max(early_ms, MIN_PAUSE_MS) if early_ms > 0 else 0.0


class StickyPartitions:
    """Partitions in turn, each for as many records as fit into a batch (KIP-480)."""

    def __init__(self, partitions: Sequence[int], batch_size_bytes: int) -> None:
        assert partitions, "a topic has partitions"
        self._partitions = partitions
        self._batch_size_bytes = batch_size_bytes
        self._turn = 0
        self._filled_bytes = HEADER_BYTES

    def partition(self, size_bytes: int) -> int:
        """The partition of the next record, which takes ``size_bytes`` of a batch."""
        if self._filled_bytes > HEADER_BYTES and self._filled_bytes + size_bytes > self._batch_size_bytes:
            self._turn = (self._turn + 1) % len(self._partitions)
            self._filled_bytes = HEADER_BYTES
        self._filled_bytes += size_bytes
        return self._partitions[self._turn]


def random_letters(size_bytes: int, rng: random.Random) -> Payloads:
    """Capital letters: a compressor saves what it saves on text without words."""
    return lambda _: rng.randbytes(size_bytes).translate(_LETTERS)


def chosen_from(payloads: Sequence[bytes], rng: random.Random) -> Payloads:
    return lambda _: rng.choice(payloads)


def monotonic() -> Payloads:
    return lambda number: str(number).encode()


def split_payloads(text: str, delimiter: str) -> list[bytes]:
    """The payloads in a text; ``delimiter`` is a regular expression between them, or before or after all.

    :class:`re.error` if it is not one.
    """
    parts: list[str] = []
    at = 0
    for match in re.finditer(delimiter, text):
        if match.end() > match.start():
            parts.append(text[at : match.start()])
            at = match.end()
    parts.append(text[at:])
    if parts[0] == "":
        del parts[0]
    if parts and parts[-1] == "":
        del parts[-1]
    return [part.encode() for part in parts]
