"""Checks transactions: all or nothing, in order, and each input processed once.

Aborted reads (G1a), lost, repeated and moved records are found by the checkers of single partitions, since
the outcome of a write is that of its transaction. The anomalies here need several partitions:

- *torn transaction* (G1b): the last read has some of its records, and not all;
- *intermediate read* (G1b): a reader was given a record before the commit was asked for;
- *precommitted read*: the same, and the reader is the transaction itself;
- *write cycle* (G0): a transaction that began when another was over has a record before one of it;
- *int-nonmonotonic send*: a record of a transaction is before one that it sent earlier to the same log;
- *circular read* (G1c): each of several transactions has read a record of the one before;
- *zombie commit*: a producer commits what it began, although another has taken its transactional id (by its
  answer, or because its records are read);
- *processed twice*, *input without output*, *output without input* (external consistency of offsets): in
  the last read, each record of an input below the committed offset has one output, and no other has one.
"""

from collections import Counter
from collections.abc import Iterator

from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.log_index import LogIndex
from pykraft.jepsen_like.faults.checkers.transaction_index import (
    Transaction,
    TransactionIndex,
    index_transactions,
    parse_value,
)
from pykraft.jepsen_like.faults.checkers.transaction_order import Allowed, Logs, check_order


def check_transactions(index: LogIndex, findings: Findings) -> Allowed:
    """Returns how often there was what looks like an anomaly, and is allowed."""
    of = index_transactions(index.others)
    if not of.transactions or not of.is_guaranteed:
        return Allowed()
    logs = dict(_last_reads(index, of))
    _check_whole(index, of, logs, findings)
    _check_intermediate(index, of, findings)
    _check_zombies(of, logs, findings)
    _check_processing(index, of, logs, findings)
    return check_order(index, of, logs, findings)


def _last_reads(
    index: LogIndex, of: TransactionIndex
) -> Iterator[tuple[str, list[tuple[int, str, Transaction]]]]:
    """The last reads of all partitions that were read to the end: offset, value and transaction."""
    for name, key in sorted(index.keys.items()):
        if key.final_end is None or name in of.exempted:
            continue
        found = []
        for offset, value in sorted(key.final.items()):
            said = parse_value(value)
            if said is not None and said.transaction in of.transactions:
                found.append((offset, value, of.transactions[said.transaction]))
        yield name, found


def _check_whole(index: LogIndex, of: TransactionIndex, logs: Logs, findings: Findings) -> None:
    written: Counter[str] = Counter()
    for name, key in index.keys.items():
        for value in key.sends:
            if (said := parse_value(value)) is not None:
                written[said.transaction] += name in logs
    values = {(value, transaction.name) for records in logs.values() for _, value, transaction in records}
    found = Counter(name for _, name in values)
    for name, transaction in of.transactions.items():
        if written[name] == transaction.count and 0 < found[name] < transaction.count:
            example = f"{name} ({transaction.outcome}): {found[name]} of {transaction.count} records are read"
            findings.add(Anomaly.TORN_TRANSACTION, "", example)


def _check_intermediate(index: LogIndex, of: TransactionIndex, findings: Findings) -> None:
    for name, key in sorted(index.keys.items()):
        for read in key.reads:
            for offset, value in read.records:
                said = parse_value(value)
                writer = None if said is None else of.transactions.get(said.transaction)
                if writer is None or (writer.asked_us is not None and writer.asked_us <= read.time_us):
                    continue
                asked = "never" if writer.asked_us is None else f"at {writer.asked_us} us"
                example = (
                    f"{read.process} read {value} (offset {offset}) at {read.time_us} us, "
                    f"its commit was asked for {asked}"
                )
                is_own = read.process == writer.process and read.time_us >= writer.began_us
                findings.add(
                    Anomaly.PRECOMMITTED_READ if is_own else Anomaly.INTERMEDIATE_READ, name, example
                )


def _check_zombies(of: TransactionIndex, logs: Logs, findings: Findings) -> None:
    read = {transaction.name for records in logs.values() for _, _, transaction in records}
    for transaction in of.transactions.values():
        is_committed = transaction.outcome == "ok" or transaction.name in read
        if not is_committed or transaction.asked_us is None:
            continue
        inits = of.inits.get(transaction.transactional_id, ())
        own = max(
            (
                one.ended_us
                for one in inits
                if one.process == transaction.process and one.ended_us is not None
            ),
            default=None,
        )
        for other in inits:
            if own is None or other.ended_us is None or other.process == transaction.process:
                continue
            if own < other.asked_us and other.ended_us < transaction.asked_us:
                example = f"{transaction.name} was committed, {other.process} had the id by then"
                findings.add(Anomaly.ZOMBIE_COMMIT, transaction.transactional_id, example)


def _check_processing(index: LogIndex, of: TransactionIndex, logs: Logs, findings: Findings) -> None:
    outputs: dict[tuple[str, int], list[str]] = {}
    is_whole = not of.exempted and all(
        key.final_end is not None for key in index.keys.values() if not key.map_events
    )
    for name, records in logs.items():
        for offset, value, _ in records:
            said = parse_value(value)
            if said is not None and said.input is not None:
                outputs.setdefault(said.input, []).append(f"{value} at {name}@{offset}")
    for place, committed in sorted(of.committed.items()):
        key = place.partition("/")[2]
        if key not in logs:
            continue
        inputs = index.keys[key].final
        for offset in sorted(inputs):
            found = outputs.get((key, offset), [])
            if len(found) > 1:
                findings.add(Anomaly.PROCESSED_TWICE, key, f"offset {offset}: {', '.join(found)}")
            if not found and offset < committed and is_whole:
                example = f"offset {offset} is below the committed {committed}, and has no output"
                findings.add(Anomaly.INPUT_WITHOUT_OUTPUT, key, example)
        for (source, offset), found in sorted(outputs.items()):
            if source == key and (offset >= committed or offset not in inputs):
                what = f"{found[0]}: its input is not below the committed offset {committed}"
                if offset < committed:
                    what = f"{found[0]}: there is no such input"
                findings.add(Anomaly.OUTPUT_WITHOUT_INPUT, key, what)
