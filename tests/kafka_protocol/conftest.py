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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that take ``message_class`` run for every message; with ``version`` for every version too.

    With ``flexible_version`` instead they run for the flexible versions only. All versions of a message are
    one test: thousands of tests would take longer to begin than to run.
    """
    if "message_class" not in metafunc.fixturenames:
        return
    names = ["message_class"]
    cases: dict[str, tuple[object, ...]] = {cls.__name__: (cls,) for cls in CLASSES}
    for name in ("version", "flexible_version"):
        if name in metafunc.fixturenames:
            names.append(name)
            cases = {cls.__name__: (cls, _versions(cls, name)) for cls in CLASSES if _versions(cls, name)}
    metafunc.parametrize(names, list(cases.values()), ids=list(cases))


def _versions(cls: type[Message], name: str) -> tuple[int, ...]:
    first = cls.MIN_VERSION if name == "version" else max(cls.MIN_VERSION, cls.FLEXIBLE_FROM)
    return tuple(range(first, cls.MAX_VERSION + 1))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    for name in ("version", "flexible_version"):
        if isinstance(versions := arguments.get(name), tuple):
            for version in versions:
                try:
                    pyfuncitem.obj(**arguments | {name: version})
                except BaseException as error:
                    error.add_note(f"{name} {version}")
                    raise
            return True
    return None
