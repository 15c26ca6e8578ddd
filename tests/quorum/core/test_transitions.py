"""The transition table, and that no other transition is possible."""

import itertools

import pytest

from pykraft.quorum.core import transitions
from pykraft.quorum.core.roles import (
    Candidate,
    ElectionState,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from pykraft.quorum.core.transitions import TRANSITIONS, EpochRule
from tests.quorum.bench import CoreBench

ROLES = (Unattached, Prospective, Candidate, Leader, Follower, Resigned)


def _role(kind: type[Role]) -> Role:
    match kind.__name__:
        case "Unattached":
            return Unattached(0)
        case "Prospective":
            return Prospective(0, 0, {1})
        case "Candidate":
            return Candidate(0, 0, {1})
        case "Leader":
            return Leader(0, 0, {}, {})
        case "Follower":
            return Follower(2, 0, 0)
    return Resigned(0, ())


@pytest.mark.parametrize(
    ("before", "after", "step"),
    list(itertools.product(ROLES, ROLES, (-1, 0, 1))),
    ids=lambda v: getattr(v, "__name__", v),
)
def test_only_transitions_of_the_table_happen_and_with_an_allowed_epoch(
    before: type[Role], after: type[Role], step: int
) -> None:
    b = CoreBench()
    b.state.role, b.state.election = _role(before), ElectionState(5)
    rule = TRANSITIONS.get((before, after))
    allowed = {
        None: (),
        EpochRule.SAME: (0,),
        EpochRule.HIGHER: (1,),
        EpochRule.SAME_OR_HIGHER: (0, 1),
    }[rule]
    if step in allowed:
        transitions._enter(b.state, ElectionState(5 + step), _role(after), 0)
        assert type(b.state.role) is after
    else:
        with pytest.raises(AssertionError):
            transitions._enter(b.state, ElectionState(5 + step), _role(after), 0)
        assert type(b.state.role) is before


def test_the_documentation_names_every_transition() -> None:
    prose = transitions.__doc__ or ""
    paragraphs = {
        line.split("**")[1]: line
        for line in prose.replace("\n  ", " ").splitlines()
        if line.startswith("- **")
    }
    for before, after in TRANSITIONS:
        assert f"→ {after.__name__}" in paragraphs[before.__name__], f"{before.__name__} → {after.__name__}"


@pytest.mark.parametrize("role", [Prospective, Candidate, Leader, Resigned])
def test_observer_never_votes_or_leads(role: type[Role]) -> None:
    b = CoreBench(node_id=4)
    with pytest.raises(AssertionError):
        transitions._enter(b.state, ElectionState(9), _role(role), 0)


def test_vote_and_leader_of_an_epoch_cannot_change() -> None:
    b = CoreBench()
    b.state.election = ElectionState(5, None, b.keys[2])
    with pytest.raises(AssertionError, match="vote"):
        transitions._enter(b.state, ElectionState(5, None, b.keys[3]), Unattached(0), 0)
    b.state.election = ElectionState(5, 2)
    with pytest.raises(AssertionError, match="leader"):
        transitions._enter(b.state, ElectionState(5, 3), Follower(3, 0, 0), 0)
