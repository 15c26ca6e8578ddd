"""Zigzag varints, many at a time: the base of the fast decoder.

A record's length can only be found by walking from record to record, one varint each; everything inside the
records is then decoded as vectors. Positions that run past the buffer raise :class:`IndexError`, which the
decoder reports as corruption; values of more than 64 bits are truncated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Bytes = NDArray[np.uint8]

_LONGEST_VARINT_BYTES = 10


def walk_records(body: bytes, position: int, end: int, begins: list[int]) -> int:
    """Append where each record between ``position`` and ``end`` begins; returns where the walk ended.

    It ends past ``end`` if the last record reaches beyond it. A negative length cannot stop the walk; it is
    found when the lengths are decoded.
    """
    append = begins.append
    while position < end:
        append(position)
        byte = body[position]
        if byte < 0x80:
            position += (byte >> 1) + 1
            continue
        second = body[position + 1]
        if second < 0x80:
            position += ((second << 6) | ((byte & 0x7F) >> 1)) + 2
            continue
        value, shift, at = byte & 0x7F, 0, position
        while byte >= 0x80:
            at += 1
            shift += 7
            byte = body[at]
            value |= (byte & 0x7F) << shift
        position = at + 1 + (value >> 1)
    return position


def read_varints(raw: Bytes, positions: Int64s) -> tuple[Int64s, Int64s]:
    """(values, positions after them) of the zigzag varints at ``positions``."""
    byte = raw[positions]
    values = (byte & 0x7F).astype(np.uint64)
    behind = positions + 1
    more: NDArray[Any] = np.flatnonzero(byte & 0x80)
    for shift in range(7, 7 * _LONGEST_VARINT_BYTES, 7):
        if not more.size:
            break
        byte = raw[behind[more]]
        values[more] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        behind[more] += 1
        more = more[byte >= 0x80]
    else:
        if more.size:
            raise IndexError("a varint of more than ten bytes")
    one = np.uint64(1)
    return (values >> one).view(np.int64) ^ -(values & one).view(np.int64), behind
