"""The command tree. Commands are imported on first use, so that a server start loads no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from pykraft import __version__
from pykraft.compiled import form
from pykraft.configuration.keys import ConfigError
from pykraft.kafka_protocol.errors import KafkaError
from pykraft.node.cli.shared.lazy_group import LazyGroup
from pykraft.node.cli.shared.tool_errors import OwnUsageLine, UsageLine
from pykraft.node.errors import StartError
from pykraft.node.os_errors import describe, is_users

_COMMANDS: Mapping[str, tuple[str, str]] = {
    "storage": ("pykraft.node.cli.files.storage", "Format and inspect data directories."),
    "server": ("pykraft.node.cli.server", "Run a node."),
    "dev": ("pykraft.node.cli.dev.dev", "Run a ready cluster without configuration."),
    "topics": ("pykraft.node.cli.topics.topics", "Create, list, describe, alter and delete topics."),
    "configs": ("pykraft.node.cli.configs.configs", "Show and change configurations while the cluster runs."),
    "groups": ("pykraft.node.cli.groups.groups", "List groups of every type; all that consumer-groups does."),
    "consumer-groups": (
        "pykraft.node.cli.groups.consumer_groups",
        "List, describe and delete groups of consumers; reset their offsets.",
    ),
    "client-metrics": (
        "pykraft.node.cli.configs.client_metrics",
        "Show and change subscriptions to the metrics of clients.",
    ),
    "transactions": (
        "pykraft.node.cli.transactions.transactions",
        "Look at transactions and producers; end transactions that hang.",
    ),
    "cluster": ("pykraft.node.cli.cluster.cluster", "List the brokers of a cluster; unregister one."),
    "broker-api-versions": (
        "pykraft.node.cli.cluster.broker_api_versions",
        "Show which versions of which APIs the brokers serve.",
    ),
    "metadata-quorum": (
        "pykraft.node.cli.cluster.metadata_quorum",
        "Describe the metadata quorum and change its voters.",
    ),
    "leader-election": (
        "pykraft.node.cli.cluster.leader_election",
        "Run preferred or unclean leader elections.",
    ),
    "reassign-partitions": (
        "pykraft.node.cli.reassign.reassign_partitions",
        "Move replicas between brokers.",
    ),
    "log-dirs": (
        "pykraft.node.cli.cluster.log_dirs",
        "Show the log directories of brokers and what is in them.",
    ),
    "delete-records": ("pykraft.node.cli.topics.delete_records", "Delete the oldest records of partitions."),
    "get-offsets": ("pykraft.node.cli.topics.get_offsets", "Show the offsets of partitions, by time."),
    "features": ("pykraft.node.cli.cluster.features", "Show and change the levels of features."),
    "producer": ("pykraft.node.cli.console.producer", "Write lines of standard input to a topic."),
    "consumer": ("pykraft.node.cli.console.consumer", "Print the records of a topic."),
    "producer-perf-test": (
        "pykraft.node.cli.perf.producer_perf_test",
        "Measure how fast records are written.",
    ),
    "consumer-perf-test": ("pykraft.node.cli.perf.consumer_perf_test", "Measure how fast records are read."),
    "verifiable-producer": (
        "pykraft.node.cli.console.verifiable_producer",
        "Write numbers; print each outcome, as JSON.",
    ),
    "verifiable-consumer": (
        "pykraft.node.cli.console.verifiable_consumer",
        "Read a topic; print what happens, as JSON.",
    ),
    "dump-log": ("pykraft.node.cli.files.dump_log", "Print the content of log, index and snapshot files."),
    "metadata-shell": ("pykraft.node.cli.files.metadata_shell", "Browse the metadata in a log or snapshot."),
    "kafka-scripts": (
        "pykraft.node.cli.kafka_scripts.kafka_scripts",
        "Write launchers under the names of Kafka's scripts.",
    ),
    "jepsen": ("pykraft.node.cli.jepsen", "Inject faults into a real cluster and check its history."),
    "spark": ("pykraft.node.cli.spark.spark", "Run jobs over topics in Spark."),
}


_EXTRAS: Mapping[str, str] = {
    "confluent_kafka": "console",
    "numpy": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "rich": "jepsen",
}
"""Packages that only some commands need, and the extra that installs them."""


_OWN: Final = frozenset(("dev", "jepsen", "kafka-scripts", "spark"))
"""Commands that Kafka does not have. Some of them end with 1 for a verdict."""


_HELP: Final = getattr(click.exceptions, "NoArgsIsHelpError", ())
"""With this click 8.2 and later show the help, in place of a command that was not given."""


class _Root(LazyGroup):
    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except _HELP:
            raise
        except click.UsageError as error:
            raise OwnUsageLine(error) from error

    def invoke(self, ctx: click.Context) -> object:
        """Errors that a user can correct are one line on standard error, not a traceback."""
        try:
            return super().invoke(ctx)
        except _HELP:
            raise
        except click.UsageError as error:
            raise (OwnUsageLine if ctx.invoked_subcommand in _OWN else UsageLine)(error) from error
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            extra = _EXTRAS.get(module)
            if extra is None:
                raise
            package = module.replace("_", "-")
            raise click.ClickException(
                f"this command needs {package}: pip install {package}, or pykraft with its extra {extra!r}"
            ) from error
        except OSError as error:
            if not is_users(error):
                raise
            raise click.ClickException(describe(error)) from error
        except (ConfigError, KafkaError, StartError) as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Root, commands_in=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(f"{__version__} ({form()})", prog_name="pykraft")
def cli() -> None:
    """A Kafka that a Python programmer can install, read, trust and run."""
