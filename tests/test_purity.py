"""Pure by default: only the adapters named here may use clocks, sockets, threads, files or randomness.

A file that is not listed runs unmodified in simulation. Adding a file to the list is a design decision.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PURE_PACKAGES = (
    "broker",
    "configuration",
    "coordinator",
    "group_coordinator",
    "kafka_protocol",
    "log_store",
    "metadata_log",
    "node",
    "quorum",
    "regex",
    "runtime",
    "transaction_coordinator",
)
EXEMPT = ("node/cli/", "runtime/simulated/")
"""The command line; and the ports' simulated twins, which are there so that all else can be pure."""
IMPURE_MODULES = frozenset(
    "asyncio concurrent grpc multiprocessing os random secrets select selectors signal socket ssl subprocess"
    " threading time uuid uvloop".split()
)
EVENT_LOOP = frozenset({"asyncio"})
ADAPTERS = {
    # The operating system.
    "runtime/clock.py": {"time"},
    "runtime/directory_lock.py": {"os"},
    "runtime/file_budget.py": {"threading"},
    "runtime/free_ports.py": {"os", "random", "socket"},
    "runtime/grpc_rpc.py": {"asyncio", "grpc"},
    "runtime/late_grpc.py": {"asyncio", "os", "socket"},
    "runtime/own_calls.py": EVENT_LOOP,
    "runtime/slices.py": EVENT_LOOP,
    "runtime/os_disk.py": {"os", "threading"},
    "runtime/paced.py": EVENT_LOOP,
    "runtime/tasks.py": EVENT_LOOP,
    "runtime/network/sinks.py": {"asyncio", "os", "socket"},
    "runtime/network/tcp.py": {"asyncio", "socket"},
    "runtime/network/tcp_server.py": {"socket"},
    # The environment of a process, and processes that start others.
    "node/run.py": {"asyncio", "concurrent", "os", "random", "socket", "uvloop"},
    "node/os_errors.py": {"os"},
    "node/metrics/exposition.py": EVENT_LOOP,
    "node/web/listening.py": {"asyncio", "socket"},
    "node/web/console/app.py": EVENT_LOOP,
    "node/web/console/asked_brokers.py": EVENT_LOOP,
    "node/web/console/cluster_calls.py": EVENT_LOOP,
    "node/web/console/record_reader.py": EVENT_LOOP,
    "node/web/routes.py": {"asyncio", "socket"},
    "node/web/server.py": {"asyncio", "socket"},
    "node/stop_signals.py": {"asyncio", "signal"},
    "node/supervisor.py": {"asyncio", "os", "signal", "socket"},
    "node/__main__.py": {"os"},
    # Drivers: they own a pure core and step it from the event loop.
    "broker/membership/controller_channel.py": EVENT_LOOP,
    "broker/membership/lifecycle_driver.py": EVENT_LOOP,
    "broker/logs/checkpoint_files.py": EVENT_LOOP,
    "broker/logs/damaged_logs.py": EVENT_LOOP,
    "broker/logs/index_rebuilds.py": EVENT_LOOP,
    "broker/logs/log_manager.py": EVENT_LOOP,
    "broker/logs/log_opening.py": EVENT_LOOP,
    "broker/logs/log_table.py": EVENT_LOOP,
    "broker/logs/producers/jobs.py": EVENT_LOOP,
    "broker/logs/time_lookups.py": EVENT_LOOP,
    "broker/metadata/cache.py": EVENT_LOOP,
    "broker/apis/records/delete_records.py": EVENT_LOOP,
    "broker/apis/coordination/write_txn_markers.py": EVENT_LOOP,
    "broker/serving/large_requests.py": EVENT_LOOP,
    "broker/peers/peer_network.py": EVENT_LOOP,
    "broker/peers/peers.py": EVENT_LOOP,
    "broker/peers/marker_sender.py": EVENT_LOOP,
    "broker/peers/verifier.py": EVENT_LOOP,
    "broker/replicas/placement/log_moves.py": EVENT_LOOP,
    "broker/replicas/leading/partition_markers.py": EVENT_LOOP,
    "broker/replicas/following/leader_connection.py": EVENT_LOOP,
    "broker/replicas/following/leader_link.py": EVENT_LOOP,
    "broker/replicas/placement/log_reconciler.py": EVENT_LOOP,
    "broker/replicas/placement/worklist.py": EVENT_LOOP,
    "broker/replicas/leading/validation_turns.py": EVENT_LOOP,
    "coordinator/answers.py": EVENT_LOOP,
    "coordinator/hosted.py": EVENT_LOOP,
    "coordinator/runtime.py": EVENT_LOOP,
    "transaction_coordinator/runtime.py": EVENT_LOOP,
    "transaction_coordinator/service.py": EVENT_LOOP,
    "group_coordinator/consumer/regex_worker.py": EVENT_LOOP,
    "group_coordinator/runtime.py": EVENT_LOOP,
    "group_coordinator/service.py": EVENT_LOOP,
    "group_coordinator/service_base.py": EVENT_LOOP,
    "metadata_log/controller/driver.py": EVENT_LOOP,
    "metadata_log/snapshot_generator.py": EVENT_LOOP,
    "quorum/calls.py": EVENT_LOOP,
    "quorum/driver.py": EVENT_LOOP,
}
MAKE_TASKS = frozenset({"TaskGroup", "create_task", "ensure_future"})
TASK_MAKERS = {
    "runtime/tasks.py": "the supervisor of a node's tasks",
    "node/run.py": "runs nodes; a start that fails ends the process",
}
"""Where tasks are made, and why there. ``kafka_client`` runs on its user's event loop, and reports to it."""


def _source_files() -> list[str]:
    files = []
    for package in PURE_PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.endswith("_pb2.py") and not name.startswith(EXEMPT):
                files.append(name)
    return files


def _imports(tree: ast.Module) -> set[str]:
    """Top-level modules imported at run time; imports for the type checker only do not count."""
    found: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
        pending.extend(ast.iter_child_nodes(node))
    return found


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for name in _source_files():
        yield name, ast.parse((ROOT / name).read_text(encoding="utf-8"))


def test_a_file_imports_only_the_effects_it_is_allowed() -> None:
    for name, tree in _sources():
        assert _imports(tree) & IMPURE_MODULES <= ADAPTERS.get(name, frozenset()), name


def test_a_task_is_made_by_the_supervisor_of_its_node() -> None:
    for name, tree in _sources():
        called = {it.attr for it in ast.walk(tree) if isinstance(it, ast.Attribute) and it.attr in MAKE_TASKS}
        assert bool(called) == (name in TASK_MAKERS), f"{name} calls {sorted(called)}"


def test_every_listed_adapter_exists_and_needs_to_be_listed() -> None:
    for name, modules in ADAPTERS.items():
        tree = ast.parse((ROOT / name).read_text(encoding="utf-8"))
        assert modules & _imports(tree), f"{name} no longer needs to be on the list"
