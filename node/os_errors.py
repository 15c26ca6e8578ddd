"""Errors of the operating system as one line for a node's operator: the path, whose it is, what to do."""

from __future__ import annotations

import errno
import os
import pwd
import stat
from pathlib import Path
from typing import Final

_REMEDIES: Final = {
    errno.ENOSPC: "free some space, or move the directory",
    errno.EDQUOT: "free some space, or have the quota raised",
    errno.EROFS: "mount the file system for writing",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "the machine has too many open files",
}
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})
_NO_BUGS: Final = frozenset(
    {*_REMEDIES, *_FORBIDDEN, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EIO}
)


def is_users(error: OSError) -> bool:
    """Whether the cause is outside the program: in its files, their owners, or the room for them."""
    return error.errno in _NO_BUGS


def describe(error: OSError, path: str | None = None) -> str:
    """Describe an error, its path and, if known, a remedy. ``path``: for an error without one."""
    if error.errno is None:
        return str(error)
    named = error.filename if isinstance(error.filename, str) else path
    said = error.strerror or os.strerror(error.errno)
    text = said if named is None else f"{named}: {said}"
    helps = _REMEDIES.get(error.errno)
    if helps is None and error.errno in _FORBIDDEN and named is not None:
        helps = _explain_refusal(Path(named))
    return text if helps is None else f"{text}: {helps}"


def _explain_refusal(path: Path) -> str | None:
    """Who owns the nearest that is there, and who asks; None if that cannot be found out either."""
    for place in (path, *path.parents):
        try:
            found = place.stat()
        except FileNotFoundError:
            continue
        except OSError:
            return None
        owner, user = _name(found.st_uid), _name(os.geteuid())
        if owner == user:
            return f"{place} has mode {stat.S_IMODE(found.st_mode):o}: chmod u+rwX {place}"
        return f"{place} belongs to {owner}, this process runs as {user}: run it as {owner}, or chown {place}"
    return None


def _name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"user {user_id}"
