"""The files of segments that are being replaced: their names, and what a start makes of them.

A segment is written with the suffix ``.cleaned``, renamed to ``.swap``, then the segments it replaces become
``.deleted``, then it loses its suffix: Kafka's names and order. Whatever part of that happened before a
crash, a start finds the old segments or finishes the replacement (and removes ``.deleted`` files, as always):

* while there is a ``.cleaned`` file the replacement had not begun: it and its ``.swap`` files are removed;
* else every ``.swap`` segment takes the place of the segments that lie within it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pykraft.log_store.scan import iter_headers
from pykraft.runtime.disk import Disk

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
FILE_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
"""All files of a segment, in the order in which they are renamed."""

_NAME = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex)(\.cleaned|\.swap)?")


def rename_files(disk: Disk, directory: str, base_offset: int, old_suffix: str, new_suffix: str) -> list[str]:
    """Rename those files of a segment that exist; returns the new paths. Durable with the directory."""
    renamed = []
    for kind in FILE_SUFFIXES:
        path = f"{directory}/{base_offset:020d}{kind}"
        if disk.exists(path + old_suffix):
            disk.rename(path + old_suffix, path + new_suffix)
            renamed.append(path + new_suffix)
    return renamed


def remove_files(disk: Disk, directory: str, base_offsets: Iterable[int], suffix: str) -> None:
    """Remove the files of segments that have this suffix."""
    for base_offset in base_offsets:
        for kind in FILE_SUFFIXES:
            disk.remove(f"{directory}/{base_offset:020d}{kind}{suffix}")


def finish_replacements(disk: Disk, directory: str, names: Sequence[str]) -> Sequence[str]:
    """Finish or undo the replacement that a crash interrupted; the names that are in the directory then.

    :class:`CorruptLogError` if a ``.swap`` segment, which was flushed, cannot be read.
    """
    found = [match for name in names if (match := _NAME.fullmatch(name)) is not None]
    if all(match[3] is None for match in found):
        return names
    cleaned = [match for match in found if match[3] == CLEANED_SUFFIX]
    first_cleaned = min((int(match[1]) for match in cleaned), default=None)
    swapped = [match for match in found if match[3] == SWAP_SUFFIX]
    for match in swapped:
        if first_cleaned is not None and int(match[1]) >= first_cleaned:
            disk.remove(f"{directory}/{match[0]}")
        elif match[2] == ".log":
            _remove_replaced(disk, directory, match, found)
    # Last: as long as one of them is there, what was removed above is not completed.
    for match in cleaned:
        disk.remove(f"{directory}/{match[0]}")
    for match in swapped:
        if first_cleaned is None or int(match[1]) < first_cleaned:
            disk.rename(f"{directory}/{match[0]}", f"{directory}/{match[1]}{match[2]}")
    disk.flush_dir(directory)
    return disk.list(directory)


def _remove_replaced(disk: Disk, directory: str, swap: re.Match[str], found: Sequence[re.Match[str]]) -> None:
    """Remove the segments that a ``.swap`` segment, not yet renamed, replaces."""
    first_offset = int(swap[1])
    file = disk.open(f"{directory}/{swap[0]}", create=False)
    try:
        end_offset = first_offset + 1
        for _, header in iter_headers(file, 0, file.size()):
            end_offset = header.next_offset
    finally:
        file.close()
    for match in found:
        if match[3] is None and match[2] in FILE_SUFFIXES and first_offset <= int(match[1]) < end_offset:
            disk.remove(f"{directory}/{match[0]}")
