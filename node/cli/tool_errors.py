"""Errors of a tool in Kafka's form: one bare line on standard error, and status 1, also for wrong options."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import IO, Any, TypeVar

import click

from pykraft.kafka_protocol.errors import KafkaError

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ToolError(click.ClickException):
    """Printed as it is."""

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.message, file, err=True)


def failure(what: str, error: KafkaError) -> ToolError:
    """What could not be done, and the reason. The log at DEBUG tells more, as the message says."""
    logger.debug(what, exc_info=error)
    return ToolError(f"{what}: {error.message}. Enable debug logging for additional detail.")


def found(what: str, result: T | KafkaError) -> T:
    """The result, unless it is an error."""
    if isinstance(result, KafkaError):
        raise failure(what, result)
    return result


class _KafkaUsageError(click.UsageError):
    exit_code = 1


class KafkaStatusGroup(click.Group):
    """Ends with Kafka's status where click would end with 2."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        return with_kafka_status(lambda: super(KafkaStatusGroup, self).make_context(*args, **kwargs))

    def invoke(self, ctx: click.Context) -> Any:
        return with_kafka_status(lambda: super(KafkaStatusGroup, self).invoke(ctx))


def with_kafka_status(work: Callable[[], T]) -> T:
    try:
        return work()
    except click.UsageError as error:
        raise _KafkaUsageError(error.format_message(), error.ctx) from error
