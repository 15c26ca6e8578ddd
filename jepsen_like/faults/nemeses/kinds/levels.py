"""Changes of a working cluster: feature levels and brokers' configurations.

Only ``metadata.version`` is lowered: without eligible leader replicas less is promised than the checkers
demand, and clients that use the levels of ``group.version`` and ``transaction.version`` end with an error if
those are taken away.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Final

from pykraft.jepsen_like.faults.clusters.process_cluster import ProcessCluster
from pykraft.jepsen_like.faults.nemeses.administrator import Administrator
from pykraft.jepsen_like.faults.nemeses.fault import Fault, Target
from pykraft.jepsen_like.faults.nemeses.kind import Kind, Repair, between
from pykraft.kafka_client.results import ConfigChange, FeatureUpdate
from pykraft.kafka_protocol.enums import ConfigOperation, ConfigResourceType, UpgradeType
from pykraft.metadata_log.features import LATEST_METADATA_VERSION, METADATA_VERSION

OLDEST_LEVEL: Final = 23
"""The first ``metadata.version`` with all features that new clusters have."""
ALL_BROKERS: Final = ""
_CONFIGS: Final[Mapping[str, tuple[int, ...]]] = {
    "log.segment.bytes": (1 << 20, 2 << 20),
    "log.index.interval.bytes": (0, 64, 100_000),
    "log.flush.interval.messages": (1, 7, 1_000),
}


def _lower_a_feature(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    level = int(fault.settings["level"])
    with Administrator(cluster) as admin:
        before = admin.ask(lambda: _metadata_version(admin))
        update = FeatureUpdate(METADATA_VERSION, level, UpgradeType.SAFE_DOWNGRADE)
        admin.change(lambda: admin.client.update_features([update]))

    def raise_it() -> None:
        with Administrator(cluster) as admin:
            admin.until(f"metadata.version is {before}", lambda: _is_at(admin, before))

    return raise_it


def _metadata_version(admin: Administrator) -> int:
    features = admin.client.describe_features().features
    return next(feature.finalized_level for feature in features if feature.name == METADATA_VERSION)


def _is_at(admin: Administrator, level: int) -> bool:
    """Asks for the level unless it is there: in both cases it is, or an error is raised."""
    if _metadata_version(admin) != level:
        admin.client.update_features([FeatureUpdate(METADATA_VERSION, level)])
    return True


def _set_configs(cluster: ProcessCluster, fault: Fault, victims: Sequence[int]) -> Repair:
    rng = random.Random(fault.draw)
    name = rng.choice(sorted(_CONFIGS))
    with Administrator(cluster) as admin:
        admin.change(lambda: _set_config(admin, name, str(rng.choice(_CONFIGS[name]))))

    def remove_it() -> None:
        with Administrator(cluster) as admin:
            admin.until(f"{name} is removed", lambda: _set_config(admin, name, None))

    return remove_it


def _set_config(admin: Administrator, name: str, value: str | None) -> bool:
    operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
    admin.client.alter_configs(ConfigResourceType.BROKER, ALL_BROKERS, [ConfigChange(name, operation, value)])
    return True


KINDS: Final = (
    Kind(
        "feature-levels",
        "metadata.version is lowered, and raised again",
        _lower_a_feature,
        between(0.5, 6.0),
        family="membership",
        targets={Target.CLUSTER: 1.0},
        claims=frozenset({"features"}),
        settings=lambda rng: {"level": rng.randrange(OLDEST_LEVEL, LATEST_METADATA_VERSION)},
        weight=0.5,
    ),
    Kind(
        "broker-configs",
        "a configuration of all brokers is changed while they run: size of segments, of indexes, flushes",
        _set_configs,
        between(2.0, 10.0),
        family="membership",
        targets={Target.CLUSTER: 1.0},
        claims=frozenset({"configs"}),
        weight=0.5,
    ),
)
