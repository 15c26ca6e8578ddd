"""A single voter whose disk was replaced is not the voter that its cluster counts on."""

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.quorum.core.voters import ReplicaKey
from pykraft.quorum.state_store import QuorumStateError
from tests.quorum.bench import CoreBench
from tests.quorum.nodes import Cluster


def test_single_voter_on_another_disk_refuses_to_start_and_names_both() -> None:
    b = CoreBench(voters=1)
    with pytest.raises(ValueError, match=str(b.keys[1])):
        CoreBench(voters=1, local=ReplicaKey(1, b.keys[8].directory_id))


@pytest.mark.world(voters=1)
async def test_single_voter_whose_disk_was_replaced_is_refused_with_both_keys(cluster: Cluster) -> None:
    replica = cluster.replicas[0]
    voter = replica.key
    await replica.stop()
    replica.key = ReplicaKey(1, Uuid(b"x" * 16))
    with pytest.raises(QuorumStateError, match=str(voter)):
        await replica.start()
    replica.log.close()
    replica.node = None
