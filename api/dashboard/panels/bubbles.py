"""Decides what a bubble of the transcript shows beside its text (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from api.dashboard.panels.step_buttons import RESTS, Button
from app.domain.records import StepRecord
from leadhand.models.views import SessionView, TranscriptEntry


class Bubble(NamedTuple):
    """The status of the attempt that an entry belongs to, and what a person can do from there."""

    #: Empty if nothing is known of the step.
    status: str = ""
    #: Whether the last resume of the session continued after this step.
    resumed_here: bool = False
    #: Resumes the session after this step; None where it cannot.
    resume: Button | None = None


def bubble_of(view: SessionView, steps: Mapping[str, StepRecord], entry: TranscriptEntry) -> Bubble:
    """Returns the step state and resume button shown beside an answer; empty for other entries."""
    step = steps.get(entry.address)
    if step is None or entry.role not in ("assistant", "human"):
        return Bubble()
    if entry.attempt and entry.attempt < step.attempt:
        return Bubble("retried")
    resume = None
    if view.status in RESTS and step.state == "succeeded":
        resume = Button("resume", "Resume after", {"after": entry.address})
    return Bubble(step.state, view.resumed_after == entry.address, resume)


def resumes_at(view: SessionView, live: Sequence[str]) -> list[str]:
    """Returns the addresses of the steps where a stopped or failed session continues; or empty."""
    if view.status == "stopped":
        return sorted(live)
    if view.status == "failed" and view.reason is not None:
        found = [link.at for link in view.reason.chain() if link.at]
        return found[-1:]
    return []
