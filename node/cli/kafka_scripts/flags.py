"""Kafka's scripts and their flags, and what ``pykraft`` has in their place (``tools.toml``)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pykraft.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class KafkaTool:
    """A script of Apache Kafka 4.3 and the command of ``pykraft`` that takes its place.

    ``script``: as ``kafka-console-producer``; ``command``: as ``producer``, words with blanks between. ``flags``
    says of every flag of the script how the command has it: ``""`` under the same name, ``"=--other"`` under that
    one; or, in plain words, why it does not.
    """

    script: str
    command: str
    flags: Mapping[str, str]

    def option(self, flag: str) -> str | None:
        """Our name for a flag of the script; None if we do not have it."""
        said = self.flags[flag]
        if said == "":
            return flag
        return said[1:] if said.startswith("=") else None


_READ: Final = tomllib.loads(Path(__file__).with_name("tools.toml").read_text("utf-8"))

TOOLS: Final = tuple(
    KafkaTool(it["script"], it["command"], dict.fromkeys(it["flags"].split(), "") | it.get("others", {}))
    for it in _READ["tool"]
)
"""Every script that has a command of ours."""

NOT_PROVIDED: Final[Mapping[str, str]] = _READ["not_provided"]
"""The other scripts, and why there is nothing in their place."""
