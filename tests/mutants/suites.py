"""The suites of planted bugs: what is run on a copy of the package, and how it tells that it found something.

This file is long because it is one table.
"""

from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTEST = (
    *("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"),
    *("-o", "cpu_limit_s=60", "-o", "wall_limit_s=300"),
)
"""A planted bug may make a test run forever: the test then fails by its limit."""
NAMED_TEST_LIMIT = ("-o", "wall_limit_s=30")
"""What waits for something for good is found by this."""
FAULT_RUN = ("-m", "pykraft.node", "jepsen", "run")
FAULT_RUN_MARKER = r"^  [a-z-]+: \d+ on "
FAULT_RUN_CLEAN = (0, 3)
"""One that finds nothing need not count."""
SIMULATIONS = frozenset(
    {
        "broker/replicas/leading/test_client_batch_model.py",
        "broker/serving/test_connection_simulation.py",
        "broker/replicas/leading/test_isr_simulation.py",
        "broker/replicas/partition/test_partition_simulation.py",
        "broker/logs/producers/test_producer_model.py",
        "broker/replicas/partition/test_restart_simulation.py",
        "broker/replicas/test_turns_simulation.py",
        "group_coordinator/classic/test_classic_simulation.py",
        "group_coordinator/consumer/test_consumer_simulation.py",
        "group_coordinator/migration/test_migration_simulation.py",
        "group_coordinator/test_service_simulation.py",
        "group_coordinator/state/test_timer_model.py",
        "group_coordinator/offsets/test_transactional_offsets_model.py",
        "kafka_client/group/test_group_belief.py",
        "kafka_client/group/test_member_awaits.py",
        "kafka_client/producer/test_producer_awaits.py",
        "kafka_client/producer/test_transaction_awaits.py",
        "kafka_client/producer/test_transactions_at_random.py",
        "log_store/test_damage_model.py",
        "log_store/log/test_log_model.py",
        "metadata_log/controller/test_leadership_simulation.py",
        "runtime/test_disk_model.py",
        "runtime/test_file_budget_model.py",
        "runtime/test_output_model.py",
        "runtime/test_turns_model.py",
        "simulation/test_cluster_data.py",
        "transaction_coordinator/test_transaction_model.py",
    }
)
"""Tests that run seeded histories of faults against a model or invariants."""
RING_2 = (
    "-m",
    "pykraft.jepsen_like.simulation",
    "--ring",
    "cluster",
    "--processes",
    "1",
    "--minimise-s",
    "0",
)
RING_2_MARKER = "reproduce: "
RING_1 = (
    *("-m", "pykraft.jepsen_like.simulation", "--ring", "quorum", "--duration-ms", "10000"),
    *("--processes", "1", "--minimise-s", "0"),
)


@dataclass(frozen=True)
class Suite:
    """``command`` must exit 1 and print a line that matches ``marker`` when it finds a bug.

    ``seeds``: how many to try on a planted bug, and on a copy without one. ``directed``: the option that
    leaves out the schedules written by hand, if there are any. ``tests``: the files and folders that it runs,
    if it runs tests. ``clean``: the exit codes when it finds nothing. ``on_processes``: real processes look
    for its bugs, and it runs only when it is named.
    """

    command: tuple[str, ...]
    marker: str
    seeds: tuple[str, str] = ("200", "20")
    directed: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    clean: tuple[int, ...] = (0,)
    on_processes: bool = False

    @property
    def simulations(self) -> tuple[str, ...]:
        """Of its tests."""
        return tuple(
            sorted(test for test in SIMULATIONS if any(test.startswith(path) for path in self.tests))
        )


def by_tests(*paths: str, tried: str, without_a_bug: str) -> Suite:
    """A suite of unit tests: files and folders below ``tests``, and two ``-k`` expressions for them."""
    tests = (str(ROOT / "tests" / path) for path in paths)
    return Suite((*PYTEST, *tests, "-k"), "FAILED ", seeds=(tried, without_a_bug), tests=paths)


