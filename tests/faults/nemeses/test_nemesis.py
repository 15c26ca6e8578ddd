"""The plan of a run is a function of its seed, and always has the faults that a valid run needs."""

from itertools import pairwise
from pathlib import Path

import pytest

from pykraft.jepsen_like.faults.checkers.counting import MINIMUM_FAULTS
from pykraft.jepsen_like.faults.nemeses.choice import KINDS, PRESETS, choose
from pykraft.jepsen_like.faults.nemeses.fault import Intensity, Target, read_plan
from pykraft.jepsen_like.faults.nemeses.kinds.processes import LONGEST_PAUSE_S
from pykraft.jepsen_like.faults.nemeses.planning import QUIET_END_S, QUIET_START_S, plan_faults
from tests.seeds import seeds

SIGNALS = choose("signals")


def test_same_seed_gives_the_same_plan() -> None:
    assert plan_faults(7, 60, SIGNALS) == plan_faults(7, 60, SIGNALS)
    assert plan_faults(7, 60, SIGNALS) != plan_faults(8, 60, SIGNALS)


@pytest.mark.parametrize("seed", seeds(200, checked=50))
def test_minute_holds_enough_faults_of_the_right_kinds(seed: int) -> None:
    faults = plan_faults(seed, 60, SIGNALS).faults
    assert len(faults) >= MINIMUM_FAULTS
    kills = [fault for fault in faults if fault.kind == "kill"]
    assert any(fault.target is Target.CONTROLLER for fault in kills)
    assert sum(fault.target is Target.BUSIEST for fault in kills) >= 2
    assert all(1 <= fault.lasts_s <= LONGEST_PAUSE_S for fault in faults if fault.kind == "pause")
    assert all(QUIET_START_S <= fault.at_s <= 60 - QUIET_END_S - fault.lasts_s for fault in faults)


def test_phases_of_all_intensities_occur_and_few_faults_do_not_overlap() -> None:
    seen = set()
    for seed in range(50):
        plan = plan_faults(seed, 120, choose("mixed"))
        seen |= {phase.intensity for phase in plan.phases}
        ends = [*(phase.start_s for phase in plan.phases[1:]), 120.0]
        for phase, end_s in zip(plan.phases, ends, strict=True):
            inside = [fault for fault in plan.faults if phase.start_s <= fault.at_s < end_s]
            if phase.intensity is Intensity.NONE:
                assert not inside
            elif phase.intensity is Intensity.FEW:
                for one, following in pairwise(inside):
                    assert one.at_s + one.lasts_s <= following.at_s
    assert seen == set(Intensity)


def test_kinds_are_chosen_by_name_family_and_preset() -> None:
    assert [kind.name for kind in choose("kill, pause")] == ["kill", "pause"]
    assert {kind.name for kind in choose("process")} == {
        k.name for k in KINDS.values() if k.family == "process"
    }
    assert not choose("none")
    assert {kind.name for kind in choose("mixed,-kill")} == set(PRESETS["mixed"]) - {"kill"}
    with pytest.raises(ValueError, match="no nemesis 'kil'"):
        choose("kil")


def test_plan_survives_its_file(tmp_path: Path) -> None:
    plan = plan_faults(3, 60, choose("mixed"))
    plan.write(tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(ValueError, match="is no plan"):
        read_plan(tmp_path / "bad.json")
