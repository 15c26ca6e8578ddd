"""UpdateFeatures: the level at which the whole cluster runs a feature (KIP-584).

A level is finalized only if this controller, every other voter and every registered broker have registered
that they can run it, and if the levels are compatible with each other. The current level of a feature is no
change and is always accepted, whatever the feature: tools name every level of a release. Either all updates
of a request are made or none. Our metadata records are the same at every ``metadata.version``, so lowering it
loses none of them: a downgrade may lose only what the lowered feature itself kept. The sweep after the change
updates the partitions (:mod:`.sweeps`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pykraft.kafka_protocol.enums import UpgradeType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from pykraft.metadata_log.controller.elections import iter_partitions
from pykraft.metadata_log.controller.result import ControllerResult
from pykraft.metadata_log.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    SUPPORTED_FEATURES,
    UNSERVED_FEATURES,
    known_range,
    level_name,
    missing_requirement,
)
from pykraft.metadata_log.image import MetadataImage
from pykraft.metadata_log.records import NO_LEADER, FeatureLevelRecord, FeatureRange, Record


def handle_update_features(
    image: MetadataImage, voters: Iterable[int], kraft_version: int, request: UpdateFeaturesRequest
) -> ControllerResult[UpdateFeaturesResponse]:
    """Finalize the requested levels, or return an error for each of them.

    ``voters`` are the ids of the quorum's voters and ``kraft_version`` is its level; neither is in the image.
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
                _check(image, voters, update)
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
    return ControllerResult(() if request.validate_only else _build_records(levels), response)


def _build_records(levels: Mapping[str, int]) -> tuple[Record, ...]:
    return tuple(FeatureLevelRecord(name, level) for name, level in sorted(levels.items()))


def _changes_level(present: Mapping[str, int], update: FeatureUpdateKey) -> bool:
    """Whether the update changes the level; refused if not in the requested direction."""
    name, level = update.feature, update.max_version_level
    if known_range(name) is None:
        raise _refuse(f"feature {name[:100]} is unknown")
    current, upgrade_type = present.get(name, 0), _upgrade_type(update)
    _check_direction(name, current, level, upgrade_type)
    return level != current


def _check(image: MetadataImage, voters: Iterable[int], update: FeatureUpdateKey) -> None:
    name, level = update.feature, update.max_version_level
    if name == KRAFT_VERSION:
        raise _refuse("kraft.version is chosen when the first controllers are formatted")
    if name in UNSERVED_FEATURES:
        raise _refuse(f"{name} can only be 0, not {level}: its functions are not implemented")
    _check_supported(image, voters, name, level)
    if level < image.features.get(name, 0) and _upgrade_type(update) is UpgradeType.SAFE_DOWNGRADE:
        _check_nothing_lost(image, name)


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


def _check_nothing_lost(image: MetadataImage, name: str) -> None:
    """A safe downgrade is refused if a partition could then get a leader only by losing records."""
    if name != ELIGIBLE_LEADER_REPLICAS_VERSION:
        return
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
