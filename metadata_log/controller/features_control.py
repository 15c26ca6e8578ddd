"""UpdateFeatures: the level at which the whole cluster runs a feature (KIP-584).

A level is finalized only if this controller, every other voter and every registered broker have registered
that they can run it, and if the levels are compatible with each other. The current level of a feature is no
change and is always accepted, whatever the feature: tools name every level of a release. Either all updates
of a request are made or none. The sweep after the change updates the partitions (:mod:`.sweeps`).

A safe downgrade is refused if it could lose something. Our metadata records are the same at every
``metadata.version``, so lowering it loses nothing but what is only kept up to date from a level on, if the
image holds any. (Kafka refuses to cross a version that changed the records, whatever there is.) As in Kafka,
an unsafe downgrade of ``metadata.version`` that loses something does not exist.

``kraft.version`` is raised by the quorum, which may object, and never lowered. Its record follows those of
the other features: if a change of controllers leaves only the first, the levels are compatible all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from pykraft.configuration.topic_keys import TOPIC_KEYS
from pykraft.kafka_protocol.enums import ConfigResourceType, UpgradeType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.cluster import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pykraft.metadata_log.broker_configs import ALL_BROKERS, CORDONED_LOG_DIRS
from pykraft.metadata_log.controller.config import ControllerConfig
from pykraft.metadata_log.controller.election_rules import MIN_INSYNC_REPLICAS
from pykraft.metadata_log.controller.elections import iter_partitions
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.features import (
    CORDONED_LOG_DIRS_FROM,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
    UNSERVED_FEATURES,
    known_range,
    level_name,
    missing_requirement,
)
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import NO_LEADER, ConfigRecord, FeatureLevelRecord, FeatureRange, Record


def handle_update_features(
    image: MetadataImage,
    voters: Iterable[int],
    kraft_version: int,
    upgrade_objection: Callable[[], str | None],
    config: ControllerConfig,
    request: UpdateFeaturesRequest,
) -> ControllerResult[UpdateFeaturesResponse]:
    """Finalize the requested levels, or return an error for each of them.

    ``voters`` are the ids of the quorum's voters and ``kraft_version`` is its level; neither is in the image.
    ``upgrade_objection``: why the quorum cannot raise it now, None if it can.
    """
    present = {**image.features, KRAFT_VERSION: kraft_version}
    times_named = Counter(update.feature for update in request.feature_updates)
    errors: dict[str, KafkaError] = {}
    levels: dict[str, int] = {}
    for update in request.feature_updates:
        try:
            if times_named[update.feature] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{update.feature} is named more than once")
            if _changes_level(present, update):
                _check(image, voters, upgrade_objection, update)
                levels[update.feature] = update.max_version_level
        except KafkaError as error:
            errors[update.feature] = error
    after = {**image.features, **levels}
    if not request.feature_updates:
        errors[""] = KafkaError(ErrorCode.INVALID_REQUEST, "no feature is named")
    elif not errors and (reason := missing_requirement(after)):
        errors = {name: _refuse(reason) for name in levels}
    if errors:
        return ControllerResult((), _refused(request, errors))
    response = UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=update.feature, error_message=None)
            for update in request.feature_updates
        ],
    )
    if request.validate_only:
        return ControllerResult((), response)
    records: list[Record] = []
    if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        records += build_min_isr_records(image, config)
    records += [
        FeatureLevelRecord(name, level) for name, level in sorted(levels.items()) if name != KRAFT_VERSION
    ]
    return ControllerResult(tuple(records), response, upgrades_kraft_version=KRAFT_VERSION in levels)


def build_min_isr_records(image: MetadataImage, config: ControllerConfig) -> list[Record]:
    """Set ``min.insync.replicas`` alike on all brokers once a cluster keeps eligible leader replicas.

    Kafka does so, too: they depend on it.
    """
    kind = ConfigResourceType.BROKER
    records: list[Record] = []
    if MIN_INSYNC_REPLICAS not in image.resource_config(kind, ALL_BROKERS):
        default = TOPIC_KEYS[MIN_INSYNC_REPLICAS].default
        value = config.topic_defaults.get(MIN_INSYNC_REPLICAS, default)
        records.append(ConfigRecord(kind, ALL_BROKERS, MIN_INSYNC_REPLICAS, value))
    for resource_type, name in sorted(image.configs):
        is_one_broker = resource_type == kind and name != ALL_BROKERS
        if is_one_broker and MIN_INSYNC_REPLICAS in image.resource_config(kind, name):
            records.append(ConfigRecord(kind, name, MIN_INSYNC_REPLICAS, None))
    return records


def _changes_level(present: Mapping[str, int], update: FeatureUpdateKey) -> bool:
    """Whether the update changes the level; refused if not in the requested direction."""
    name, level = update.feature, update.max_version_level
    if known_range(name) is None:
        raise _refuse(f"feature {name[:100]} is unknown")
    current, upgrade_type = present.get(name, 0), _upgrade_type(update)
    _check_direction(name, current, level, upgrade_type)
    return level != current


def _check(
    image: MetadataImage,
    voters: Iterable[int],
    upgrade_objection: Callable[[], str | None],
    update: FeatureUpdateKey,
) -> None:
    name, level = update.feature, update.max_version_level
    if name in UNSERVED_FEATURES:
        raise _refuse(f"{name} can only be 0, not {level}: its functions are not implemented")
    _check_supported(image, voters, name, level)
    if name == KRAFT_VERSION:
        if _upgrade_type(update) is not UpgradeType.UPGRADE:
            raise _refuse("kraft.version cannot be lowered")
        if (objection := upgrade_objection()) is not None:
            raise _refuse(f"kraft.version cannot be upgraded now: {objection}")
    elif level < image.features.get(name, 0):
        _check_nothing_lost(image, name, level, _upgrade_type(update))


def _upgrade_type(update: FeatureUpdateKey) -> UpgradeType:
    if update.allow_downgrade:  # version 0 had one kind of downgrade
        return UpgradeType.SAFE_DOWNGRADE
    try:
        return UpgradeType(update.upgrade_type)
    except ValueError:
        raise _refuse(f"unknown upgrade type {update.upgrade_type}") from None


def _check_direction(name: str, current: int, level: int, upgrade_type: UpgradeType) -> None:
    if level < current and upgrade_type is UpgradeType.UPGRADE:
        raise _refuse(
            f"{name} is at {level_name(name, current)}: to lower it to {level_name(name, level)} a downgrade"
            " must be requested"
        )
    if level > current and upgrade_type is not UpgradeType.UPGRADE:
        raise _refuse(
            f"{name} is at {level_name(name, current)}: {level_name(name, level)} is not a downgrade"
        )


def _check_supported(image: MetadataImage, voters: Iterable[int], name: str, level: int) -> None:
    low, high = SUPPORTED_FEATURES[name]
    _check_range("the active controller", FeatureRange(name, low, high), level)
    for voter in sorted(voters):
        known = image.controllers.get(voter)
        if known is None:
            raise _refuse(f"controller {voter} has not registered its feature levels yet")
        _check_range(f"controller {voter}", _range(known.features, name), level)
    for broker_id in sorted(image.brokers):
        _check_range(f"broker {broker_id}", _range(image.brokers[broker_id].features, name), level)


def _range(features: Iterable[FeatureRange], name: str) -> FeatureRange:
    return next((feature for feature in features if feature.name == name), FeatureRange(name, 0, 0))


def _check_range(who: str, can: FeatureRange, level: int) -> None:
    if not can.min_level <= level <= can.max_level:
        raise _refuse(
            f"{who} can run {can.name} {level_name(can.name, can.min_level)} to "
            f"{level_name(can.name, can.max_level)}, not {level_name(can.name, level)}"
        )


def _check_nothing_lost(image: MetadataImage, name: str, level: int, upgrade_type: UpgradeType) -> None:
    """A downgrade is refused if it loses what the image holds, unless it is unsafe and may."""
    if name == METADATA_VERSION:
        _check_nothing_cordoned(image, level)
    elif name == ELIGIBLE_LEADER_REPLICAS_VERSION and upgrade_type is UpgradeType.SAFE_DOWNGRADE:
        _check_no_leader_awaited(image)


def _check_nothing_cordoned(image: MetadataImage, level: int) -> None:
    if level >= CORDONED_LOG_DIRS_FROM or not image.supports_cordoned_log_dirs:
        return
    for broker_id, broker in sorted(image.brokers.items()):
        configs = image.resource_config(ConfigResourceType.BROKER, str(broker_id))
        if broker.cordoned_log_dirs or CORDONED_LOG_DIRS in configs:
            raise _refuse(
                f"broker {broker_id} has cordoned log directories, which the controller forgets below"
                f" {level_name(METADATA_VERSION, CORDONED_LOG_DIRS_FROM)}: take them out of"
                f" {CORDONED_LOG_DIRS} first. (There is no unsafe downgrade of metadata.version.)"
            )


def _check_no_leader_awaited(image: MetadataImage) -> None:
    """Without eligible leader replicas, a partition could then get a leader only by losing records."""
    for topic, index, partition in iter_partitions(image):
        if partition.leader == NO_LEADER and not partition.isr:
            raise _refuse(
                f"{topic.name}-{index} has no replica in sync and waits for an eligible leader replica;"
                " an unsafe downgrade would discard these replicas"
            )


def _refuse(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, reason)


def _refused(request: UpdateFeaturesRequest, errors: Mapping[str, KafkaError]) -> UpdateFeaturesResponse:
    first = next(iter(errors.values()))
    results = []
    for name in dict.fromkeys(update.feature for update in request.feature_updates):
        error = errors.get(name)
        if error is None:
            error = KafkaError(
                ErrorCode.OPERATION_NOT_ATTEMPTED, "another feature of the request was refused"
            )
        results.append(
            UpdatableFeatureResult(feature=name, error_code=error.code, error_message=error.message)
        )
    return UpdateFeaturesResponse(error_code=first.code, error_message=first.message, results=results)
