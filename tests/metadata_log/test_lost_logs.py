"""What a registration says about the broker's logs, and what that means for what it held."""

from __future__ import annotations

from typing import Any

import pytest

from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.elect_leaders import ElectLeadersRequest
from pykraft.metadata_log.records import LogsLost

OTHER_DIRECTORY = (Uuid(bytes([77]) * 16),)


@pytest.fixture
def kept(make_controller: Any) -> Any:
    """Three brokers; t-0 on 1 and 2, with 1 alone in sync. No eligible leader replicas."""
    harness = make_controller()
    harness.start_brokers(1, 2, 3)
    harness.create_assigned("t", [1, 2])
    harness.silence(2)
    assert harness.partition("t").isr == (1,)
    harness.heartbeat(2)
    return harness


def come_back(harness: Any, broker_id: int, **how: Any) -> None:
    harness.silence(broker_id)
    harness.register(broker_id, incarnation=9, **how)
    harness.heartbeat(broker_id)


def test_the_registration_says_what_may_be_lost(cluster: Any) -> None:
    epoch = cluster.image.brokers[1].epoch
    cluster.silence(1)
    cluster.register(1, incarnation=2, previous_broker_epoch=epoch)
    assert cluster.image.brokers[1].logs_lost == LogsLost.NOTHING
    cluster.silence(1)
    cluster.register(1, incarnation=3, previous_broker_epoch=epoch)
    assert cluster.image.brokers[1].logs_lost == LogsLost.TAIL, "the epoch of an older incarnation"
    epoch = cluster.image.brokers[1].epoch
    cluster.silence(1)
    cluster.register(1, incarnation=4, previous_broker_epoch=epoch, log_dirs=OTHER_DIRECTORY)
    assert cluster.image.brokers[1].logs_lost == LogsLost.ALL
    cluster.heartbeat(1)
    assert cluster.image.brokers[1].logs_lost == LogsLost.NOTHING, "unfenced: every partition follows"


def test_the_last_member_comes_back_as_leader_even_if_it_was_killed(kept: Any) -> None:
    come_back(kept, 1)
    assert (kept.partition("t").leader, kept.partition("t").isr) == (1, (1,))


def test_the_last_member_without_its_directory_does_not_lead_until_somebody_allows_it(kept: Any) -> None:
    come_back(kept, 1, log_dirs=OTHER_DIRECTORY)
    assert (kept.partition("t").leader, kept.partition("t").isr) == (-1, ())
    request = ElectLeadersRequest(election_type=1, topic_partitions=None)
    kept.run(kept.core.handle_elect_leaders(kept.context, request))
    assert kept.partition("t").leader in (1, 2)


def test_another_directory_beside_the_old_one_is_no_loss(kept: Any) -> None:
    directories = (*kept.image.brokers[1].log_dirs, *OTHER_DIRECTORY)
    come_back(kept, 1, log_dirs=directories)
    assert kept.partition("t").leader == 1
