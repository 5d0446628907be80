"""Phases of roles: every event in every phase, what may end, and the last phases."""

from __future__ import annotations

import itertools
import logging

import pytest

from app.plans.phases import FIRST, LAST, Event, Phase, Role, can_exit, phase_after, transition

NAMES = {
    Role.LEAD: {
        "planning", "dispatching", "waiting", "merging", "all_merged", "pr_filed", "done", "failed",
    },
    Role.DEV: {
        "spawned", "working", "pr_filed", "under_review", "changes_requested", "approved", "done",
        "failed",
    },
    Role.WORKER: {"spawned", "working", "done", "failed"},
}  # fmt: skip
EVENTS = (
    "plan_began", "child_spawned", "child_ended", "merge_began", "tasks_left", "began", "pr_filed",
    "review_began", "review_refused", "review_accepted", "ended_well", "ended_badly", "no such",
)  # fmt: skip


@pytest.mark.parametrize("role", Role)
def test_each_phase_is_reached_and_none_has_another_name(role: Role) -> None:
    known, open_ = {FIRST[role]}, [Phase(FIRST[role])]
    while open_:
        phase = open_.pop()
        for event in EVENTS:
            after = transition(role, phase, Event(event, "a"))
            if after.name not in known:
                known.add(after.name)
                open_.append(after)
    assert known == NAMES[role]


@pytest.mark.parametrize("role", Role)
def test_nothing_follows_a_last_phase_and_each_other_one_can_end(role: Role) -> None:
    for name, event in itertools.product(NAMES[role], EVENTS):
        after = transition(role, Phase(name), Event(event, "a"))
        if name in LAST:
            assert after == Phase(name)
        elif event.startswith("ended"):
            assert after.name in LAST


def test_event_that_does_not_fit_is_logged_and_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    phase = Phase("planning")
    assert transition(Role.LEAD, phase, Event("child_ended", "a")) == phase
    assert "tl in phase planning ignores the event child_ended" in caplog.text


def test_a_lead_waits_for_its_children_and_the_last_one_makes_it_all_merged() -> None:
    spawned = [Event("plan_began"), Event("child_spawned", "a"), Event("child_spawned", "b")]
    waiting = phase_after(Role.LEAD, spawned)
    assert (waiting.name, set(waiting.children)) == ("waiting", {"a", "b"})
    assert str(waiting) == "waiting (a, b)"
    one = phase_after(Role.LEAD, [*spawned, Event("child_ended", "a")])
    assert (one.name, set(one.children)) == ("waiting", {"b"})
    both = phase_after(Role.LEAD, [*spawned, *(Event("child_ended", id_) for id_ in "ab")])
    assert both == Phase("all_merged")
    merging = phase_after(Role.LEAD, [*spawned, Event("merge_began"), Event("child_ended", "a")])
    assert str(merging) == "merging (b)"


def test_reviews_of_a_dev_are_counted() -> None:
    events = [Event(name) for name in (
        "began", "pr_filed", "review_began", "review_refused", "pr_filed", "review_refused",
        "review_began", "review_accepted",
    )]  # fmt: skip
    phases = [str(phase_after(Role.DEV, events[:count])) for count in range(len(events) + 1)]
    assert phases == [
        "spawned", "working", "pr_filed", "under_review (round 1)", "changes_requested (round 1)",
        "under_review (round 1)", "changes_requested (round 1)", "under_review (round 2)",
        "approved (round 2)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("role", "phase", "verdict"),
    [
        (Role.LEAD, "pr_filed", "block"),
        (Role.LEAD, "waiting", "nudge"),
        (Role.LEAD, "all_merged", "clean"),
        (Role.DEV, "changes_requested", "block"),
        (Role.DEV, "working", "nudge"),
        (Role.DEV, "approved", "clean"),
        (Role.WORKER, "working", "clean"),
    ],
)
def test_a_phase_says_whether_its_session_may_end(role: Role, phase: str, verdict: str) -> None:
    found = can_exit(role, Phase(phase))
    assert found.verdict == verdict
    assert bool(found.text) == (verdict != "clean")
