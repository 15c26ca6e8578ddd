"""Transactions as their programs know them, checked against what is read in the end."""

from dataclasses import dataclass, field

from tests.kafka_client.transaction_world import TransactionWorld

Place = tuple[str, int]
PLACES: tuple[Place, ...] = (("t", 0), ("t", 1), ("u", 0))
JOURNAL: Place = ("u", 0)
"""Every transaction begins with a record there, the number of its story and a colon."""
SOURCE: Place = ("source", 0)


@dataclass
class Story:
    """One transaction as its program knows it. ``outcome``: aborted, committed or unknown."""

    number: int
    instance: str
    values: dict[Place, list[str]] = field(default_factory=dict)
    offset: int | None = None
    outcome: str = "aborted"

    def next_value(self, place: Place) -> str:
        return f"{self.number}:{len(self.values.get(place, ()))}"

    def keep(self, place: Place) -> None:
        """The next value of this place belongs to the transaction."""
        self.values.setdefault(place, []).append(self.next_value(place))


def check(world: TransactionWorld, stories: list[Story]) -> int:
    """What is read against what programs know; how many transactions were committed."""
    journal = world.committed(*JOURNAL)
    committed = list(dict.fromkeys(int(value.partition(":")[0]) for value in journal))
    outcomes = {story.number: story.outcome for story in stories}
    for number in committed:
        assert outcomes[number] != "aborted", f"transaction {number} is read, and was not committed"
    missing = {n for n, outcome in outcomes.items() if outcome == "committed"} - set(committed)
    assert not missing, f"transactions {missing} were committed, and are not read"
    for place in PLACES:
        expected = [value for number in committed for value in stories[number].values.get(place, [])]
        assert world.committed(*place) == expected, place
    for name in ("a", "b"):
        own = [number for number in committed if stories[number].instance == name]
        assert own == sorted(own), "an instance's transactions are in its order"
    with_offsets = [stories[number].offset for number in committed if stories[number].offset is not None]
    assert world.offsets.get(SOURCE) == (with_offsets[-1] if with_offsets else None)
    return len(committed)
