"""Feature levels: their names, what they depend on, how a whole cluster moves to them."""

from collections.abc import Collection
from typing import Any

import pytest

from pykraft.kafka_protocol.codec.pace import at_once
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pykraft.metadata_log.controller.calls.requests import RegisterControllerRequest
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.features import (
    METADATA_VERSION_NAMES,
    SUPPORTED_FEATURES,
    SUPPORTED_RANGES,
    default_features,
    level_name,
    missing_requirement,
    parse_metadata_version,
)
from pykraft.metadata_log.records import ConfigRecord, Endpoint, FeatureLevelRecord, FeatureRange
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


@pytest.mark.parametrize(
    ("upgrade_type", "said"),
    [(UP, "a downgrade must be requested"), (SAFE, "cannot be lowered"), (UNSAFE, "cannot be lowered")],
)
def test_kraft_version_is_not_lowered(old: ControllerHarness, upgrade_type: int, said: str) -> None:
    answer = update(old, ("kraft.version", 0, upgrade_type), kraft_version=1)
    assert answer.error_code == REFUSED and said in answer.error_message


def decide_upgrade(
    cluster: ControllerHarness,
    *others: tuple[str, int],
    objection: str | None = None,
    validate_only: bool = False,
    voters: Collection[int] = VOTERS,
) -> ControllerResult[UpdateFeaturesResponse]:
    """The decision on an upgrade of kraft.version to 1, and of others; nothing is appended."""
    keys = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=UP)
        for name, level in (("kraft.version", 1), *others)
    ]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    return at_once(cluster.core.handle_forwarded(cluster.context, request, voters, 0, lambda: objection))


def test_kraft_version_is_upgraded_by_the_quorum_behind_the_records_of_the_others(
    old: ControllerHarness,
) -> None:
    result = decide_upgrade(old, ("metadata.version", 30), ("group.version", 1))
    assert result.upgrades_kraft_version and result.response.error_code == 0
    assert result.records == (
        FeatureLevelRecord("group.version", 1),
        FeatureLevelRecord("metadata.version", 30),
    )
    assert [it.feature for it in result.response.results] == [
        "kraft.version",
        "metadata.version",
        "group.version",
    ]


def test_upgrade_that_is_only_validated_leaves_the_quorum_as_it_is(old: ControllerHarness) -> None:
    result = decide_upgrade(old, ("metadata.version", 30), validate_only=True)
    assert result.response.error_code == 0 and not result.records and not result.upgrades_kraft_version


@pytest.mark.parametrize("validate_only", [False, True])
def test_objection_of_the_quorum_is_told_and_nothing_is_changed(
    old: ControllerHarness, validate_only: bool
) -> None:
    result = decide_upgrade(
        old, ("metadata.version", 30), objection="voter 3 is away", validate_only=validate_only
    )
    assert not result.records and not result.upgrades_kraft_version
    codes = {it.feature: (it.error_code, it.error_message) for it in result.response.results}
    assert codes["kraft.version"] == (REFUSED, "kraft.version cannot be upgraded now: voter 3 is away")
    assert codes["metadata.version"][0] == ErrorCode.OPERATION_NOT_ATTEMPTED


def test_refusal_of_another_feature_leaves_the_quorum_as_it_is(old: ControllerHarness) -> None:
    result = decide_upgrade(old, ("metadata.version", 31))
    assert result.response.error_code == REFUSED and not result.upgrades_kraft_version


def test_kraft_version_needs_every_node_and_a_metadata_version(old: ControllerHarness) -> None:
    assert decide_upgrade(old, voters=(*VOTERS, 102)).response.error_code == REFUSED
    register_controllers(old, 101, features=ranges(kraft_version=0))
    refused = decide_upgrade(old).response
    assert refused.error_code == REFUSED and "controller 101" in (refused.error_message or "")
    register_controllers(old, 101)
    old.register(9, features=ranges(kraft_version=0))
    refused = decide_upgrade(old).response
    assert refused.error_code == REFUSED and "broker 9" in (refused.error_message or "")
    old.append((FeatureLevelRecord("metadata.version", 20),))
    old.register(9)
    refused = decide_upgrade(old).response
    assert refused.error_code == REFUSED and "needs metadata.version 3.9-IV0" in (refused.error_message or "")
    assert decide_upgrade(old, ("metadata.version", 21)).upgrades_kraft_version


def test_validating_only_changes_nothing(old: ControllerHarness) -> None:
    before = old.image
    assert update(old, ("metadata.version", 30, UP), validate_only=True).error_code == 0
    assert update(old, ("metadata.version", 31, UP), validate_only=True).error_code == REFUSED
    assert old.image is before


