"""Counters by topic: bounded, and never less in total."""

from pykraft.broker.replicas.traffic import OTHER_TOPICS, TrafficTable


def test_topics_above_the_limit_are_counted_together() -> None:
    table = TrafficTable(max_topics=2)
    for number in range(4):
        table.of(f"t{number}").bytes_in += 10
    assert {topic: traffic.bytes_in for topic, traffic in table} == {"t0": 10, "t1": 10, OTHER_TOPICS: 20}
    assert table.total().bytes_in == 40


def test_total_keeps_what_a_forgotten_topic_had_and_its_place_is_free() -> None:
    table = TrafficTable(max_topics=1)
    table.of("old").messages_in += 3
    table.forget("old")
    table.forget("unknown")
    table.of("new").messages_in += 4
    assert [topic for topic, _ in table] == ["new", OTHER_TOPICS]
    assert table.total().messages_in == 7
