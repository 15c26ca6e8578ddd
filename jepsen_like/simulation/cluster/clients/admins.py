"""Administrators: they change voters, leaders, replicas, configurations and feature levels.

Each administrator sends its requests through any broker, as an unmodified admin client does. It decides on
the metadata of that broker, which may be out of date, and passes every response to the checks.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from pykraft.jepsen_like.simulation.cluster.checks.leadership import UNCLEAN_TOPICS
from pykraft.jepsen_like.simulation.cluster.options import TOPICS
from pykraft.kafka_protocol.enums import ConfigResourceType, ElectionType, UpgradeType
from pykraft.kafka_protocol.errors import ErrorCode, KafkaError
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.cluster import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    FeatureUpdateKey,
    Listener,
    RemoveRaftVoterRequest,
    UpdateFeaturesRequest,
)
from pykraft.kafka_protocol.messages.topics import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from pykraft.metadata_log.controller.elections import iter_partitions
from pykraft.metadata_log.controller.topics.topic_names import METADATA_TOPIC_NAME
from pykraft.metadata_log.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    LATEST_METADATA_VERSION,
    METADATA_VERSION,
)

if TYPE_CHECKING:
    from pykraft.jepsen_like.simulation.cluster.clients.settings_admin import SettingsAdmin
    from pykraft.jepsen_like.simulation.cluster.node import SimNode
    from pykraft.jepsen_like.simulation.cluster.requests import ClientRequests, Operation
    from pykraft.jepsen_like.simulation.cluster.world import World

_LEVELS = (
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 0),
    (ELIGIBLE_LEADER_REPLICAS_VERSION, 1),
    (METADATA_VERSION, LATEST_METADATA_VERSION - 3),
    (METADATA_VERSION, LATEST_METADATA_VERSION),
)


class Admins:
    """``operations``: their operations with weights. Administrators send requests as clients do."""

    def __init__(self, world: World, requests: ClientRequests, settings: SettingsAdmin) -> None:
        self._world = world
        self._requests = requests
        self._settings = settings
        self._rng = random.Random(f"admins {world.seed}")
        self._next_value = 0
        self.operations: tuple[tuple[int, Operation], ...] = (
            (3, self._alter_config),
            (2, self._elect_leaders),
            (4, self._reassign),
            (1, self._update_features),
            (1 if world.options.voters_in_log else 0, self.change_voters),
        )

    # --- the voters -------------------------------------------------------------------------------------

    async def change_voters(self, node: SimNode) -> None:
        """Remove a voter that no longer exists; otherwise add a missing controller or remove any."""
        if self._world.voters_stay:
            return
        voters = await self.describe_voters(node)
        nodes, rng = self._world.nodes, self._rng
        gone = [id for id, directory_id in voters.items() if nodes[id].directory_id != directory_id]
        absent = [one.id for one in self._world.controllers if one.id not in voters]
        if gone or (not absent or rng.random() < 0.4):
            victim = rng.choice(gone or sorted(voters))
            await self._remove_voter(node, victim, voters[victim])
        else:
            await self._add_voter(node, nodes[rng.choice(absent)])

    async def describe_voters(self, node: SimNode) -> dict[int, Uuid]:
        """The voters as the active controller describes them."""
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(topic_name=METADATA_TOPIC_NAME, partitions=[partition])
        request = DescribeQuorumRequest(topics=[topic])
        response = await self._requests.call(node, request)
        if response.error_code != ErrorCode.NONE or not response.topics:
            raise KafkaError(ErrorCode(response.error_code), "no node describes the voters")
        voters = response.topics[0].partitions[0].current_voters
        return {replica.replica_id: replica.replica_directory_id for replica in voters}

    async def _add_voter(self, node: SimNode, voter: SimNode) -> None:
        request = AddRaftVoterRequest(
            cluster_id=self._world.cluster_id,
            timeout_ms=self._rng.choice((500, 5000)),
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            listeners=[Listener(name="CONTROLLER", host=voter.address.host, port=voter.address.port)],
            ack_when_committed=self._rng.random() < 0.8,
        )
        response = await self._requests.call(node, request)
        self._requests.note("add the voter", str(voter.id), response.error_code)

    async def _remove_voter(self, node: SimNode, voter_id: int, directory_id: Uuid) -> None:
        request = RemoveRaftVoterRequest(
            cluster_id=self._world.cluster_id, voter_id=voter_id, voter_directory_id=directory_id
        )
        response = await self._requests.call(node, request)
        self._requests.note("remove the voter", str(voter_id), response.error_code)

    # --- partitions -------------------------------------------------------------------------------------

    async def _elect_leaders(self, node: SimNode) -> None:
        preferred = self._rng.random() < 0.6
        kind = ElectionType.PREFERRED if preferred else ElectionType.UNCLEAN
        names = TOPICS if preferred or self._world.options.unclean else UNCLEAN_TOPICS
        image = node.image
        asked = [TopicPartitions(topic=name, partitions=[0, 1]) for name in self._rng.sample(names, 2)]
        if not preferred:
            asked += [
                TopicPartitions(topic=topic.name, partitions=[index])
                for topic, index, partition in iter_partitions(image)
                if topic.name in names and index > 1 and not partition.has_leader
            ]
        everything = preferred and self._rng.random() < 0.3
        request = ElectLeadersRequest(
            election_type=int(kind), topic_partitions=None if everything else asked, timeout_ms=5000
        )
        response = await self._requests.call(node, request)
        for topic in response.replica_election_results:
            for answer in topic.partition_result:
                self._requests.note(f"{kind.name.lower()} election of", topic.topic, answer.error_code)

    async def elect_the_last(self, node: SimNode) -> None:
        """Accept the loss of records: any replica may lead a partition without an intact replica."""
        asked = [
            TopicPartitions(topic=topic.name, partitions=[index])
            for topic, index, partition in iter_partitions(node.image)
            if not partition.has_leader
        ]
        request = ElectLeadersRequest(
            election_type=int(ElectionType.UNCLEAN), topic_partitions=asked, timeout_ms=5000
        )
        await self._requests.call(node, request)

    async def _reassign(self, node: SimNode) -> None:
        image, rng = node.image, self._rng
        name = rng.choice(TOPICS)
        topic = image.topic(name)
        if topic is None:
            return
        index = rng.randrange(len(topic.partitions))
        brokers = [one.id for one in self._world.brokers]
        target: list[int] | None = rng.sample(brokers, rng.randrange(1, len(brokers) + 1))
        if topic.partitions[index].is_reassigning and rng.random() < 0.4:
            target = None
        asked = ReassignablePartition(partition_index=index, replicas=target)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=5000, topics=[ReassignableTopic(name=name, partitions=[asked])]
        )
        response = await self._requests.call(node, request)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode(response.error_code), "no partition is moved")
        answer = response.responses[0].partitions[0]
        self._requests.note(
            "cancel a reassignment of" if target is None else "reassign", name, answer.error_code
        )
        if answer.error_code == ErrorCode.NONE and target is not None:
            self._world.checker.target_accepted(name, index, tuple(target))

    # --- settings ---------------------------------------------------------------------------------------

    async def _alter_config(self, node: SimNode) -> None:
        await self._settings.set(node, *self._draw_config())

    def _draw_config(self) -> tuple[ConfigResourceType, str, str, str | None]:
        rng = self._rng
        self._next_value += 1
        required = rng.choice((None, "1", "2", "2", "3"))
        broker = str(rng.choice(self._world.brokers).id)
        return rng.choice(
            (
                (ConfigResourceType.TOPIC, rng.choice(TOPICS), "min.insync.replicas", required),
                (ConfigResourceType.BROKER, "", "min.insync.replicas", required),
                (ConfigResourceType.BROKER, broker, "max.connections", str(1_000_000 + self._next_value)),
                (
                    ConfigResourceType.TOPIC,
                    rng.choice(UNCLEAN_TOPICS),
                    "unclean.leader.election.enable",
                    rng.choice((None, "true")),
                ),
            )
        )

    async def _update_features(self, node: SimNode) -> None:
        name, level = self._rng.choice(_LEVELS)
        kind = UpgradeType.UPGRADE
        if level < node.image.features.get(name, 0):
            kind = self._rng.choice((UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE))
        update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=int(kind))
        request = UpdateFeaturesRequest(timeout_ms=5000, feature_updates=[update])
        response = await self._requests.call(node, request)
        self._requests.note(f"set the level {level} of", name, response.error_code)
        if response.error_code == ErrorCode.NONE:
            self._world.checker.feature_updated(name, level)
