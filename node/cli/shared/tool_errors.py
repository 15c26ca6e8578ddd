"""Errors of a tool: each is one line on standard error. The status is that of Kafka's tool."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import IO, Any, TypeVar

import click

from pykraft.kafka_protocol.errors import KafkaError
from pykraft.node.cli.shared.common import wants_json

logger = logging.getLogger(__name__)

T = TypeVar("T")


def one_line(text: str) -> str:
    """The text, which may have several."""
    return " ".join(filter(None, map(str.strip, text.splitlines())))


def report(reasons: Iterable[str]) -> None:
    """Report errors for which Kafka's tool ends with 0 all the same; with ``--json``, which it has not, with 1."""
    reasons = list(reasons)
    for reason in reasons:
        click.echo(f"Error: {one_line(reason)}", err=True)
    if reasons and wants_json():
        click.get_current_context().exit(1)


class UsageLine(click.ClickException):
    """Wrong options, and where to read which there are. The status is 1, as of Kafka's tools."""

    def __init__(self, error: click.UsageError) -> None:
        help_at = "" if error.ctx is None else f" ({error.ctx.command_path} --help)"
        super().__init__(f"{one_line(error.format_message())}{help_at}")


class OwnUsageLine(UsageLine):
    """The usage line of a command that Kafka does not have."""

    exit_code = 2


class ToolError(click.ClickException):
    """Printed as it is."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file, err=True)


def failure(what: str, error: KafkaError) -> ToolError:
    """Build the error of a failed step, with the reason. The log at DEBUG tells more, as the message says."""
    logger.debug(what, exc_info=error)
    return ToolError(f"{what}: {error.message}. Enable debug logging for additional detail.")


def found(what: str, result: T | KafkaError) -> T:
    """The result, unless it is an error."""
    if isinstance(result, KafkaError):
        raise failure(what, result)
    return result
