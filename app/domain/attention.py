"""Decides whether a person should look at a session, and why (pure)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from app.domain.states import SessionStatus
from leadhand.models.reasons import Reason
from leadhand.models.text import reason_text

NeedKind = Literal["question", "approval", "proposal", "failed", "stuck", "budget", "messages"]

#: The part of a limit from which a person should look.
NEARLY = 0.8


class Question(NamedTuple):
    """A step that waits for the answer of a person."""

    address: str
    text: str
    since_ms: int | None


class Used(NamedTuple):
    """A limit of a session, and how much of it is used."""

    name: str
    used: float
    limit: float


class Facts(NamedTuple):
    """What is known about a session."""

    status: str
    kind: str
    #: Whether another session started it, and learns how it ends.
    has_parent: bool
    reason: Reason | None = None
    ended_ms: int | None = None
    questions: tuple[Question, ...] = ()
    #: Open proposals of its plan.
    proposals: int = 0
    #: Addresses of steps that no worker took for long.
    stuck: tuple[str, ...] = ()
    limits: tuple[Used, ...] = ()
    #: Unread messages that report a failure.
    escalated: int = 0


class Need(NamedTuple):
    """One reason why a person should look."""

    kind: NeedKind
    text: str
    address: str | None = None
    since_ms: int | None = None


def needs_attention(facts: Facts) -> list[Need]:
    """Returns why a person should look at a session, the most urgent first; empty if no reason."""
    if facts.status == SessionStatus.FAILED:
        return [] if facts.has_parent else [_failure(facts)]
    if facts.status != SessionStatus.ACTIVE:
        return []
    return [*_asked(facts), *_stuck(facts), *_limits(facts), *_messages(facts)]


def _failure(facts: Facts) -> Need:
    reason = facts.reason
    text = reason_text(reason.model_dump(mode="json")) if reason is not None else "it failed"
    return Need("failed", text, reason.at if reason else None, facts.ended_ms)


def _asked(facts: Facts) -> Iterator[Need]:
    for one in facts.questions:
        kind: NeedKind = "approval" if facts.kind == "plan" else "question"
        yield Need(kind, one.text, one.address, one.since_ms)
    if facts.proposals:
        many = "s" if facts.proposals > 1 else ""
        yield Need("proposal", f"{facts.proposals} proposed task{many} to accept or refuse")


def _stuck(facts: Facts) -> Iterator[Need]:
    if facts.stuck:
        first, more = facts.stuck[0], len(facts.stuck) - 1
        others = f" and {more} more" if more else ""
        yield Need("stuck", f"no worker takes {first}{others}", first)


def _limits(facts: Facts) -> Iterator[Need]:
    for one in facts.limits:
        if one.limit > 0 and one.used >= NEARLY * one.limit:
            part = int(100 * one.used / one.limit)
            yield Need("budget", f"{part}% of {one.name} is used")


def _messages(facts: Facts) -> Iterator[Need]:
    if facts.escalated and not facts.proposals:
        many = "s report" if facts.escalated > 1 else " reports"
        yield Need("messages", f"{facts.escalated} unread message{many} a failure")
