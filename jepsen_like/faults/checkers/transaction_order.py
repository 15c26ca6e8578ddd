"""Checks the order of transactions: in each log, and as a graph of who depends on whom.

The graph has an edge to a transaction from the one whose record is before its own in a log (ww), from the one
whose record it has read (wr), and from the one that had read a log up to just before its record (rw, an
antidependency). Cycles of wr edges alone are never allowed. Others are counted, and allowed: Kafka does not
isolate the writes of concurrent transactions, and shows consumers of several logs no transaction as a whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pykraft.jepsen_like.faults.checkers.cycles import find_cycles
from pykraft.jepsen_like.faults.checkers.findings import Anomaly, Findings
from pykraft.jepsen_like.faults.checkers.log_index import LogIndex
from pykraft.jepsen_like.faults.checkers.transaction_index import (
    Transaction,
    TransactionIndex,
    number_of,
    parse_value,
)

Logs = Mapping[str, Sequence[tuple[int, str, Transaction]]]
"""The last reads of logs: offset, value and transaction."""
Inputs = dict[tuple[str, str], list[int]]
"""The offsets that a transaction has read, by transaction and log."""
Graph = dict[str, dict[str, None]]


@dataclass(frozen=True, slots=True)
class Allowed:
    """How often there was what Kafka allows.

    ``write_cycles``: groups of transactions that wrote in different orders. ``antidependency_cycles``: groups
    in a circle through an rw edge (G-single, G2). ``send_skips``: two records of a transaction in one log
    with one of another between them (``int-send-skip``).
    """

    write_cycles: int = 0
    antidependency_cycles: int = 0
    send_skips: int = 0


def check_order(index: LogIndex, of: TransactionIndex, logs: Logs, findings: Findings) -> Allowed:
    """Several passes over the last reads, and one over all reads."""
    send_skips = 0
    for name, records in logs.items():
        _check_times(name, records, findings)
        send_skips += _check_sends(name, records, findings)
    writes = _write_graph(of, logs)
    inputs = _inputs(index, of)
    reads = _read_graph(index, of, inputs)
    for cycle in find_cycles(reads):
        findings.add(Anomaly.CIRCULAR_READ, "", " and ".join(sorted(cycle)[:5]))
    antidependencies = _antidependency_graph(of, logs, inputs)
    return Allowed(
        len(find_cycles(writes)), _count_cycles_through(antidependencies, (writes, reads)), send_skips
    )


def _check_times(name: str, records: Sequence[tuple[int, str, Transaction]], findings: Findings) -> None:
    """A log keeps the order of transactions of which one was over when the other began."""
    newest: Transaction | None = None
    for offset, value, transaction in records:
        ended_us = transaction.ended_us
        if newest is not None and ended_us is not None and newest.began_us > ended_us:
            example = (
                f"{value} at {offset} is behind a record of {newest.name}, which began "
                f"{newest.began_us - ended_us} us after the commit was answered"
            )
            findings.add(Anomaly.WRITE_CYCLE, name, example)
        if newest is None or transaction.began_us > newest.began_us:
            newest = transaction


def _check_sends(name: str, records: Sequence[tuple[int, str, Transaction]], findings: Findings) -> int:
    """A log keeps the order in which a transaction has sent to it; returns how often another is between."""
    skips = 0
    last: dict[str, tuple[int, str]] = {}
    for place, (offset, value, transaction) in enumerate(records):
        if transaction.name in last:
            place_before, before = last[transaction.name]
            skips += place - place_before > 1
            if number_of(value) < number_of(before):
                example = f"{value} at {offset} is behind {before}, which was sent after it"
                findings.add(Anomaly.INT_NONMONOTONIC_SEND, name, example)
        last[transaction.name] = place, value
    return skips


def _empty(of: TransactionIndex) -> Graph:
    return {name: {} for name in of.transactions}


def _write_graph(of: TransactionIndex, logs: Logs) -> Graph:
    graph = _empty(of)
    for records in logs.values():
        for (_, _, before), (_, _, after) in pairwise(records):
            if before is not after:
                graph[before.name][after.name] = None
    return graph


def _inputs(index: LogIndex, of: TransactionIndex) -> Inputs:
    """An output has read its input."""
    inputs: Inputs = {}
    for key in index.keys.values():
        for value in key.sends:
            said = parse_value(value)
            if said is not None and said.input is not None and said.transaction in of.transactions:
                source, offset = said.input
                inputs.setdefault((said.transaction, source), []).append(offset)
    return inputs


def _read_graph(index: LogIndex, of: TransactionIndex, inputs: Inputs) -> Graph:
    graph = _empty(of)
    read: dict[tuple[str, int], str] = {}
    for name, key in index.keys.items():
        for one in key.reads:
            read.update({(name, offset): value for offset, value in one.records})
    for (reader, source), offsets in inputs.items():
        for offset in offsets:
            writer = parse_value(read.get((source, offset), ""))
            if writer is not None and writer.transaction in of.transactions:
                graph[writer.transaction][reader] = None
    return graph


def _antidependency_graph(of: TransactionIndex, logs: Logs, inputs: Inputs) -> Graph:
    """From each transaction to the one with the first record behind the last that it has read of a log."""
    graph = _empty(of)
    following = {
        (name, before[0]): after[2].name
        for name, records in logs.items()
        for before, after in pairwise(records)
    }
    for (reader, source), offsets in inputs.items():
        writer = following.get((source, max(offsets)))
        if writer is not None and writer != reader:
            graph[reader][writer] = None
    return graph


def _count_cycles_through(edges: Graph, others: Sequence[Graph]) -> int:
    """How many groups of nodes that can all be reached from each other are connected by one of ``edges``."""
    together = {name: {other: None for graph in (edges, *others) for other in graph[name]} for name in edges}
    group_of = {name: number for number, group in enumerate(find_cycles(together)) for name in group}
    return len(
        {
            group_of[before]
            for before, after_it in edges.items()
            for after in after_it
            if before in group_of and group_of[before] == group_of.get(after)
        }
    )
