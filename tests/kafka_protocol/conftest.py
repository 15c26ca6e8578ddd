"""Shared by the codec tests: which messages exist, and seeded values for any of them."""

import pytest

from pykraft.kafka_protocol.api_keys import _FAMILY, ApiKey, request_class
from pykraft.kafka_protocol.codec.schema import Message
from pykraft.kafka_protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription

API_KEYS = [key for key in ApiKey if key.name.lower() in _FAMILY]
CLASSES: list[type[Message]] = [
    cls for key in API_KEYS for cls in (request_class(key), request_class(key).RESPONSE)
]
CLASSES += [ConsumerProtocolSubscription, ConsumerProtocolAssignment]
CASES: list[tuple[type[Message], int]] = [
    (cls, version) for cls in CLASSES for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that take ``message_class`` run for every message; with ``version`` for every version too.

    With ``flexible_version`` instead they run for the flexible versions only.
    """
    if {"message_class", "flexible_version"} <= set(metafunc.fixturenames):
        cases = [(cls, v) for cls, v in CASES if v >= cls.FLEXIBLE_FROM]
        metafunc.parametrize(
            ("message_class", "flexible_version"), cases, ids=[f"{cls.__name__}-v{v}" for cls, v in cases]
        )
    elif {"message_class", "version"} <= set(metafunc.fixturenames):
        metafunc.parametrize(
            ("message_class", "version"), CASES, ids=[f"{cls.__name__}-v{v}" for cls, v in CASES]
        )
    elif "message_class" in metafunc.fixturenames:
        metafunc.parametrize("message_class", CLASSES, ids=[cls.__name__ for cls in CLASSES])
