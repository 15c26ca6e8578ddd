"""The workloads by name, each as it runs on real processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pykraft.jepsen_like.history import Recorder
from pykraft.jepsen_like.workloads.append import AppendConfig, AppendWorkload
from pykraft.jepsen_like.workloads.changes import ChangesConfig, ChangesWorkload
from pykraft.jepsen_like.workloads.client import Clients
from pykraft.jepsen_like.workloads.group_seat import GroupsConfig
from pykraft.jepsen_like.workloads.groups import GroupsWorkload
from pykraft.jepsen_like.workloads.moves import MovesConfig, MovesWorkload
from pykraft.jepsen_like.workloads.transaction_config import TransactionsConfig
from pykraft.jepsen_like.workloads.transactions import TransactionsWorkload
from pykraft.jepsen_like.workloads.workload import Workload

REAL_TRANSACTIONS = TransactionsConfig(appenders=12, rest_s=0.01, late_share=0.0, plain_share=0.0)
"""No network holds anything back here, and clients are real ones."""

WORKLOADS: Mapping[str, Callable[[Clients, int, Recorder], Workload]] = {
    "append": lambda clients, seed, history: AppendWorkload(clients, AppendConfig(), seed, history),
    "groups": lambda clients, seed, history: GroupsWorkload(clients, GroupsConfig(), seed, history),
    "changes": lambda clients, seed, history: ChangesWorkload(clients, ChangesConfig(), seed, history),
    "transactions": lambda clients, seed, history: TransactionsWorkload(
        clients, REAL_TRANSACTIONS, seed, history
    ),
    "moves": lambda clients, seed, history: MovesWorkload(clients, MovesConfig(), seed, history),
}
