"""Feature levels: their names, what they depend on, how a whole cluster moves to them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykraft.metadata_log.controller.requests import RegisterControllerRequest
from pykraft.metadata_log.features import (
    METADATA_VERSION_NAMES,
    SUPPORTED_FEATURES,
    SUPPORTED_RANGES,
    default_features,
    level_name,
    missing_requirement,
    parse_metadata_version,
)
from pykraft.metadata_log.records import Endpoint, FeatureLevelRecord, FeatureRange
from tests.metadata_log.harness import ControllerHarness

ELR = "eligible.leader.replicas.version"
UP, SAFE, UNSAFE = 1, 2, 3
REFUSED = ErrorCode.INVALID_UPDATE_VERSION
VOTERS = (100, 101)


def ranges(**highest: int) -> tuple[FeatureRange, ...]:
    """The levels this code supports, except the highest levels given (``metadata_version`` …)."""
    return tuple(
        FeatureRange(one.name, one.min_level, highest.get(one.name.replace(".", "_"), one.max_level))
        for one in SUPPORTED_RANGES
    )


def register_controllers(
    cluster: ControllerHarness, *ids: int, features: tuple[FeatureRange, ...] = SUPPORTED_RANGES
) -> None:
    for controller_id in ids:
        request = RegisterControllerRequest("test-cluster", controller_id, features)
        cluster.run(cluster.core.handle_register_controller(request))


def update(
    cluster: ControllerHarness,
    *updates: tuple[str, int, int],
    voters: Collection[int] = VOTERS,
    kraft_version: int = 0,
    validate_only: bool = False,
) -> Any:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    return cluster.run(cluster.core.handle_forwarded(cluster.context, request, voters, kraft_version))


@pytest.fixture
def old(cluster: ControllerHarness) -> ControllerHarness:
    """A cluster at 4.0-IV0 whose nodes support every level."""
    cluster.append((FeatureLevelRecord("metadata.version", 22), FeatureLevelRecord("group.version", 0)))
    register_controllers(cluster, *VOTERS)
    return cluster


def test_levels_have_kafkas_names() -> None:
    names = METADATA_VERSION_NAMES
    assert sorted(names) == list(range(7, 31))
    assert (names[7], names[8], names[19], names[21]) == ("3.3-IV3", "3.4-IV0", "3.7-IV4", "3.9-IV0")
    assert (names[22], names[27], names[30]) == ("4.0-IV0", "4.1-IV1", "4.3-IV0")
    for level, name in names.items():
        assert parse_metadata_version(name) == level
    assert parse_metadata_version("4.1") == 27 and parse_metadata_version("3.9") == 21
    assert level_name("metadata.version", 27) == "4.1-IV1" and level_name("group.version", 1) == "1"


@pytest.mark.parametrize(
    "text", ["", "4", "4.4", "4.1-IV2", "4.1-", "3.3-IV0", "x", "4.1-iv1", "-IV0", "4.10"]
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"3\.3-IV3 to 4\.3-IV0"):
        parse_metadata_version(text)


def test_defaults_of_every_version_are_compatible() -> None:
    for level in METADATA_VERSION_NAMES:
        assert missing_requirement(default_features(level)) is None
    assert default_features(21) == {"metadata.version": 21}
    assert default_features(22) == {"metadata.version": 22, "group.version": 1}
    assert "4.0-IV0" in str(missing_requirement({"metadata.version": 21, "group.version": 1}))


def test_levels_are_raised_and_lowered(old: ControllerHarness) -> None:
    assert update(old, ("metadata.version", 30, UP), ("group.version", 1, UP)).error_code == 0
    assert dict(old.image.features) == {"metadata.version": 30, "group.version": 1}
    assert update(old, ("metadata.version", 24, SAFE), ("group.version", 0, SAFE)).error_code == 0
    assert dict(old.image.features) == {"metadata.version": 24}
    assert update(old, ("metadata.version", 7, UNSAFE)).error_code == 0


@pytest.mark.parametrize("kraft_version", [0, 1])
@pytest.mark.parametrize("upgrade_type", [UP, SAFE, UNSAFE])
def test_present_level_of_any_feature_is_a_success_and_writes_nothing(
    old: ControllerHarness, kraft_version: int, upgrade_type: int
) -> None:
    before = old.image
    present = {
        "metadata.version": 22,
        "kraft.version": kraft_version,
        "group.version": 0,
        ELR: 0,
        "transaction.version": 0,
        "share.version": 0,
        "streams.version": 0,
    }
    named = [(name, level, upgrade_type) for name, level in present.items()]
    answer = update(old, *named, kraft_version=kraft_version)
    assert answer.error_code == 0
    assert [(result.feature, result.error_code) for result in answer.results] == [(n, 0) for n in present]
    assert old.image is before, "a present level is not written again"


def test_levels_of_a_release_are_set_even_if_some_are_present(old: ControllerHarness) -> None:
    release = {**default_features(21), "kraft.version": 1}
    answer = update(old, *((name, level, SAFE) for name, level in release.items()), kraft_version=1)
    assert answer.error_code == 0
    assert dict(old.image.features) == {"metadata.version": 21}


def test_present_level_is_not_refused_because_of_an_unregistered_controller(old: ControllerHarness) -> None:
    assert update(old, ("metadata.version", 22, UP), voters=(*VOTERS, 102)).error_code == 0


def test_kraft_version_is_not_lowered(old: ControllerHarness) -> None:
    for upgrade_type in (UP, SAFE, UNSAFE):
        answer = update(old, ("kraft.version", 0, upgrade_type), kraft_version=1)
        assert answer.error_code == REFUSED, upgrade_type


def test_validating_only_changes_nothing(old: ControllerHarness) -> None:
    before = old.image
    assert update(old, ("metadata.version", 30, UP), validate_only=True).error_code == 0
    assert update(old, ("metadata.version", 31, UP), validate_only=True).error_code == REFUSED
    assert old.image is before


def test_version_0_of_the_request_knows_one_kind_of_downgrade(old: ControllerHarness) -> None:
    for allowed, code in ((False, REFUSED), (True, ErrorCode.NONE)):
        key = FeatureUpdateKey(feature="metadata.version", max_version_level=20, allow_downgrade=allowed)
        request = UpdateFeaturesRequest.decode(UpdateFeaturesRequest(feature_updates=[key]).encode(0), 0)
        response = old.run(old.core.handle_forwarded(old.context, request, VOTERS))
        assert response.error_code == code
        assert [result.error_code for result in response.results] == [code]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (("metadata.version", 31, UP), "3.3-IV3 to 4.3-IV0, not 31"),
        (("metadata.version", 6, UNSAFE), "not 6"),
        (("metadata.version", 0, UNSAFE), "not 0"),
        (("metadata.version", 21, UP), "downgrade must be requested"),
        (("metadata.version", 23, SAFE), "not a downgrade"),
        (("metadata.version", 23, UNSAFE), "not a downgrade"),
        (("metadata.version", 23, 7), "unknown upgrade type 7"),
        (("metadata.version", 23, 0), "unknown upgrade type 0"),
        (("group.version", 2, UP), "not 2"),
        (("group.version", -1, UP), "-1"),
        (("group.version", -1, UNSAFE), "not -1"),
        ((ELR, 1, UP), "needs metadata.version 4.0-IV1"),
        (("kraft.version", 1, UP), "formatted"),
        (("kraft.version", 2, UP), "formatted"),
        (("kraft.version", -1, UP), "downgrade must be requested"),
        (("transaction.version", 3, UP), "transaction.version"),
        (("share.version", 1, UP), "can only be 0"),
        (("streams.version", 1, UP), "can only be 0"),
        (("share.version", -1, SAFE), "can only be 0"),
        (("share.version", 0, 9), "unknown upgrade type 9"),
        (("tests.version", 0, SAFE), "is unknown"),
        (("", 1, UP), "is unknown"),
        (("x" * 30_000, 32_767, UP), "is unknown"),
    ],
)
def test_impossible_level_is_refused_with_the_reason(
    old: ControllerHarness, wanted: tuple[str, int, int], said: str
) -> None:
    before = old.image
    answer = update(old, wanted)
    assert answer.error_code == REFUSED
    assert said in answer.error_message and len(answer.error_message) < 400
    assert [result.feature for result in answer.results] == [wanted[0]]
    assert old.image is before


def test_updates_are_made_all_or_none(old: ControllerHarness) -> None:
    before = old.image
    answer = update(old, ("group.version", 1, UP), ("metadata.version", 31, UP))
    assert answer.error_code == REFUSED
    codes = {result.feature: result.error_code for result in answer.results}
    assert codes == {"group.version": ErrorCode.OPERATION_NOT_ATTEMPTED, "metadata.version": REFUSED}
    assert old.image is before


def test_no_feature_and_a_feature_named_twice_are_refused(old: ControllerHarness) -> None:
    before = old.image
    assert update(old).error_code == ErrorCode.INVALID_REQUEST
    twice = update(old, ("group.version", 1, UP), ("group.version", 0, UP))
    assert twice.error_code == ErrorCode.INVALID_REQUEST
    assert [result.feature for result in twice.results] == ["group.version"]
    assert old.image is before


def test_level_that_another_feature_depends_on_is_not_lowered_alone(old: ControllerHarness) -> None:
    update(old, ("metadata.version", 30, UP), ("group.version", 1, UP), (ELR, 1, UP))
    assert update(old, ("metadata.version", 22, SAFE)).error_code == REFUSED
    assert update(old, ("metadata.version", 22, UNSAFE)).error_code == REFUSED
    assert update(old, ("metadata.version", 22, SAFE), (ELR, 0, SAFE)).error_code == 0


@pytest.mark.parametrize("fenced", [False, True])
def test_level_that_a_registered_broker_cannot_run_is_refused(old: ControllerHarness, fenced: bool) -> None:
    old.register(9, features=ranges(metadata_version=25))
    if not fenced:
        old.heartbeat(9)
    answer = update(old, ("metadata.version", 26, UP))
    assert answer.error_code == REFUSED and "broker 9" in answer.error_message
    assert update(old, ("metadata.version", 25, UP)).error_code == 0


def test_level_that_another_controller_cannot_run_or_may_not_run_is_refused(old: ControllerHarness) -> None:
    register_controllers(old, 101, features=ranges(metadata_version=29))
    answer = update(old, ("metadata.version", 30, UP))
    assert answer.error_code == REFUSED and "controller 101" in answer.error_message
    unknown = update(old, ("metadata.version", 29, UP), voters=(*VOTERS, 102))
    assert unknown.error_code == REFUSED and "controller 102 has not registered" in unknown.error_message
    assert update(old, ("metadata.version", 30, UP), voters=(100,)).error_code == 0, (
        "101 is no longer a voter"
    )


def test_controller_registers_once_and_again_with_new_software(old: ControllerHarness) -> None:
    before = old.image
    register_controllers(old, 100)
    assert old.image is before
    register_controllers(old, 100, features=ranges(metadata_version=29))
    assert old.image.controllers[100].features == ranges(metadata_version=29)


@pytest.mark.parametrize(
    "endpoints",
    [
        (Endpoint("K", "h", 0),),
        (Endpoint("K", "h", -1),),
        (Endpoint("K", "h", 65_536),),
        (Endpoint("K", "h" * 256, 9094),),
        (Endpoint("K" * 70_000, "h", 9094),),
        (Endpoint("K", "h", 9094),) * 1001,
    ],
    ids=["none", "negative", "too high", "long host", "long name", "many"],
)
def test_controller_with_invalid_listeners_is_refused(
    old: ControllerHarness, endpoints: tuple[Endpoint, ...]
) -> None:
    before = old.image
    request = RegisterControllerRequest("test-cluster", 101, SUPPORTED_RANGES, endpoints=endpoints)
    with pytest.raises(KafkaError, match="INVALID_REGISTRATION"):
        old.core.handle_register_controller(request)
    assert old.image is before


def test_controller_of_another_cluster_or_too_old_for_this_one_is_refused(cluster: ControllerHarness) -> None:
    with pytest.raises(KafkaError, match="INCONSISTENT_CLUSTER_ID"):
        request = RegisterControllerRequest("elsewhere", 100, SUPPORTED_RANGES)
        cluster.core.handle_register_controller(request)
    with pytest.raises(KafkaError, match="UNSUPPORTED_VERSION"):
        register_controllers(cluster, 100, features=ranges(metadata_version=29))
    assert 100 not in cluster.image.controllers


def test_switching_eligible_leader_replicas_off_clears_them_safely_only_if_no_partition_needs_them(
    old: ControllerHarness,
) -> None:
    from tests.metadata_log.test_config_commands import alter

    update(old, ("metadata.version", 30, UP), (ELR, 1, UP))
    old.create_assigned("kept", [1, 2, 3])
    old.create_assigned("waits", [2, 3])
    for name in ("kept", "waits"):
        assert alter(old, ("min.insync.replicas", 0, "2"), resource=(2, name)).error_code == 0
    old.stop_heartbeats(3)
    old.stop_heartbeats(2)
    assert old.partition("waits").elr and not old.partition("waits").isr
    before = old.image
    refused = update(old, (ELR, 0, SAFE))
    assert refused.error_code == REFUSED and "waits-0" in refused.error_message
    assert old.image is before
    assert update(old, (ELR, 0, UNSAFE)).error_code == 0
    assert all(
        not (partition.elr or partition.last_known_elr)
        for topic in old.image.topics_by_id.values()
        for partition in topic.partitions
    )


def test_every_level_that_is_supported_can_be_finalized_on_its_own(old: ControllerHarness) -> None:
    update(old, ("metadata.version", 30, UP))
    for name, (low, high) in SUPPORTED_FEATURES.items():
        for level in range(max(low, 23 if name == "metadata.version" else 0), high + 1):
            code = update(old, (name, level, UNSAFE)).error_code
            code = code and update(old, (name, level, UP)).error_code
            assert code == (REFUSED if (name, level) == ("kraft.version", 1) else 0), (name, level)
