"""How records are printed: Kafka's formatters, under the names of their classes or short ones, and JSON. Pure but
for the log of one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import click

from pykraft.node.cli.console.consumed_record import ConsumedRecord, Formatter
from pykraft.node.cli.console.coordinator_formatters import group_metadata, offsets, transaction_log
from pykraft.node.cli.console.librdkafka_properties import class_name
from pykraft.node.cli.console.text_formatters import default_formatter, json_formatter
from pykraft.node.cli.shared.logging_setup import set_up_logging
from pykraft.node.cli.shared.property_options import GivenProperties, ToolProperties

DEFAULT: Final = "default"
NAMES: Final = "default, logging, noop, json, offsets, group-metadata, transaction-log"

_SUFFIX: Final = "MessageFormatter"

logger = logging.getLogger(__name__)


def find_formatter(name: str, given: GivenProperties) -> Formatter:
    """The formatter of that name; ``given`` are its properties.

    :class:`click.UsageError` if there is none, and for a property that it does not have.
    """
    short = class_name(name).removesuffix(_SUFFIX).replace("-", "").lower()
    make = _BY_NAME.get(short)
    if make is None:
        raise click.UsageError(f"--formatter {name}: there is none here, only {NAMES}")
    return make(given)


def _logging(given: GivenProperties) -> Formatter:
    """As the default one, and each record is logged, too."""
    write_default = default_formatter(given)
    set_up_logging()

    def write(record: ConsumedRecord) -> bytes:
        text = write_default(record)
        time = "" if record.timestamp_type is None else f"{record.timestamp_type}:{record.timestamp_ms}, "
        logger.info("%skey:%s, value:%s", time, _logged(record.key), _logged(record.value))
        return text

    return write


def _no_op(given: GivenProperties) -> Formatter:
    ToolProperties(given, ())
    return lambda record: b""


def _of_internal_topic(formatter: Formatter) -> Callable[[GivenProperties], Formatter]:
    def make(given: GivenProperties) -> Formatter:
        ToolProperties(given, ())
        return formatter

    return make


_BY_NAME: Final[Mapping[str, Callable[[GivenProperties], Formatter]]] = {
    DEFAULT: default_formatter,
    "logging": _logging,
    "noop": _no_op,
    "json": json_formatter,
    "offsets": _of_internal_topic(offsets),
    "groupmetadata": _of_internal_topic(group_metadata),
    "transactionlog": _of_internal_topic(transaction_log),
}
"""Short names without their hyphens."""


def _logged(data: bytes | None) -> str:
    return "null" if data is None else data.decode("utf-8", "replace")
