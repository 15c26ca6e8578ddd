import pytest

from pykraft.metadata_log.timeline import Timeline


def test_the_newest_value_is_current_and_the_committed_one_stays() -> None:
    timeline = Timeline("a")
    timeline.set(3, "b")
    assert (timeline.current, timeline.committed, timeline.has_pending) == ("b", "a", True)


def test_commit_makes_values_at_or_before_the_offset_final() -> None:
    timeline = Timeline("a")
    timeline.set(3, "b")
    timeline.set(5, "c")
    timeline.set(9, "d")
    assert timeline.commit(7) == "c"
    assert (timeline.current, timeline.committed_offset, timeline.last_offset) == ("d", 5, 9)


def test_revert_returns_to_the_committed_value() -> None:
    timeline = Timeline("a")
    timeline.set(3, "b")
    timeline.set(5, "c")
    timeline.commit(3)
    assert timeline.revert() == "b"
    assert timeline.current == "b"
    assert not timeline.has_pending


def test_offsets_lost_in_a_revert_may_be_written_again() -> None:
    timeline = Timeline("a")
    timeline.set(3, "lost")
    timeline.revert()
    timeline.set(2, "b")
    timeline.commit(2)
    assert timeline.committed == "b"


def test_setting_twice_at_one_offset_replaces_the_value() -> None:
    timeline = Timeline("a")
    timeline.set(3, "b")
    timeline.set(3, "c")
    assert timeline.commit(3) == "c"


def test_offsets_never_go_back() -> None:
    timeline = Timeline("a")
    timeline.set(3, "b")
    with pytest.raises(AssertionError):
        timeline.set(2, "c")
