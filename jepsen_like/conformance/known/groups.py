"""The differences from Apache Kafka 4.3 that are meant, each with its reason."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pykraft.jepsen_like.conformance.answer_pairs import (
    History,
)
from pykraft.jepsen_like.conformance.known.alone import (
    epoch_without_member,
    full_group_goes_on,
    invisible_group,
    joins_again,
    negative_timeout,
    no_id_yet,
    other_generation,
    pending_with_instance,
    trace_of_a_join,
    trace_of_offsets,
)
from pykraft.jepsen_like.conformance.known.migration import (
    broken_off_by_an_upgrade,
    emptied_by_a_refusal,
    given_up_instance,
    led_by_the_last_to_come_back,
    one_unreadable_subscription,
    refused_upgrade,
    refused_with_its_id,
    which_partitions,
)
from pykraft.jepsen_like.conformance.player import Answer
from pykraft.jepsen_like.conformance.script import Step
from pykraft.kafka_protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Known:
    """``explains(earlier, step, ours, kafka)``: whether different answers to ``step`` are this difference.

    ``earlier`` are the steps and our answers until then. An answer that is missing is :data:`NO_ANSWER_YET`.
    ``ends_script``: from then on the two are in different states, and nothing more can be compared.
    """

    name: str
    reason: str
    explains: Callable[[History, Step, Answer, Answer], bool]
    ends_script: bool = False


POINTLESS: Final = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID)
UNANSWERED: Final = Known(
    "a waiting request that has become pointless",
    "a JoinGroup or SyncGroup that waits is answered REBALANCE_IN_PROGRESS when its member sends another, and"
    " UNKNOWN_MEMBER_ID when its member leaves; Kafka leaves it without an answer",
    lambda *_: False,  # one of the two answers is missing, so it is looked for apart
)


KNOWN: tuple[Known, ...] = (
    UNANSWERED,
    Known(
        "a member that is refused because the group is full",
        "the others, who waited for it to join, go on at once; in Kafka they wait for the rebalance timeout",
        full_group_goes_on,
        ends_script=True,
    ),
    Known(
        "a static member without a member id",
        "librdkafka sends such requests after its session has expired, and would stop at FENCED_INSTANCE_ID:"
        " it is told UNKNOWN_MEMBER_ID and joins again",
        no_id_yet,
    ),
    Known(
        "a static member that joins again without having left",
        "it is answered, since the answer to its first request may be lost, at which librdkafka would stop;"
        " Kafka answers UNRELEASED_INSTANCE_ID until its session is over. As with dynamic members, two"
        " processes with the same member id are one member",
        joins_again,
        ends_script=True,
    ),
    Known(
        "a group that began with a commit of which nothing was taken",
        "it is described and listed once it has members or offsets; in Kafka it may stay hidden until its"
        " next record",
        invisible_group,
        ends_script=True,
    ),
    Known(
        "OffsetFetch with a member epoch but without a member id",
        "UNKNOWN_MEMBER_ID; Kafka answers UNKNOWN_SERVER_ERROR",
        epoch_without_member,
    ),
    Known(
        "an id that was given to a dynamic member, used by a static one",
        "UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID; Kafka answers UNKNOWN_SERVER_ERROR",
        pending_with_instance,
    ),
    Known(
        "a classic group whose members join with another subscription",
        "OffsetDelete spares the topics that they name now; Kafka spares those of the last generation",
        other_generation,
        ends_script=True,
    ),
    Known(
        "a negative rebalance timeout",
        "INVALID_REQUEST; Kafka takes any but -1",
        negative_timeout,
        ends_script=True,
    ),
    Known(
        "the id of a member that a consumer group refuses",
        "JoinGroup is answered with the id that it was sent with; Kafka leaves it out if the group is one of"
        " the consumer protocol",
        refused_with_its_id,
    ),
    Known(
        "a classic group that cannot become a consumer group",
        "its members go on as if nothing had been asked; Kafka has sent those away that wait for each other",
        refused_upgrade,
        ends_script=True,
    ),
    Known(
        "an instance id whose member has joined again with another",
        "is unknown; Kafka goes on to take it for that member's",
        given_up_instance,
        ends_script=True,
    ),
    Known(
        "an upgrade amid a rebalance, by a member with the subscription that it had",
        "the group epoch increases, so that the members that have no partitions yet get some; in Kafka they"
        " get none until the next change",
        broken_off_by_an_upgrade,
        ends_script=True,
    ),
    Known(
        "a downgrade by a static member that replaces the last one of the consumer protocol",
        "that member leads the group, from JoinGroup v9 on; before, the group rebalances. In Kafka no member"
        " knows that it leads, and nobody notices new partitions until the next rebalance",
        led_by_the_last_to_come_back,
        ends_script=True,
    ),
    Known(
        "a subscription that cannot be read, beside one that can",
        "a classic member that joins a consumer group with it is refused, because the group could not become"
        " a classic one again with every protocol; Kafka reads only the first",
        one_unreadable_subscription,
        ends_script=True,
    ),
    Known(
        "a JoinGroup that an empty consumer group refuses",
        "changes nothing; in Kafka the group is a classic one from then on, and its epochs begin again",
        emptied_by_a_refusal,
        ends_script=True,
    ),
    Known(
        "which partitions members with different subscriptions get",
        "the assignors are free to choose, also which of the members gets one more",
        which_partitions,
        ends_script=True,
    ),
    Known(
        "a group that nobody has joined yet",
        "a JoinGroup that is refused, or only given an id, and a commit of which nothing is taken, leave no"
        " group behind; in Kafka they leave an empty one",
        trace_of_a_join,
    ),
    Known(
        "a group whose last offset is deleted",
        "nobody has joined it, so it ends; Kafka keeps it, without anything in it, until a restart",
        trace_of_offsets,
    ),
)
