"""``pykraft verifiable-consumer``, with the flags and the lines of kafka-verifiable-consumer. Reads through librdkafka."""

from __future__ import annotations

from typing import Final

import click

from pykraft.node.cli.console.librdkafka import Connection, make_consumer
from pykraft.node.cli.console.librdkafka_properties import JAVA_DEFAULTS
from pykraft.node.cli.console.verifiable_reader import VerifiableReader
from pykraft.node.cli.shared.common import bootstrap_option
from pykraft.node.cli.shared.interrupts import stop_request
from pykraft.node.cli.shared.kafka_command import KafkaCommand
from pykraft.node.cli.shared.property_options import GivenProperties, property_options

_RANGE: Final = "org.apache.kafka.clients.consumer.RangeAssignor"


@click.command(cls=KafkaCommand)
@bootstrap_option
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--group-id", required=True, help="The consumer group.")
@click.option(
    "--group-protocol",
    type=click.Choice(["classic", "consumer"], case_sensitive=False),
    default="classic",
    show_default=True,
)
@click.option(
    "--group-remote-assignor", metavar="NAME", help="The coordinator's assignor, with the protocol consumer."
)
@click.option("--group-instance-id", metavar="ID", help="Makes it a static member.")
@click.option("--max-messages", type=int, default=-1, show_default=True, help="-1: until it is stopped.")
@click.option(
    "--session-timeout", type=click.IntRange(min=1), metavar="MS", help="With the protocol classic."
)
@click.option("--verbose", is_flag=True, help="Print each record, too.")
@click.option("--enable-autocommit", is_flag=True, help="Let the client commit from time to time.")
@click.option("--reset-policy", default="earliest", show_default=True, help="earliest, latest or none.")
@click.option(
    "--assignment-strategy",
    default=_RANGE,
    show_default=True,
    metavar="NAME",
    help="Assignors, by class or name, with the protocol classic.",
)
@property_options("of_client", (), ("--command-config", "--consumer.config"),
                  "Kafka's consumer or of librdkafka")  # fmt: skip
def command(
    bootstrap_server: str,
    topic: str,
    group_id: str,
    group_protocol: str,
    group_remote_assignor: str | None,
    group_instance_id: str | None,
    max_messages: int,
    session_timeout: int | None,
    verbose: bool,
    enable_autocommit: bool,
    reset_policy: str,
    assignment_strategy: str,
    of_client: GivenProperties,
) -> None:
    """Read a topic as a member of a group, and print what happens, as JSON.

    Offsets are committed after each lot of records, and their commit is waited for. Options take precedence over
    the file.
    """
    is_classic = group_protocol == "classic"
    optional = {
        "group.instance.id": group_instance_id,
        "group.remote.assignor": None if is_classic else group_remote_assignor,
        "partition.assignment.strategy": assignment_strategy if is_classic else None,
        "session.timeout.ms": None if session_timeout is None else str(session_timeout),
    }
    fixed = {
        "group.id": group_id,
        "group.protocol": group_protocol,
        "enable.auto.commit": str(enable_autocommit).lower(),
        "auto.offset.reset": reset_policy,
    }
    given = {name: value for name, value in optional.items() if value is not None}
    connection = Connection(bootstrap_server, JAVA_DEFAULTS | of_client.values | given | fixed)
    consumer = make_consumer(connection)
    with stop_request() as stop:
        reader = VerifiableReader(
            consumer, max_messages, stop, commits=not enable_autocommit, verbose=verbose
        )
        reader.run(connection, topic)
    click.get_current_context().exit(stop.exit_status)
