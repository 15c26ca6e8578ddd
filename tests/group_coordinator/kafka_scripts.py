"""Random scripts of raw group requests, and how a coordinator answers them, in a form that can be compared.

The answers of Apache Kafka 4.3 are in ``kafka_answers.json``, written by::

    python -m tests.group_coordinator.kafka_scripts HOST:PORT

against a broker with ``group.consumer.assignment.interval.ms=0``, ``group.consumer.max.size=4`` and one
partition of ``__consumer_offsets``. Not compared: which partitions a member gets (only how many of each
topic), ids, texts. The number of partitions is divisible by every number of members, so that assignors have
no choice; half of the scripts have members that subscribe alike, the others two members only.

Left out is what Kafka 4.3 gets wrong: a member that joins without topics while an assignment is due (it gets
some, and no other does), and a member that joins again with another instance id (it loses its target).
Regular expressions are invalid or empty, since their resolution takes Kafka an unknown time.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pykraft.kafka_protocol.codec.schema import Request
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages import groups as describe
from pykraft.kafka_protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    MemberIdentity,
)
from pykraft.kafka_protocol.messages.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from pykraft.testing.processes.waits import wait_until
from tests.group_coordinator import tools
from tests.group_coordinator.requests import commit_offsets, leave_group

ANSWERS = Path(__file__).with_name("kafka_answers.json")
SCRIPTS = 80
STEPS = 60
TOPICS = {"t": 12, "u": 12}
MEMBERS = ("a", "b", "c", "d", "e")
INSTANCES = {"c": "i", "d": "i", "e": "j"}
_SPOILED = "epoch owned instance names regex timeout assignor rack group member version".split()

Send = Callable[[Any, int], Awaitable[Any]]
Step = dict[str, Any]


def make_script(seed: int) -> list[Step]:
    """Steps as plain values; epochs and partitions are named, and known only when the script is played."""
    rng = Random(seed)
    wild = rng.choice((0.05, 0.3, 0.7))
    is_alike = rng.random() < 0.5
    names = [["t"]] if is_alike else [["t"], ["u"]]
    members = MEMBERS if is_alike else rng.sample(MEMBERS, 2)
    return [_make_step(rng, members, names, rng.random() < wild) for _ in range(STEPS)]


def _make_step(rng: Random, members: Sequence[str], names: list[list[str]], is_wild: bool) -> Step:
    kind = rng.choices(("beat", "commit", "fetch", "remove", "describe"), (75, 12, 5, 3, 5))[0]
    member = rng.choice(members)
    step: Step = {"do": kind, "member": member}
    if kind == "beat":
        step["epoch"] = rng.choices(("current", "join", "leave", "away"), (12, 4, 1, 1))[0]
        step["owned"] = rng.choice(("none", "assigned", "assigned"))
        if step["epoch"] == "join":
            step |= {"owned": "empty", "timeout": 60_000, "names": rng.choice(names)}
        elif rng.random() < 0.1:
            step["names"] = rng.choice(names)
        if rng.random() < 0.1:
            step["regex"] = ""
        if rng.random() < 0.1:
            step["lost"] = True
        if is_wild:
            _spoil(rng, step, members, names)
        else:
            step["may_join"] = True
    elif kind in ("commit", "fetch"):
        step["epoch"] = rng.choice(("current", "current", "previous", "older", "newer", "none", "join"))
        step["partition"] = rng.choice(("assigned", "assigned", "former", "other"))
        step["version"] = rng.choice((8, 9, 9, 9))
    elif kind == "remove":
        step["by"] = rng.choice(("member", "instance", "both", "wrong"))
    return step


def _spoil(rng: Random, step: Step, members: Sequence[str], names: list[list[str]]) -> None:
    """Change one or two fields to something that may not fit."""
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(_SPOILED)
        step[name] = rng.choice(
            {
                "epoch": ("previous", "older", "newer", "far", "below", "join", "away", "leave"),
                "owned": ("none", "empty", "assigned", "former"),
                "instance": (None, "", "i", "j", "k"),
                "names": (None, *names),
                "regex": (None, "", "(", "zz.*(", "[a"),
                "timeout": (-1, 60_000),
                "assignor": ("uniform", "absent", ""),
                "rack": ("", "r"),
                "group": ("", "absent"),
                "member": ("", *members),
                "version": (0, 1),
            }[name]
        )
    if step["epoch"] == "join" and step.get("instance") and step["instance"] != INSTANCES.get(step["member"]):
        del step["instance"]
    if not step["member"]:
        step["version"] = 1  # an id that Kafka chose would have another place among the members


@dataclass
class _Member:
    """What one client knows."""

    epochs: list[int] = field(default_factory=lambda: [0])
    assigned: list[tuple[Uuid, int]] = field(default_factory=list)
    former: list[tuple[Uuid, int]] = field(default_factory=list)


class Player:
    """Plays one script in a group of its own."""

    def __init__(self, send: Send, group_id: str, topic_ids: dict[str, Uuid]) -> None:
        self._send = send
        self._group_id = group_id
        self._names = {topic_id: name for name, topic_id in topic_ids.items()}
        self._members: dict[str, _Member] = {}

    async def play(self, script: list[Step]) -> list[Any]:
        return [await getattr(self, f"_{step['do']}")(step) for step in script]

    async def _beat(self, step: Step) -> Any:
        member = self._members.setdefault(step["member"], _Member())
        if step.get("may_join") and step["epoch"] == "current" and member.epochs[-1] == 0:
            step = {"timeout": 60_000, "names": ["t"]} | step | {"owned": "empty"}
        request = ConsumerGroupHeartbeatRequest(
            group_id={"": "", "absent": self._group_id + "-absent"}.get(
                step.get("group", "."), self._group_id
            ),
            member_id=step["member"],
            member_epoch=self._epoch(member, step["epoch"]),
            instance_id=step.get("instance", INSTANCES.get(step["member"])),
            rack_id=step.get("rack"),
            rebalance_timeout_ms=step.get("timeout", -1),
            subscribed_topic_names=step.get("names"),
            subscribed_topic_regex=step.get("regex"),
            server_assignor=step.get("assignor"),
            topic_partitions=self._owned(member, step["owned"]),
        )
        version = step.get("version", 1)
        if version == 0:
            request.subscribed_topic_regex = None
        answer = await self._send(request, version)
        if answer.error_code:
            if answer.error_code in (25, 110, 82):
                self._members[step["member"]] = _Member(former=member.former)
            return [answer.error_code]
        partitions = None
        if answer.assignment is not None:
            partitions = sorted(
                (self._names[topic.topic_id], len(topic.partitions))
                for topic in answer.assignment.topic_partitions
            )
        told = [answer.member_epoch, partitions]
        if not step.get("lost") and answer.member_epoch >= 0 and step["member"]:
            if member.epochs[-1] != answer.member_epoch:
                member.epochs.append(answer.member_epoch)
            if answer.assignment is not None:
                given = [
                    (topic.topic_id, index)
                    for topic in answer.assignment.topic_partitions
                    for index in topic.partitions
                ]
                member.former = sorted({*member.former, *member.assigned} - set(given))
                member.assigned = sorted(given)
        return told

    def _epoch(self, member: _Member, name: str) -> int:
        epochs = member.epochs
        return {
            "current": epochs[-1],
            "previous": epochs[-2] if len(epochs) > 1 else 1,
            "older": epochs[-3] if len(epochs) > 2 else 1,
            "newer": epochs[-1] + 1,
            "far": 1_000,
            "join": 0,
            "leave": -1,
            "none": -1,
            "away": -2,
            "below": -3,
        }[name]

    def _owned(self, member: _Member, name: str) -> Any:
        if name == "none":
            return None
        owned = {"empty": [], "assigned": member.assigned, "former": member.assigned + member.former[:1]}
        return tools.to_request(set(owned[name]))

    async def _commit(self, step: Step) -> Any:
        member = self._members.setdefault(step["member"], _Member())
        known = {"assigned": member.assigned[:1], "former": member.former[:1]}.get(step["partition"])
        topic_id, index = known[0] if known else (next(iter(self._names)), 11)
        request = commit_offsets(
            {(self._names[topic_id], index): 1},
            group_id=self._group_id,
            member_id="" if step["epoch"] == "none" else step["member"],
            generation_id_or_member_epoch=self._epoch(member, step["epoch"]),
        )
        answer = await self._send(request, step["version"])
        return [one.error_code for topic in answer.topics for one in topic.partitions]

    async def _fetch(self, step: Step) -> Any:
        member = self._members.setdefault(step["member"], _Member())
        group = OffsetFetchRequestGroup(
            group_id=self._group_id,
            member_id=None if step["epoch"] == "none" else step["member"],
            member_epoch=self._epoch(member, step["epoch"]),
            topics=[],
        )
        answer = await self._send(OffsetFetchRequest(groups=[group]), 9)
        return answer.groups[0].error_code

    async def _remove(self, step: Step) -> Any:
        member_id, instance_id = step["member"], INSTANCES.get(step["member"])
        identity = {
            "member": MemberIdentity(member_id=member_id, group_instance_id=None),
            "instance": MemberIdentity(member_id="", group_instance_id=instance_id or "k"),
            "both": MemberIdentity(member_id=member_id, group_instance_id=instance_id),
            "wrong": MemberIdentity(member_id="x", group_instance_id=instance_id),
        }[step["by"]]
        answer = await self._send(leave_group(identity, group_id=self._group_id), 5)
        return [answer.error_code, [one.error_code for one in answer.members]]

    async def _describe(self, step: Step) -> Any:
        answer = await self._send(describe.ConsumerGroupDescribeRequest(group_ids=[self._group_id]), 1)
        (group,) = answer.groups
        if group.error_code:
            return [group.error_code]
        members = [
            [
                member.member_id if member.member_id in MEMBERS else "?",
                member.member_epoch,
                member.instance_id,
                member.rack_id,
                sorted(member.subscribed_topic_names),
                member.subscribed_topic_regex or None,
                _counts(member.assignment),
                _counts(member.target_assignment),
                member.member_type,
            ]
            for member in group.members
        ]
        described = [group.group_state, group.group_epoch, group.assignment_epoch, group.assignor_name]
        return [*described, sorted(members, key=str)]


def _counts(assignment: describe.Assignment) -> list[tuple[str, int]]:
    return sorted((topic.topic_name, len(topic.partitions)) for topic in assignment.topic_partitions)


def recorded() -> list[list[Any]]:
    """Kafka's answers to script 0, 1, ..."""
    answers: list[list[Any]] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return answers


