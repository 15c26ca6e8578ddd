"""What ``make test`` leaves to ``make test-long``, and what stays in its place.

Minutes, or the timing of another program decides the outcome: such a test says little about one commit, and
refuses it by chance. Each has something deterministic that stays. A test is named by the beginning of its id
below ``tests``; the end of the ids that stay nevertheless may be given. Seeds are left out by
:func:`tests.seeds.seeds`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Left:
    """A part of the tests: ``stays`` names files or tests below ``tests``."""

    begins: str
    stays: tuple[str, ...]
    but: tuple[str, ...] = ()


LONG = (
    # Comparisons with a running Kafka.
    Left("interop/beside_kafka/test_groups_like_kafka.py", ("group_coordinator/test_vs_recorded_kafka.py",)),
    Left(
        "interop/beside_kafka/test_transactions_like_kafka.py",
        (
            "transaction_coordinator/test_transaction_model.py",
            "interop/beside_kafka/test_transactions_like_kafka.py",
        ),
        but=("[1]", "[2]"),
    ),
    Left(
        "interop/beside_kafka/test_fault_runs_of_kafka.py",
        ("faults/runs/test_process_cluster.py", "interop/beside_kafka/test_fault_runs_of_kafka.py"),
        but=("test_groups_on_the_cluster_of_somebody_else_are_removed",),
    ),
    Left(
        "interop/beside_kafka/test_logs_compacted_by_kafka.py",
        (
            "log_store/compaction/test_compaction.py",
            "interop/beside_kafka/test_kafka_reads_compacted_logs.py",
        ),
    ),
    Left("interop/beside_kafka/test_audit_of_kafkas_logs.py", ("spark/jobs/test_audit_segments.py",)),
    Left(
        "interop/own_client/test_own_transactions.py::test_what_is_committed_is_read_by_every_reader[kafka",
        ("interop/own_client/test_own_transactions.py",),
    ),
    # Clients through faults: two of eight kinds stay, the rest of the scenario is the same.
    Left(
        "interop/libraries/test_group_fleets.py",
        ("interop/libraries/test_group_fleets.py",),
        but=("[confluent-consumer]", "[java-consumer]"),
    ),
    Left(
        "interop/libraries/test_group_upgrades.py",
        ("group_coordinator/migration/test_migration_simulation.py",),
    ),
    Left(
        "interop/libraries/test_exactly_once.py::test_kafka_",
        ("interop/libraries/test_exactly_once.py", "transaction_coordinator/test_transaction_model.py"),
    ),
    Left(
        "interop/test_changing_voters.py::test_fixed_voters_become_voters_in_the_log_under_a_client",
        ("quorum/core/test_kraft_upgrade.py", "quorum/test_voters_of_nodes.py"),
    ),
    # Benchmarks run: a row stays.
    Left(
        "interop/beside_kafka/test_vs_kafka.py",
        ("interop/beside_kafka/test_vs_kafka.py",),
        but=("[start]", "[producers]"),
    ),
    Left(
        "interop/beside_kafka/test_groups_benchmark.py",
        ("interop/beside_kafka/test_groups_benchmark.py",),
        but=("[commits]",),
    ),
    Left("spark/test_benchmark.py::test_rows_run", ("spark/test_benchmark.py",)),
    # What is installed, and pages.
    Left("docs/test_how_to.py", ("docs/test_tutorial.py", "test_docs.py")),
    Left("node/test_container.py::test_services_of_compose", ("node/test_container.py",)),
    Left("spark/test_finding.py::test_source_is_registered_with_spark_connect", ("spark/test_finding.py",)),
    # Fault runs: their rounds, and what needs root.
    Left(
        "spark/test_faults.py::test_round_of_faults_loses_and_repeats_nothing",
        ("spark/test_faults.py", "spark/test_streams.py"),
    ),
    Left(
        "faults/nemeses/test_power_faults.py",
        ("faults/surroundings/test_shim.py", "runtime/test_disk_model.py"),
    ),
    Left("faults/test_root_tier.py", ("faults/runs/test_process_cluster.py",)),
    Left(
        "faults/nemeses/test_version_faults.py::test_node_runs_an_earlier_version",
        ("faults/nemeses/test_version_faults.py", "node/test_formats_of_releases.py"),
    ),
    Left("simulation/test_fuzz.py::test_drawn_requests", ("simulation/test_fuzz.py",), but=("[one]",)),
    Left(
        "simulation/test_cluster.py::test_schedules_of_whole_nodes_break_no_invariant",
        ("simulation/test_cluster.py",),  # and make sim runs the same seeds
        but=("[0]", "[8]"),
    ),
    Left(
        "simulation/quorum/test_schedules.py::test_no_schedule_breaks_an_invariant",
        ("simulation/quorum/test_schedules.py",),  # and make sim runs the same seeds
        but=("[0]",),
    ),
    Left(
        "simulation/quorum/test_whole_nodes.py::test_whole_nodes_keep_every_invariant",
        ("simulation/quorum/test_whole_nodes.py",),
        but=("[0]", "[1]", "[2]"),
    ),
    # Planted bugs: .ci/run tries more of them itself.
    Left(
        "mutants/test_planted_bugs.py::test_a_planted_bug_is_found",
        ("mutants/test_planted_bugs.py",),
        but=("[quorum-", "[groups-"),
    ),
    Left(
        "mutants/test_random_mutants.py::test_mutants_are_drawn_measured_tried_and_reported",
        ("mutants/test_random_mutants.py",),
    ),
)


def is_long(test: str) -> bool:
    """By its id below ``tests``."""
    return any(test.startswith(part.begins) and not any(one in test for one in part.but) for part in LONG)
