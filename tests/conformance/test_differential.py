"""The comparison with Apache Kafka, without Apache Kafka: scripts, masks, minimising, known differences."""

import subprocess
import sys
from collections.abc import Iterable
from itertools import chain, repeat

from pykraft.jepsen_like.conformance.compare import Comparison
from pykraft.jepsen_like.conformance.generate import Choice, generate
from pykraft.jepsen_like.conformance.masks import Masks
from pykraft.jepsen_like.conformance.player import Event
from pykraft.jepsen_like.conformance.script import (
    NO_TOPIC_ID,
    Actor,
    Epoch,
    GroupId,
    MemberId,
    Script,
    Step,
    blank,
    fill,
)
from pykraft.kafka_protocol.api_keys import ApiKey, request_class
from pykraft.kafka_protocol.ids import Uuid
from pykraft.kafka_protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    ListedGroup,
    ListGroupsResponse,
)

APIS = (
    *(ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP),
    *(ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS),
    *(ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
)
VERSIONS = {int(key): (request_class(key).MIN_VERSION, request_class(key).MAX_VERSION) for key in APIS}
FIRST, SECOND = (f"actor-0-{character * 36}" for character in "ab")


class Facts:
    def actor(self, number: int) -> Actor:
        return Actor(member_id="" if number else "mine", epoch=number + 4)

    def own_name(self, name: str) -> str:
        return f"run-{name}"

    def topic_name(self, name: str) -> str:
        return name

    def topic_id(self, name: str) -> Uuid:
        return NO_TOPIC_ID


def joined(leader: str, *members: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        throttle_time_ms=3,
        leader=leader,
        member_id=members[0],
        members=[JoinGroupResponseMember(member_id=member) for member in members],
    )


def test_a_seed_is_one_script_and_all_kinds_of_requests_are_drawn() -> None:
    choice = Choice(mixed=True, regex=True)
    scripts = [generate(seed, VERSIONS, choice) for seed in range(60)]
    assert [str(script) for script in scripts] == [
        str(generate(seed, VERSIONS, choice)) for seed in range(60)
    ]
    drawn = {(step.request.API_KEY, step.version) for script in scripts for step in script.steps}
    assert {key for key, _ in drawn} == set(VERSIONS)
    assert {version for key, version in drawn if key == ApiKey.JOIN_GROUP} == set(range(10))


def test_a_seed_is_one_script_in_every_process() -> None:
    script = (
        "from tests.conformance.test_differential import Choice, VERSIONS, generate;"
        "print(*(generate(seed, VERSIONS, Choice()) for seed in range(40)))"
    )
    path = ":".join(sys.path)
    printed = {
        subprocess.check_output(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        )
        for seed in "12"
    }
    assert len(printed) == 1


def test_blanks_are_filled_with_what_was_learned() -> None:
    request = HeartbeatRequest(
        group_id=blank(GroupId("g")), generation_id=blank(Epoch(1, -1)), member_id=blank(MemberId(0))
    )
    filled = fill(request, Facts())
    assert (filled.group_id, filled.generation_id, filled.member_id) == ("run-g", 4, "mine")
    assert fill([blank(MemberId(1, otherwise="named"))], Facts()) == ["named"]


def test_made_up_ids_are_numbered_in_order_of_appearance() -> None:
    masks = Masks(frozenset({"nobody"}), {}, {})
    plain = masks.plain(joined(SECOND, SECOND, FIRST, "nobody"))
    assert (plain["leader"], plain["member_id"]) == ("<actor-0-1>", "<actor-0-1>")
    assert [m["member_id"] for m in plain["members"]] == ["<actor-0-1>", "<actor-0-2>", "nobody"]
    assert "throttle_time_ms" not in plain
    other_run = Masks(frozenset({"nobody"}), {}, {})
    assert other_run.plain(joined(FIRST, FIRST, "nobody", SECOND)) == plain
    assert other_run.plain(joined(SECOND, FIRST)) != masks.plain(joined(SECOND, SECOND))


def test_groups_of_other_runs_are_not_listed() -> None:
    answer = ListGroupsResponse(groups=[ListedGroup(group_id="old-g"), ListedGroup(group_id="run-g")])
    plain = Masks(frozenset(), {"run-g": "g"}, {}).plain(answer)
    assert [group["group_id"] for group in plain["groups"]] == ["g"]


class Leads:
    """A system that answers a heartbeat by the name of the leader, which may be left to chance."""

    def __init__(self, leaders: Iterable[str]) -> None:
        self._leaders = iter(leaders)

    def play(self, script: Script, grace_s: float) -> list[Event]:
        return [Event(0, 0, {"leader": next(self._leaders)})]


def test_a_choice_by_chance_is_no_difference_however_late_it_agrees() -> None:
    script = Script(0, (Step(0, 4, HeartbeatRequest(group_id="g", member_id="m", generation_id=1)),))
    late = Comparison(Leads(repeat("first")), Leads(chain(["second"] * 12, repeat("first"))), ())
    assert late.find(script) is None
    crossed = Comparison(Leads(chain(["a"], repeat("b"))), Leads(chain(["b"], repeat("a"))), ())
    assert crossed.find(script) is None
    never = Comparison(Leads(repeat("first")), Leads(repeat("second")), ())
    difference = never.find(script)
    assert difference is not None
    assert "second" in str(difference)