@pytest.mark.parametrize("upgrade_type", [SAFE, UNSAFE])
@pytest.mark.parametrize("level", [29, 24])
def test_metadata_version_is_not_lowered_while_that_forgets_cordoned_directories(
    old: ControllerHarness, level: int, upgrade_type: int
) -> None:
    """Kafka refuses each of these downgrades, and knows no unsafe one either."""
    update(old, ("metadata.version", 30, UP))
    directory = Uuid(b"a log directory.")
    old.register(7, log_dirs=(directory,))
    old.heartbeat(7, cordoned_log_dirs=(directory,))
    before = old.image
    assert before.brokers[7].cordoned_log_dirs == (directory,)
    refused = update(old, ("metadata.version", level, upgrade_type))
    assert refused.error_code == REFUSED and "broker 7 has cordoned" in refused.error_message
    assert old.image is before
    old.heartbeat(7, cordoned_log_dirs=())
    assert update(old, ("metadata.version", level, upgrade_type)).error_code == 0


def test_metadata_version_is_not_lowered_while_directories_are_to_be_cordoned(
    old: ControllerHarness,
) -> None:
    from tests.metadata_log.controller.test_config_commands import alter

    update(old, ("metadata.version", 30, UP))
    old.register(7, log_dirs=(Uuid(b"a log directory."),))
    assert alter(old, ("cordoned.log.dirs", 0, "/data"), resource=(4, "7")).error_code == 0
    assert update(old, ("metadata.version", 29, SAFE)).error_code == REFUSED
    assert alter(old, ("cordoned.log.dirs", 1, None), resource=(4, "7")).error_code == 0
    assert update(old, ("metadata.version", 29, SAFE)).error_code == 0


def test_downgrade_below_what_is_lost_says_so_and_one_above_it_is_no_loss(old: ControllerHarness) -> None:
    """Cordoned directories are known from 4.3-IV0 on: nothing between 4.0 and 4.2 is lost."""
    directory = Uuid(b"a log directory.")
    old.append((FeatureLevelRecord("metadata.version", 29),))
    old.register(7, log_dirs=(directory,))
    old.heartbeat(7, cordoned_log_dirs=(directory,))
    assert not old.image.brokers[7].cordoned_log_dirs
    assert update(old, ("metadata.version", 24, SAFE)).error_code == 0


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
        (("kraft.version", 2, UP), "0 to 1, not 2"),
        (("kraft.version", 1, SAFE), "not a downgrade"),
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


def test_eligible_leader_replicas_begin_with_one_min_isr_for_all_brokers(old: ControllerHarness) -> None:
    """As in Kafka: it is in the log from then on, and no broker has its own."""
    broker, own = int(ConfigResourceType.BROKER), {"min.insync.replicas": "3", "log.retention.ms": "5"}
    old.append(tuple(ConfigRecord(broker, "1", name, value) for name, value in own.items()))
    raised = (("metadata.version", 30, UP), (ELR, 1, UP))
    assert update(old, *raised, validate_only=True).error_code == 0
    assert (broker, "") not in old.image.configs
    assert update(old, *raised).error_code == 0
    assert dict(old.image.resource_config(broker, "")) == {"min.insync.replicas": "1"}
    assert dict(old.image.resource_config(broker, "1")) == {"log.retention.ms": "5"}


def test_min_isr_that_was_set_for_all_brokers_stays(old: ControllerHarness) -> None:
    broker = int(ConfigResourceType.BROKER)
    old.append((ConfigRecord(broker, "", "min.insync.replicas", "2"),))
    assert update(old, ("metadata.version", 30, UP), (ELR, 1, UP)).error_code == 0
    assert dict(old.image.resource_config(broker, "")) == {"min.insync.replicas": "2"}


@pytest.mark.parametrize(("in_file", "kept"), [({}, "1"), ({"min.insync.replicas": "2"}, "2")])
def test_new_cluster_with_eligible_leader_replicas_keeps_the_min_isr_of_its_first_controller(
    in_file: dict[str, str], kept: str
) -> None:
    cluster = ControllerHarness(config=ControllerConfig(topic_defaults=in_file), features={ELR: 1})
    broker = int(ConfigResourceType.BROKER)
    assert dict(cluster.image.resource_config(broker, "")) == {"min.insync.replicas": kept}
    cluster.commit()
    cluster.lose_leadership()
    assert dict(cluster.image.resource_config(broker, "")) == {"min.insync.replicas": kept}
    assert (broker, "") not in ControllerHarness(features={"group.version": 1}).image.configs


def test_switching_eligible_leader_replicas_off_clears_them_safely_only_if_no_partition_needs_them(
    old: ControllerHarness,
) -> None:
    from tests.metadata_log.controller.test_config_commands import alter

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
            assert code == 0, (name, level)
