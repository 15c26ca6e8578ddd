"""The rows of groups and of transactions, in the order in which they are run and shown."""

from __future__ import annotations

from typing import Final

from comparison.families import Family
from coordination.rows import (
    commits,
    committing,
    consuming,
    heartbeats,
    many_groups,
    members,
    new_partitions,
    reading,
)

GROUPS: Final = (
    Family("consumer", members.__doc__, members.run_consumer),
    Family("classic", members.__doc__, members.run_classic),
    Family("consuming", consuming.__doc__, consuming.run),
    Family("partitions", new_partitions.__doc__, new_partitions.run),
    Family("groups", many_groups.__doc__, many_groups.run),
    Family("commits", commits.__doc__, commits.run),
    Family("heartbeats", heartbeats.__doc__, heartbeats.run),
)

TRANSACTIONS: Final = (
    Family("committing", committing.__doc__, committing.run),
    Family("reading", reading.__doc__, reading.run),
)