async def _record(address: str) -> list[list[Any]]:
    from pykraft.kafka_protocol.messages import cluster
    from pykraft.kafka_protocol.messages import topics as topic_messages
    from pykraft.kafka_protocol.messages.groups import FindCoordinatorRequest
    from pykraft.runtime.address import Address
    from pykraft.testing.processes.wire_client import WireClient

    host, _, port = address.rpartition(":")
    client = WireClient(Address(host, int(port)))

    async def send(request: Request[Any], version: int) -> Any:
        return client.call(request, version)

    topics = [
        topic_messages.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in TOPICS.items()
    ]
    create = topic_messages.CreateTopicsRequest(topics=topics, timeout_ms=10_000)
    client.call(create, 5)
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    asked = [cluster.MetadataRequestTopic(name=name) for name in TOPICS]
    known: list[cluster.MetadataResponseTopic] = []

    def is_ready() -> bool:
        known[:] = client.call(cluster.MetadataRequest(topics=asked), 12).topics
        found = client.call(find, 4).coordinators
        partitions = [partition for topic in known for partition in topic.partitions]
        codes = [one.error_code for one in known]
        codes += [one.error_code for one in partitions]
        return not any(codes) and not found[0].error_code

    wait_until("Kafka leads the topics and coordinates the group", is_ready, 60)
    ids = {str(topic.name): topic.topic_id for topic in known}
    prefix = f"r{time.time_ns()}"
    return [await Player(send, f"{prefix}-{seed}", ids).play(make_script(seed)) for seed in range(SCRIPTS)]


if __name__ == "__main__":
    played = asyncio.run(_record(sys.argv[1]))
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in played)
    ANSWERS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