SUITES = {
    "metadata": Suite(
        (*RING_2, "--seeds"),
        RING_2_MARKER,
        seeds=("30", "3"),
    ),
    "transactions": Suite(
        (*RING_2, "--workload", "transactions", "--seeds"),
        RING_2_MARKER,
        seeds=("12", "1"),
    ),
    "quorum": Suite(
        (*RING_1, "--seeds"),
        "reproduce: ",
        seeds=("60", "5"),
        directed=("--no-directed",),
    ),
    "quorum_nodes": Suite(
        (
            *("-m", "pykraft.jepsen_like.simulation", "--ring", "quorum_nodes", "--duration-ms", "5000"),
            *("--processes", "1", "--minimise-s", "0", "--seeds"),
        ),
        "reproduce: ",
        seeds=("12", "2"),
    ),
    # Losses that a start must recognise.
    "quorum_units": by_tests(
        "quorum/test_crash_points.py",
        "quorum/core/test_fetch_protocol.py",
        "quorum/core/test_kraft_upgrade.py",
        "quorum/test_lost_records.py",
        "quorum/core/test_reconfig.py",
        "quorum/core/test_reconfig_followers.py",
        "quorum/test_recovering_nodes.py",
        "quorum/core/test_recovery.py",
        "quorum/core/test_vote.py",
        "quorum/test_voters_of_nodes.py",
        tried="test",
        without_a_bug="voter",
    ),
    # Bugs that whole nodes show too rarely, and unit tests at once.
    "metadata_units": by_tests(
        "broker/membership/test_lifecycle.py",
        "metadata_log",
        "quorum/core/test_reconfig.py",
        tried="not properties",
        without_a_bug="producer",
    ),
    # Group coordinators, partitions and logs are not in the rings: their own simulations, models and tests
    # look for the bugs below.
    "groups": by_tests(
        "group_coordinator",
        "regex",
        "runtime/test_turns.py",
        "runtime/test_turns_model.py",
        "broker/serving/test_turn_budget.py",
        "broker/replicas/test_turns_simulation.py",
        "broker/apis/test_txn_offset_commit.py",
        tried="not codec",
        without_a_bug="codec",
    ),
    # The core of transactions with its model, and what coordinators and leaders send each other.
    "transaction_coordinator": by_tests(
        "broker/apis/test_find_coordinator.py",
        "transaction_coordinator",
        "broker/peers/test_marker_sender.py",
        "broker/peers/test_peers.py",
        "broker/apis/test_transactional_requests.py",
        "broker/peers/test_verifier.py",
        tried="test",
        without_a_bug="transition",
    ),
    # One replica, its ISR and what its leader asks the controller for.
    "replication": by_tests(
        "broker/membership/test_controlled_shutdown.py",
        "broker/membership/test_controller_channel.py",
        "broker/replicas/leading/test_isr_proposals.py",
        "broker/replicas/leading/test_isr_simulation.py",
        "broker/membership/test_lifecycle_driver.py",
        "broker/replicas/placement/test_many_changes.py",
        "broker/replicas/placement/test_openings.py",
        "broker/replicas/partition/test_partition.py",
        "broker/replicas/partition/test_partition_follower.py",
        "broker/replicas/partition/test_partition_isr.py",
        "broker/replicas/partition/test_partition_simulation.py",
        "broker/logs/producers/test_producer_model.py",
        "broker/replicas/following/test_replica_fetcher.py",
        "broker/replicas/partition/test_purgatory.py",
        "broker/replicas/test_replica_single.py",
        "broker/replicas/partition/test_restart_simulation.py",
        "broker/replicas/leading/test_strict_min_isr.py",
        "broker/replicas/test_turns_simulation.py",
        "broker/apis/test_waiting_requests.py",
        tried="test",
        without_a_bug="isr",
    ),
    # Batches of clients, and how long their validation may take.
    "records": by_tests(
        "broker/replicas/leading/test_client_batch_model.py",
        "broker/replicas/leading/test_client_batches.py",
        "broker/serving/test_connection_simulation.py",
        "broker/apis/test_produce_in_slices.py",
        "broker/serving/test_tcp_listener.py",
        "broker/replicas/test_turns_simulation.py",
        "broker/replicas/leading/test_validation_turns.py",
        "kafka_protocol/test_record_walk.py",
        tried="not damaged_body",
        without_a_bug="batch",
    ),
    # The budget of open files.
    "files": by_tests(
        "runtime/test_file_budget.py",
        "runtime/test_file_budget_model.py",
        "log_store/log/test_open_files.py",
        "broker/serving/test_connection_limits.py",
        "broker/serving/test_connection_simulation.py",
        "broker/serving/test_tcp_listener.py",
        tried="not large_frames",
        without_a_bug="files",
    ),
    # The adapters: sockets, gRPC, real files, and the turns of the event loop that they share.
    "adapters": by_tests(
        "runtime",
        "broker/serving/test_connection_limits.py",
        "broker/serving/test_connection_simulation.py",
        "broker/serving/test_failing_connections.py",
        "broker/serving/test_tcp_listener.py",
        "broker/serving/test_turn_budget.py",
        tried="not large_frames",
        without_a_bug="grpc",
    ),
    # Damage: what a start, a reader, a follower and the scrub must find, and its consequences.
    "logs": by_tests(
        "log_store",
        "metadata_log/controller/test_lost_logs.py",
        "broker/serving/test_connection_simulation.py",
        "broker/logs/test_damage_detection.py",
        "broker/replicas/test_damaged_replicas.py",
        "broker/replicas/partition/test_partition.py",
        "broker/replicas/partition/test_partition_follower.py",
        "broker/logs/producers/test_producer_snapshots.py",
        "broker/logs/test_replica_logs.py",
        tried="not stored_bytes",
        without_a_bug="gap",
    ),
    # The own client: records written once, and the ownership that members believe in. Its members test
    # coordinators behind a network that loses and delays, so bugs of coordinators are here, too.
    "clients": by_tests(
        "kafka_client",
        "node/cli/test_cli_groups.py",
        "node/cli/test_cli_transactions.py",
        "node/cli/test_perf_stats.py",
        tried="test",
        without_a_bug="static",
    ),
    # What a node serves over HTTP: who may ask, how much at once, what is shown and counted.
    # What is compiled, and what runs.
    "build": by_tests("packaging", tried="test", without_a_bug="form"),
    "http": by_tests(
        "node/web/test_host_names.py",
        "node/web/test_listening.py",
        "node/web/test_guard.py",
        "node/web/test_console_parts.py",
        "node/web/test_console_limits.py",
        "node/web/test_console_of_node.py",
        "node/web/test_console.py",
        "node/metrics/test_metrics.py",
        tried="test",
        without_a_bug="name",
    ),
    # The driver's and the tasks' parts of the Spark data source: they need no Spark.
    "spark": by_tests(
        "spark/jobs/test_audit_segments.py",
        "spark/test_decode.py",
        "spark/writing/test_encoded_rows.py",
        "spark/writing/test_exactly_once.py",
        "spark/test_offsets.py",
        "spark/test_options.py",
        "spark/test_reader.py",
        "spark/test_readers_of_spark.py",
        "spark/test_replanned_batches.py",
        "spark/test_stream_planner.py",
        "spark/writing/test_written_rows.py",
        tried="test and not command_says",
        without_a_bug="planned",
    ),
    # What only real processes show: the kernel's files, sockets, locks and signals, and what several
    # processes must not have in common.
    "processes": replace(
        by_tests(
            "interop/test_restarts.py",
            "node/processes/test_many_connections.py",
            "node/processes/test_process_faults.py",
            "node/processes/test_process_files.py",
            "node/processes/test_process_signals.py",
            "node/processes/test_several_processes.py",
            tried="test",
            without_a_bug="test",
        ),
        marker="^(FAILED|ERROR) ",  # an error: the node of a fixture did not start
        on_processes=True,
    ),
}
