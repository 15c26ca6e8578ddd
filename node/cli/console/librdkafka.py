"""Shared code of commands that use librdkafka: settings, and a timeout where it would retry forever."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import ClusterMetadata

from pykraft.node.cli.console.librdkafka_properties import translated
from pykraft.node.cli.shared.client_properties import BOOTSTRAP_SERVERS
from pykraft.node.cli.shared.reach import check_reachable

_FIRST_ANSWER_TIMEOUT_S: Final = 10.0
_OUTAGE_TIMEOUT_S: Final = 30.0
_CONFIRM_EVERY_S: Final = 10.0
"""librdkafka does not always say that all brokers are down: one that it never reached is not."""
_STEP_S: Final = 1.0
_SETTINGS: Final = "pykraft.settings"

FC = TypeVar("FC", bound=Callable[..., Any])


class OutageError(click.ClickException):
    """No broker responded in time."""


class Connection:
    """A client's connection to its cluster. Waits for the first response, and for one after every outage."""

    def __init__(self, bootstrap_server: str, given: Mapping[str, str]) -> None:
        """``given`` are properties of Java's clients or of librdkafka. Those without effect are named in a
        warning; :class:`ConfigError` for a value that has no counterpart.
        """
        settings, without_effect = translated(given)
        for name in without_effect:
            click.echo(f"warning: {name} has no effect here", err=True)
        check_reachable(bootstrap_server)
        self._bootstrap_server = bootstrap_server
        self._is_unconfirmed = True
        self._confirmed_s = 0.0
        self._last_error = ""
        self._held: deque[Message] = deque()
        # librdkafka logs a line for every attempt; only one is reported here, after the timeout.
        self.settings: dict[str, Any] = {
            "log_level": 0,
            **settings,
            BOOTSTRAP_SERVERS: bootstrap_server,
            "error_cb": self._handle_error,
        }

    def _handle_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._is_unconfirmed = True
        else:
            self._last_error = error.str()

    def first_answer(self, client: Consumer | Producer, topic: str | None) -> ClusterMetadata:
        """The metadata of a topic (None: of all). :class:`OutageError` if no broker responds in time."""
        return self._ask(client, topic, _FIRST_ANSWER_TIMEOUT_S)

    def check(self, client: Consumer | Producer, topic: str | None) -> None:
        """Wait for a broker if all may be down. :class:`OutageError` if none returns in time."""
        if self._is_unconfirmed or time.monotonic() - self._confirmed_s > _CONFIRM_EVERY_S:
            self.metadata(client, topic)

    def metadata(self, client: Consumer | Producer, topic: str | None) -> ClusterMetadata:
        """As :meth:`first_answer`, with the patience of a client that has begun to work."""
        return self._ask(client, topic, _OUTAGE_TIMEOUT_S)

    def poll(self, consumer: Consumer, timeout_s: float) -> Message | None:
        """The consumer's next record or error. A question about metadata may have come upon it before."""
        return self._held.popleft() if self._held else consumer.poll(timeout_s)

    def _serve(self, client: Consumer | Producer) -> None:
        found = client.poll(0)
        if isinstance(found, Message):
            self._held.append(found)

    def _ask(self, client: Consumer | Producer, topic: str | None, timeout_s: float) -> ClusterMetadata:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                # In short steps, because Python handles signals only between calls.
                answer: ClusterMetadata = client.list_topics(topic, timeout=_STEP_S)
            except KafkaException as error:
                self._serve(client)  # reports the errors of the attempts
                if time.monotonic() >= deadline:
                    reason = self._last_error or error.args[0].str()
                    raise OutageError(f"no broker of {self._bootstrap_server} responds: {reason}") from None
            else:
                self._is_unconfirmed = False
                self._confirmed_s = time.monotonic()
                return answer


def setting_option(name: str, key: str, **attributes: Any) -> Callable[[FC], FC]:
    """An option that sets a property of the client: :func:`given_settings` has those that were given."""

    def keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
        assert parameter.name is not None
        if context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            context.meta.setdefault(_SETTINGS, {})[key] = str(value)

    return click.option(name, expose_value=False, callback=keep, **attributes)


def given_settings() -> dict[str, str]:
    """Return the settings that the running command was given through :func:`setting_option`."""
    given: dict[str, str] = click.get_current_context().meta.get(_SETTINGS, {})
    return given


def make_producer(connection: Connection) -> Producer:
    """:class:`click.UsageError` for a setting that librdkafka refuses, with its message; as below."""
    try:
        return Producer(connection.settings)
    except KafkaException as error:
        raise click.UsageError(error.args[0].str()) from None


def make_consumer(connection: Connection) -> Consumer:
    try:
        return Consumer(connection.settings)
    except KafkaException as error:
        raise click.UsageError(error.args[0].str()) from None
