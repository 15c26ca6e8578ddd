"""Shared code of commands that use librdkafka: settings, and a timeout where it would retry forever."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final

import click
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from pykraft.node.cli.reach import check_reachable

_FIRST_ANSWER_TIMEOUT_S: Final = 10.0
_OUTAGE_TIMEOUT_S: Final = 30.0
_STEP_S: Final = 1.0


class OutageError(click.ClickException):
    """No broker responded in time."""


class Connection:
    """A client's connection to its cluster. Waits for the first response, and for one after every outage."""

    def __init__(self, bootstrap_server: str, given: Mapping[str, str]) -> None:
        """``given`` are the user's settings; they take precedence over ours."""
        check_reachable(bootstrap_server)
        self._bootstrap_server = bootstrap_server
        self._is_unconfirmed = True
        self._last_error = ""
        # librdkafka logs a line for every attempt; only one is reported here, after the timeout.
        ours = {"bootstrap.servers": bootstrap_server, "log_level": 0, "error_cb": self._handle_error}
        self.settings: dict[str, Any] = ours | dict(given)

    def _handle_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._is_unconfirmed = True
        else:
            self._last_error = error.str()

    def first_answer(self, client: Consumer | Producer, topic: str) -> frozenset[int]:
        """The partitions of a topic, if it exists. :class:`OutageError` if no broker responds in time."""
        return self._ask(client, topic, _FIRST_ANSWER_TIMEOUT_S)

    def check(self, client: Consumer | Producer, topic: str) -> None:
        """Wait for a broker if all are down. :class:`OutageError` if none returns in time."""
        if self._is_unconfirmed:
            self._ask(client, topic, _OUTAGE_TIMEOUT_S)

    def _ask(self, client: Consumer | Producer, topic: str, timeout_s: float) -> frozenset[int]:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                # In short steps, because Python handles signals only between calls.
                partitions = frozenset(client.list_topics(topic, timeout=_STEP_S).topics[topic].partitions)
            except KafkaException as error:
                client.poll(0)  # reports the errors of the attempts
                if time.monotonic() >= deadline:
                    reason = self._last_error or error.args[0].str()
                    raise OutageError(f"no broker of {self._bootstrap_server} responds: {reason}") from None
            else:
                self._is_unconfirmed = False
                return partitions


def usage_error(error: KafkaException) -> click.UsageError:
    """The error for a setting that librdkafka refuses, with its message."""
    return click.UsageError(error.args[0].str())


def end_at_sigterm() -> None:
    """Let SIGTERM raise KeyboardInterrupt, as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
