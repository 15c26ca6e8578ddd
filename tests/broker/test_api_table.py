"""What is advertised is what is served, and nothing else."""

from __future__ import annotations

from pykraft.broker.apis.table import make_apis
from pykraft.kafka_protocol.api_keys import ADVERTISED, ApiKey, request_class


def _advertised() -> dict[ApiKey, tuple[int, int]]:
    return {
        api.key: (api.min_version if api.advertised_min is None else api.advertised_min, api.max_version)
        for api in make_apis()
    }


def test_the_advertised_versions_are_those_of_the_documented_broker() -> None:
    assert _advertised() == dict(ADVERTISED)


def test_only_produce_advertises_a_version_it_does_not_serve() -> None:
    wider = [api.key for api in make_apis() if api.advertised_min not in (None, api.min_version)]
    assert wider == [ApiKey.PRODUCE]


def test_every_served_version_can_be_decoded() -> None:
    for api in make_apis():
        message = request_class(api.key)
        assert message.MIN_VERSION <= api.min_version <= api.max_version <= message.MAX_VERSION, api.key
