"""The options of ``pykraft producer`` that set properties of its client, and what else it sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from pykraft.node.cli.console.librdkafka import given_settings, setting_option

MAX_BLOCK: Final = "max.block.ms"

_CLIENT_ID: Final = "console-producer"
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

FC = TypeVar("FC", bound=Callable[..., Any])

_ROWS: Final = (
    # Option, property, least value, unit, help.
    ("--request-timeout-ms", "request.timeout.ms", 1, "MS", "How long a broker may wait for its followers."),
    ("--message-send-max-retries", "retries", 0, "N", "How often a request is sent again."),
    ("--retry-backoff-ms", "retry.backoff.ms", 1, "MS", "The pause before a request is sent again."),
    ("--timeout", "linger.ms", 0, "MS", "How long a record waits for others to be sent with."),
    ("--batch-size", "batch.size", 1, "BYTES", "How much is sent at once to a partition."),
    ("--max-partition-memory-bytes", "batch.size", 1, "BYTES", "Deprecated: --batch-size."),
    (
        "--max-memory-bytes",
        "buffer.memory",
        1,
        "BYTES",
        "The size of the buffer of records that are not sent.",
    ),
    (
        "--max-block-ms",
        MAX_BLOCK,
        0,
        "MS",
        "How long a record waits for room in the buffer, and for its topic.",
    ),
    ("--metadata-expiry-ms", "metadata.max.age.ms", 1, "MS", "How often metadata is read anew."),
    ("--socket-buffer-size", "send.buffer.bytes", -1, "BYTES", "The system's buffer of a connection."),
)

_IDEMPOTENT: Final[Mapping[str, tuple[str, ...]]] = {
    "acks": ("all", "-1"),
    "request.required.acks": ("all", "-1"),
    "max.in.flight.requests.per.connection": tuple("12345"),
    "max.in.flight": tuple("12345"),
}
"""The values with which a producer may be idempotent."""
_RETRIES: Final = ("retries", "message.send.max.retries")


def setting_options(function: FC) -> FC:
    """All that :func:`given_settings` returns."""
    for name, key, least, unit, text in reversed(_ROWS):
        function = setting_option(name, key, type=click.IntRange(min=least), metavar=unit, help=text)(
            function
        )
    function = setting_option("--request-required-acks", "acks", help="0, 1 or -1 (all, the default).")(
        function
    )
    codec = click.Choice(_CODECS)
    return setting_option(
        "--compression-codec",
        "compression.type",
        type=codec,
        is_flag=False,
        flag_value="gzip",
        help="gzip if the codec is not named.",
    )(function)


def producer_settings(properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of the client: ``properties``, and the options above.

    As Kafka's producer it is idempotent unless something contradicts, and gives a key the same partition.
    """
    given = {**properties, **given_settings()}
    is_idempotent = all(
        given.get(name, values[0]).strip() in values for name, values in _IDEMPOTENT.items()
    ) and all(given.get(name, "1").strip() != "0" for name in _RETRIES)
    ours = {
        "client.id": _CLIENT_ID,
        "partitioner": "murmur2_random",
        "enable.idempotence": str(is_idempotent).lower(),
    }
    return ours | given
