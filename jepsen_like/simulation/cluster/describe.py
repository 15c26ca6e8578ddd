"""The story of a schedule of whole nodes, in words: records of the metadata log and clients' operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykraft.metadata_log import records as r

if TYPE_CHECKING:
    from pykraft.jepsen_like.faults.history import Event
    from pykraft.jepsen_like.simulation.cluster.model import Model, ModelPartition
    from pykraft.jepsen_like.simulation.cluster.options import WorldOptions
    from pykraft.jepsen_like.simulation.story import Story
    from pykraft.kafka_protocol.ids import Uuid

_OUTCOMES = {"ok": "done", "fail": "refused", "info": ""}
_OFTEN = {
    ("send", "ok"): "writes acknowledged",
    ("send", "fail"): "writes refused",
    ("send", "info"): "writes with an unknown outcome",
    ("poll", "ok"): "reads answered",
    ("offset-for-time", "ok"): "offsets found by time",
    ("commit", "ok"): "offsets committed",
}
_FINAL_OPERATIONS = ("final", "final-start", "final-end", "replica")


def describe_world(options: WorldOptions) -> str:
    """The options that the seed drew, in one line."""
    voters = "in the log" if options.voters_in_log else "in the configuration"
    return (
        f"controllers {_ids(options.controllers)}; brokers {_ids(options.brokers)};"
        f" first voters {_ids(options.first_voters)}, {voters}; session {options.session_ms} ms;"
        f" eligible leader replicas {'on' if options.elr else 'off'};"
        f" unclean elections {'on' if options.unclean else 'off'}"
    )


def describe_record(model: Model, record: r.Record) -> str | None:
    """Describe the change by a record that is about to be applied to ``model``; None: not for the story."""
    match record:
        case r.RegisterBrokerRecord():
            lost = {r.LogsLost.NOTHING: "nothing", r.LogsLost.TAIL: "a tail", r.LogsLost.ALL: "everything"}
            fencing = "fenced" if record.fenced else "unfenced"
            return (
                f"broker {record.broker_id} is registered, {fencing};"
                f" of its logs it may have lost {lost[r.LogsLost(record.logs_lost)]}"
            )
        case r.UnregisterBrokerRecord():
            return f"broker {record.broker_id} is unregistered"
        case r.BrokerRegistrationChangeRecord():
            changes = [] if record.fenced is None else ["fenced" if record.fenced else "unfenced"]
            changes += ["shutting down"] if record.in_controlled_shutdown else []
            return f"broker {record.broker_id} is {' and '.join(changes)}" if changes else None
        case r.TopicRecord():
            return f"topic {record.name} is created"
        case r.RemoveTopicRecord():
            return f"topic {model.topics[record.topic_id].name} is deleted"
        case r.PartitionRecord():
            name = _name(model, record.topic_id, record.partition_id)
            return f"{name} is created: replicas {_ids(record.replicas)}, leader {_leader(record.leader)}"
        case r.PartitionChangeRecord():
            partition = model.topics[record.topic_id].partitions[record.partition_id]
            changes = list(_describe_changes(partition, record))
            name = _name(model, record.topic_id, record.partition_id)
            return f"{name}: {', '.join(changes)}" if changes else None
        case r.ConfigRecord():
            kind = r.ConfigResourceType(record.resource_type).name.lower()
            return f"{record.name} of {kind} {record.resource_name or '(all)'} is now {record.value}"
        case r.FeatureLevelRecord():
            return f"feature {record.name} is at level {record.feature_level}"
    return None


def _describe_changes(old: ModelPartition, change: r.PartitionChangeRecord) -> Iterable[str]:
    if change.leader is not None:
        epoch = old.leader_epoch + 1
        yield f"leader {_leader(old.leader)} -> {_leader(change.leader)} (leader epoch {epoch})"
    for what, before, after in (
        ("ISR", old.isr, change.isr),
        ("eligible", old.elr, change.eligible_leader_replicas),
        ("replicas", old.replicas, change.replicas),
        ("adding", old.adding, change.adding_replicas),
        ("removing", old.removing, change.removing_replicas),
    ):
        if after is not None and after != before:
            yield f"{what} {_ids(before)} -> {_ids(after)}"


def log_history(story: Story, events: Iterable[Event]) -> None:
    """Add the operations of the workload's clients to the story. Frequent operations are counted."""
    for event in events:
        if event.type == "invoke" or event.op in _FINAL_OPERATIONS:
            continue
        often = _OFTEN.get((event.op, event.type))
        if often is not None:
            story.count(event.time_us, "clients", often)
        else:
            story.log(event.time_us, "clients", describe_event(event))


def describe_event(event: Event) -> str:
    """One operation of a client and how it ended."""
    words = [f"{event.process}: {event.op}", event.key, event.value]
    operation = " ".join(word for word in words if word is not None)
    outcome = [word for word in (_OUTCOMES[event.type], event.error) if word]
    return f"{operation}: {', '.join(outcome)}" if outcome else operation


def _name(model: Model, topic_id: Uuid, index: int) -> str:
    return f"{model.topics[topic_id].name}-{index}"


def _leader(leader: int) -> str:
    return "none" if leader == r.NO_LEADER else str(leader)


def _ids(ids: Iterable[int]) -> str:
    return ",".join(str(id) for id in ids) or "none"
