"""The voter set: a voter is an (id, directory id) pair with an address (KIP-853).

A directory id names one disk. A node whose disk was replaced comes back under another directory id and is
then *another* replica: it has forgotten its votes. Where the voter set was given by id only
(``controller.quorum.voters``), the directory id is zero and matches any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pykraft.kafka_protocol.ids import ZERO_UUID, Uuid, uuid_to_str
from pykraft.lazy_dataclass import dataclass
from pykraft.runtime.address import Address


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    """One replica: node id and the id of the directory that holds its metadata log."""

    id: int
    directory_id: Uuid = ZERO_UUID

    def matches(self, other: ReplicaKey) -> bool:
        """Same node, and same directory unless one side leaves the directory open."""
        return self.id == other.id and (
            self.directory_id == other.directory_id
            or self.directory_id == ZERO_UUID
            or other.directory_id == ZERO_UUID
        )

    def __str__(self) -> str:
        return (
            f"{self.id}" if self.directory_id == ZERO_UUID else f"{self.id}:{uuid_to_str(self.directory_id)}"
        )


HIGHEST_KRAFT_VERSION: Final = 1
"""The highest level of the feature ``kraft.version`` that this code can run."""


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter and the address of its CONTROLLER listener."""

    key: ReplicaKey
    address: Address


@dataclass(frozen=True, slots=True)
class Announcement:
    """The announcement of a voter known by its id alone, besides its directory id (:mod:`.kraft_upgrade`)."""

    address: Address
    highest_kraft_version: int = HIGHEST_KRAFT_VERSION


class VoterSet:
    """The voters, ordered by id. Immutable. Empty while none is known: then there are no elections."""

    __slots__ = ("_by_id", "ids", "majority", "voters")

    def __init__(self, voters: Sequence[Voter]) -> None:
        self.voters = tuple(sorted(voters, key=lambda voter: voter.key.id))
        self.ids = tuple(voter.key.id for voter in self.voters)
        if len(set(self.ids)) != len(self.ids):
            raise ValueError(f"the same node id appears twice among the voters {list(self.ids)}")
        self.majority = len(self.ids) // 2 + 1
        self._by_id = {voter.key.id: voter for voter in self.voters}

    def get(self, node_id: int) -> Voter | None:
        return self._by_id.get(node_id)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Whether this very replica votes: the id is a voter's and the directory is not another one."""
        voter = self._by_id.get(key.id)
        return voter is not None and voter.key.matches(key)

    @property
    def is_dynamic(self) -> bool:
        """Whether the set is kept in the log: every voter has a directory id, as kraft.version 1 asks for."""
        return all(voter.key.directory_id != ZERO_UUID for voter in self.voters)

    @property
    def kraft_version(self) -> int:
        """The level of the feature of that name: 1 if the set is kept in the log (KIP-853), else 0."""
        return int(self.is_dynamic)

    def with_voter(self, voter: Voter) -> VoterSet:
        """The set with this voter added, or in place of the one with its id."""
        return VoterSet([*(other for other in self.voters if other.key.id != voter.key.id), voter])

    def without(self, node_id: int) -> VoterSet:
        return VoterSet([voter for voter in self.voters if voter.key.id != node_id])

    def __len__(self) -> int:
        return len(self.voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet({', '.join(f'{v.key}@{v.address}' for v in self.voters)})"


NO_VOTERS = VoterSet(())
