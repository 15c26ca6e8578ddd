"""Throttles of replication (KIP-73): administrators set and lift them at random.

When they are lifted every follower catches up. No throttle costs a follower its place in the ISR, because
what is copied for followers in sync is never held back. So when all faults have ended, and all replicas are
in sync, the strictest throttle is set while clients write, and none of them leaves an ISR.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from pykraft.broker.replicas.replication_quota import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
)
from pykraft.jepsen_like.faults.workloads.append import AppendConfig
from pykraft.jepsen_like.simulation.cluster.clients.brief import TOPIC as BRIEF
from pykraft.jepsen_like.simulation.cluster.options import TOPICS
from pykraft.kafka_protocol.enums import ConfigResourceType
from pykraft.metadata_log import records as r

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.clients.settings_admin import SettingsAdmin
    from pykraft.jepsen_like.simulation.cluster.model import Model
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.cluster.world import World

STAYS_IN_SYNC: Final = "a throttle costs no follower its place in the ISR"
LIMITS: Final = frozenset({LEADER_RATE, FOLLOWER_RATE})
"""The settings that are removed when all faults have ended: then the lists of replicas say nothing."""

_STRICTEST: Final = "1"
_RATES: Final = (None, "0", "1", "300", "5000", "1000000")
_THROTTLED: Final = (AppendConfig().topic, AppendConfig().topic, BRIEF, *TOPICS[:2])


class Throttles:
    """The requests of administrators."""

    def __init__(self, world: World, settings: SettingsAdmin) -> None:
        self._world = world
        self._settings = settings
        self._rng = random.Random(f"throttles {world.seed}")

    async def throttle(self, node: SimNode) -> None:
        """Set or lift a limit of one broker or of all, or name the replicas that it is for."""
        rng, brokers = self._rng, [str(one.id) for one in self._world.brokers]
        if rng.random() < 0.5:
            resource = rng.choice(("", *brokers))
            name, value = rng.choice((LEADER_RATE, FOLLOWER_RATE)), rng.choice(_RATES)
            await self._settings.set(node, ConfigResourceType.BROKER, resource, name, value)
            return
        topic, name = rng.choice(_THROTTLED), rng.choice((LEADER_REPLICAS, FOLLOWER_REPLICAS))
        some = ",".join(f"{index}:{broker}" for index in range(2) for broker in rng.sample(brokers, 2))
        value = rng.choice((None, "*", "*", some))
        await self._settings.set(node, ConfigResourceType.TOPIC, topic, name, value)

    @property
    def _everything(self) -> dict[tuple[ConfigResourceType, str, str], str]:
        """The strictest limits of all replicas that clients write to."""
        rates = {(ConfigResourceType.BROKER, "", name): _STRICTEST for name in (LEADER_RATE, FOLLOWER_RATE)}
        topics = {one.name for one in self._world.checker.model.topics.values()} & set(_THROTTLED)
        lists = {
            (ConfigResourceType.TOPIC, topic, name): "*"
            for topic in sorted(topics)
            for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)
        }
        return rates | lists

    @property
    def are_strictest(self) -> bool:
        configs = self._world.checker.model.configs
        return all(configs.get((int(key[0]), *key[1:])) == value for key, value in self._everything.items())

    async def throttle_everything(self, node: SimNode) -> None:
        """Set the strictest limits for all replicas that clients write to."""
        for (kind, resource, name), value in self._everything.items():
            await self._settings.set(node, kind, resource, name, value)


class InSyncReplicas:
    """The members of every ISR at some moment."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._known = {
            (topic_id, index): (partition.leader_epoch, partition.isr)
            for topic_id, topic in model.topics.items()
            for index, partition in enumerate(topic.partitions)
        }

    def find_starved(self) -> str | None:
        """A member that has left since, although it is a replica under the same leader and not fenced."""
        for (topic_id, index), (leader_epoch, isr) in self._known.items():
            topic = self._model.topics.get(topic_id)
            if topic is None:
                continue
            partition = topic.partitions[index]
            if partition.leader_epoch != leader_epoch or partition.leader == r.NO_LEADER:
                continue
            for id in isr:
                gone = id in partition.replicas and id not in partition.isr
                if gone and not self._model.brokers[id].fenced and id not in partition.lost:
                    return f"broker {id} has left {topic.name}-{index} {partition}"
        return None
