"""The findings of checkers: the kinds of anomaly by name, and findings with a few examples each.

The checkers define the anomalies; the names are Jepsen's where Jepsen has one. A finding always fails a run:
behaviour that Kafka's guarantees allow has no kind here.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MAX_EXAMPLES = 5


class Anomaly(StrEnum):
    """Every kind of finding."""

    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    MOVED_OFFSET = "moved-offset"
    ABORTED_READ = "aborted-read"
    PHANTOM_READ = "phantom-read"
    VANISHED_READ = "vanished-read"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    INT_POLL_SKIP = "int-poll-skip"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    POLL_SKIP = "poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    POSITION_LOST = "position-lost"
    READ_TOO_FAR = "read-too-far"
    DELETED_READ = "deleted-read"
    DIVERGENT_REPLICA = "divergent-replica"
    WRONG_OFFSET_FOR_TIME = "wrong-offset-for-time"
    OWNED_TWICE = "owned-twice"
    FOREIGN_ASSIGNMENT = "foreign-assignment"
    NOT_CONVERGED = "not-converged"
    EPOCH_WENT_BACK = "epoch-went-back"
    SKIPPED_BY_GROUP = "skipped-by-group"
    STATIC_MEMBER_REASSIGNED = "static-member-reassigned"
    STALE_MAP_READ = "stale-map-read"
    RESURRECTED_KEY = "resurrected-key"
    TOMBSTONE_LOST = "tombstone-lost"
    NONLINEARIZABLE = "nonlinearizable"
    REPEATED_ID = "repeated-id"
    CONFIG_WENT_BACK = "config-went-back"
    LOST_CHANGE = "lost-change"
    PHANTOM_CHANGE = "phantom-change"
    TORN_TRANSACTION = "torn-transaction"
    INTERMEDIATE_READ = "intermediate-read"
    PRECOMMITTED_READ = "precommitted-read"
    WRITE_CYCLE = "write-cycle"
    CIRCULAR_READ = "circular-read"
    ZOMBIE_COMMIT = "zombie-commit"
    PROCESSED_TWICE = "processed-twice"
    INPUT_WITHOUT_OUTPUT = "input-without-output"
    OUTPUT_WITHOUT_INPUT = "output-without-input"
    HANGING_TRANSACTION = "hanging-transaction"
    PRODUCER_FATAL = "producer-fatal"
    NODE_EXITED = "node-exited"
    NO_PROGRESS = "no-progress"


MEANING: dict[Anomaly, str] = {
    Anomaly.LOST_WRITE: "acknowledged, but not in the log, although later records are",
    Anomaly.UNSEEN: "acknowledged, but beyond the end of the last read",
    Anomaly.DUPLICATE: "one value read at two or more offsets",
    Anomaly.INCONSISTENT_OFFSETS: "two values at one offset",
    Anomaly.MOVED_OFFSET: "acknowledged at one offset, read at another",
    Anomaly.ABORTED_READ: "read, although its send certainly failed",
    Anomaly.PHANTOM_READ: "read, although it was never sent",
    Anomaly.VANISHED_READ: "read once, and missing from the log later",
    Anomaly.NONMONOTONIC_SEND: "a producer's later send is before its earlier one in the log",
    Anomaly.INT_NONMONOTONIC_SEND: "a transaction's later send is before its earlier one in a log",
    Anomaly.INT_POLL_SKIP: "one poll left out a record",
    Anomaly.INT_NONMONOTONIC_POLL: "one poll went backwards",
    Anomaly.POLL_SKIP: "a record was left out between two polls",
    Anomaly.NONMONOTONIC_POLL: "the consumer went backwards between two polls",
    Anomaly.POSITION_LOST: "a position below the high watermark was refused",
    Anomaly.READ_TOO_FAR: "a record at or above the high watermark of the same answer",
    Anomaly.DELETED_READ: "in the last read, although its deletion was answered",
    Anomaly.WRONG_OFFSET_FOR_TIME: "an offset found by time is not that of the first record at or after it",
    Anomaly.OWNED_TWICE: "two members of a group believed at once that they owned a partition",
    Anomaly.FOREIGN_ASSIGNMENT: "a member was assigned a partition of a topic that it had not subscribed to",
    Anomaly.NOT_CONVERGED: "after the last change, a partition without its one owner within the bound",
    Anomaly.EPOCH_WENT_BACK: "a member was sent a lower epoch than before",
    Anomaly.SKIPPED_BY_GROUP: "below the committed offset, and read by no member of the group",
    Anomaly.STATIC_MEMBER_REASSIGNED: "a static member that came back in time has not what it had, alone",
    Anomaly.STALE_MAP_READ: "a read of a compacted log to its end found an older value of a key",
    Anomaly.RESURRECTED_KEY: "a read of a compacted log to its end found a value of a deleted key",
    Anomaly.TOMBSTONE_LOST: "a compacted log has lost the deletion of a key before its time",
    Anomaly.NONLINEARIZABLE: "no order of the operations on a register explains their answers",
    Anomaly.REPEATED_ID: "one id was given out twice",
    Anomaly.CONFIG_WENT_BACK: "a broker showed an older configuration than before",
    Anomaly.LOST_CHANGE: "a change or commit was acknowledged, and an older value found afterwards",
    Anomaly.PHANTOM_CHANGE: "a value was found that was never set, or whose change certainly failed",
    Anomaly.DIVERGENT_REPLICA: "a replica's log differs below the high watermark",
    Anomaly.TORN_TRANSACTION: "some records of a transaction are read, and not all (G1b)",
    Anomaly.INTERMEDIATE_READ: "read before the commit of its transaction was asked for (G1b)",
    Anomaly.PRECOMMITTED_READ: "a transaction read what it had written itself, before its commit",
    Anomaly.WRITE_CYCLE: "a transaction that began after another was committed wrote before it (G0)",
    Anomaly.CIRCULAR_READ: "transactions have read each other's records in a circle (G1c)",
    Anomaly.ZOMBIE_COMMIT: "a producer committed after another had taken its transactional id",
    Anomaly.PROCESSED_TWICE: "two outputs of one input",
    Anomaly.INPUT_WITHOUT_OUTPUT: "an input below the committed offset has no output",
    Anomaly.OUTPUT_WITHOUT_INPUT: "an output whose input is missing or not below the committed offset",
    Anomaly.HANGING_TRANSACTION: "all clients are gone, and a transaction does not end",
    Anomaly.PRODUCER_FATAL: "an idempotent producer got an error for an impossible sequence",
    Anomaly.NODE_EXITED: "a node ended by itself, or did not stop",
    Anomaly.NO_PROGRESS: "all faults are healed, but the cluster does not work again within the bound",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """``count`` occurrences of one kind on one key; ``examples`` describes the first of them."""

    kind: Anomaly
    key: str
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        shown = "; ".join(self.examples)
        return f"{self.kind}: {self.count} on {self.key or 'the cluster'}: {shown}"


class Findings:
    """Collects occurrences; keeps their number and the first descriptions for each kind and key."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Anomaly, str], int] = {}
        self._examples: dict[tuple[Anomaly, str], list[str]] = {}

    def add(self, kind: Anomaly, key: str, example: str) -> None:
        place = (kind, key)
        self._counts[place] = self._counts.get(place, 0) + 1
        examples = self._examples.setdefault(place, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(example)

    def add_all(self, findings: Iterable[Finding]) -> None:
        """Add findings from another part of the history."""
        for finding in findings:
            place = (finding.kind, finding.key)
            self._counts[place] = self._counts.get(place, 0) + finding.count
            examples = self._examples.setdefault(place, [])
            examples += finding.examples[: MAX_EXAMPLES - len(examples)]

    def result(self) -> tuple[Finding, ...]:
        """All findings, ordered by kind and key."""
        order = list(Anomaly)
        places = sorted(self._counts, key=lambda place: (order.index(place[0]), place[1]))
        return tuple(
            Finding(kind, key, self._counts[(kind, key)], tuple(self._examples[(kind, key)]))
            for kind, key in places
        )
