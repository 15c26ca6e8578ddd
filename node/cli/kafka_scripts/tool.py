"""Which option of ours stands for which flag of Kafka's scripts, as data: for the table of tools, and for tests."""

from __future__ import annotations

from collections.abc import Mapping

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
