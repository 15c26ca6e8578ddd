"""Processor time of a steady ConsumerGroupHeartbeat in the coordinator, without a network.

    python benchmarks/group_heartbeat.py [--members 10,300,1000] [--partitions-each 10] [--heartbeats 20000]

One coordinator over a log in memory. The members join and are reconciled until the group is stable, by names
and by one regular expression; then each sends heartbeats that say nothing new. A row has the microseconds of
one heartbeat in the coordinator, and with decoding the request and encoding the response; the best of five
rounds.
"""

import argparse
import asyncio
import time
from random import Random

from groups_offsets import TOPIC, Log, image_of

from pykraft.group_coordinator.service import GroupCoordinatorService
from pykraft.group_coordinator.state.config import GroupConfig
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from pykraft.kafka_protocol.request_context import RequestContext
from pykraft.metadata_log.delta import MetadataDelta
from pykraft.metadata_log.image import EMPTY_IMAGE
from pykraft.runtime.clock import SystemClock

CONTEXT = RequestContext(client_id="benchmark", client_address="127.0.0.1")
ROUNDS = 5


class Group:
    def __init__(self, service: GroupCoordinatorService, members: int, regex: str | None) -> None:
        self._service = service
        self._regex = regex
        self._names = [f"member-{number:04}" for number in range(members)]
        self._epochs = dict.fromkeys(self._names, 0)
        self._owned: dict[str, list[int]] = {name: [] for name in self._names}

    def request(self, name: str) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=name, member_epoch=self._epochs[name], rebalance_timeout_ms=-1
        )

    @property
    def requests(self) -> list[ConsumerGroupHeartbeatRequest]:
        return [self.request(name) for name in self._names]

    async def settle(self) -> None:
        changed = True
        while changed:
            changed = False
            for name in self._names:
                changed |= await self._beat(name)

    async def _beat(self, name: str) -> bool:
        """Join, or report what the member owns; whether that changed anything."""
        request = self.request(name)
        if request.member_epoch == 0:
            request.rebalance_timeout_ms = 300_000
            request.subscribed_topic_names = [] if self._regex else ["t"]
            request.subscribed_topic_regex = self._regex
        owned = self._owned[name]
        request.topic_partitions = (
            [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=TOPIC, partitions=owned)] if owned else []
        )
        answer = await self._service.consumer_group_heartbeat(CONTEXT, request, 1)
        await asyncio.sleep(0)
        is_same = answer.member_epoch == self._epochs[name] and answer.assignment is None
        self._epochs[name] = answer.member_epoch
        if answer.assignment is not None:
            self._owned[name] = [i for topic in answer.assignment.topic_partitions for i in topic.partitions]
        return not is_same


def refuse(error: BaseException) -> None:
    raise error


async def measure(members: int, partitions: int, regex: str | None, heartbeats: int) -> tuple[float, float]:
    """Microseconds of one heartbeat: in the coordinator, and with its codec."""
    config = GroupConfig(
        offsets_topic_num_partitions=1, consumer_assignment_interval_ms=0, consumer_session_timeout_ms=10**9
    )
    service = GroupCoordinatorService(config, Log(), SystemClock(), Random(1), refuse)
    image = image_of("t", partitions)
    service.on_metadata(MetadataDelta(EMPTY_IMAGE, image, created_topics=frozenset((TOPIC,))), image)
    service.on_elected(0, 1)
    for _ in range(10):
        await asyncio.sleep(0)
    group = Group(service, members, regex)
    await group.settle()
    requests = group.requests
    frames = [request.encode(1) for request in requests]
    decided, coded = [], []
    for _ in range(ROUNDS):
        began_s = time.process_time()
        for number in range(heartbeats):
            answer = await service.consumer_group_heartbeat(CONTEXT, requests[number % members], 1)
            assert answer.error_code == 0 and answer.assignment is None
        decided.append(time.process_time() - began_s)
        began_s = time.process_time()
        for number in range(heartbeats):
            request = ConsumerGroupHeartbeatRequest.decode(frames[number % members], 1)
            response: ConsumerGroupHeartbeatResponse = await service.consumer_group_heartbeat(
                CONTEXT, request, 1
            )
            response.encode(1)
        coded.append(time.process_time() - began_s)
    await service.stop()
    return min(decided) / heartbeats * 1e6, min(coded) / heartbeats * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--members", default="10,300,1000")
    parser.add_argument("--partitions-each", type=int, default=10)
    parser.add_argument("--heartbeats", type=int, default=20_000)
    options = parser.parse_args()
    print(f"{'members':>8} {'partitions':>10} {'subscribed to':>14} {'µs':>6} {'µs with codec':>14}")
    for members in map(int, options.members.split(",")):
        partitions = members * options.partitions_each
        for what, regex in (("names", None), ("a pattern", "t.*")):
            decided_us, coded_us = asyncio.run(measure(members, partitions, regex, options.heartbeats))
            print(f"{members:>8} {partitions:>10} {what:>14} {decided_us:>6.1f} {coded_us:>14.1f}")


if __name__ == "__main__":
    main()
