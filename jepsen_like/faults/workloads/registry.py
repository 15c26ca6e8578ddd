"""The workloads by name, each as it runs on real processes."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pykraft.jepsen_like.faults.clients.own_clients import OwnClients
from pykraft.jepsen_like.faults.history import Recorder
from pykraft.jepsen_like.faults.workloads.append import AppendConfig, AppendWorkload
from pykraft.jepsen_like.faults.workloads.changes import ChangesConfig, ChangesWorkload
from pykraft.jepsen_like.faults.workloads.compacted import CompactedConfig, CompactedWorkload
from pykraft.jepsen_like.faults.workloads.group_seat import STATIC_GROUPS, GroupsConfig
from pykraft.jepsen_like.faults.workloads.groups import GroupsWorkload
from pykraft.jepsen_like.faults.workloads.moves import MovesConfig, MovesWorkload
from pykraft.jepsen_like.faults.workloads.registers import RegistersConfig, RegistersWorkload
from pykraft.jepsen_like.faults.workloads.transaction_config import TransactionsConfig
from pykraft.jepsen_like.faults.workloads.transactions import TransactionsWorkload
from pykraft.jepsen_like.faults.workloads.workload import Workload

FLUSHED = AppendConfig(topic="flushed", flush_messages=1)
"""Every acknowledged record survives any power loss: see ``checkers/tail_losses``."""
REAL_TRANSACTIONS = TransactionsConfig(
    appenders=12, rest_s=0.01, late_share=0.0, plain_share=0.0, peek_share=0.1
)
"""No network holds anything back here, and clients are real ones."""
FLUSHED_TRANSACTIONS = replace(REAL_TRANSACTIONS, flush_messages=1)
REAL_CHANGES = ChangesConfig(every_broker=True)
REAL_GROUPS = GroupsConfig(static_groups=STATIC_GROUPS, cooperative_adds=True)

WORKLOADS: Mapping[str, Callable[[OwnClients, int, Recorder], Workload]] = {
    "append": lambda clients, seed, history: AppendWorkload(clients, AppendConfig(), seed, history),
    "append-flushed": lambda clients, seed, history: AppendWorkload(clients, FLUSHED, seed, history),
    "groups": lambda clients, seed, history: GroupsWorkload(clients, REAL_GROUPS, seed, history),
    "changes": lambda clients, seed, history: ChangesWorkload(clients, REAL_CHANGES, seed, history),
    "transactions": lambda clients, seed, history: TransactionsWorkload(
        clients, REAL_TRANSACTIONS, seed, history
    ),
    "transactions-flushed": lambda clients, seed, history: TransactionsWorkload(
        clients, FLUSHED_TRANSACTIONS, seed, history
    ),
    "moves": lambda clients, seed, history: MovesWorkload(clients, MovesConfig(), seed, history),
    "registers": lambda clients, seed, history: RegistersWorkload(clients, RegistersConfig(), seed, history),
    "compacted": lambda clients, seed, history: CompactedWorkload(clients, CompactedConfig(), seed, history),
}

PROPERTIES: Mapping[str, Mapping[str, str]] = {
    # What coordinators store must survive as the records do.
    "transactions-flushed": {"log.flush.interval.messages": "1"},
}
"""Properties of the nodes that a workload runs on, beside those of every run."""
LEAVE_OUT: Mapping[str, frozenset[str]] = {
    "append-flushed": frozenset({"damage"}),
    "transactions": frozenset({"damage", "power", "read-only-remount"}),
    "transactions-flushed": frozenset({"damage"}),
}
"""Families and faults after which too little is promised: what is flushed survives everything but damage, and
nobody ends a transaction that its coordinator has lost."""
