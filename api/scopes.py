"""The scope that each route requires; routes outside the table require `admin`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from app.security.api_tokens import Scope

#: Routes without a token; they reveal nothing about sessions.
PUBLIC = frozenset({"health.alive", "health.ready", "description.document", "description.page"})

#: Endpoint -> the required scope.
NEEDED: Mapping[str, Scope] = {
    "sessions.submit": Scope.SUBMIT,  # and exec:free for documents with commands or callables
    "sessions.listed": Scope.READ,
    "sessions.one": Scope.READ,
    "sessions.result": Scope.READ,
    "sessions.steps": Scope.READ,
    "sessions.ledger": Scope.READ,
    "sessions.receipt": Scope.READ,
    "sessions.transcript": Scope.READ,
    "sessions.output": Scope.READ,
    "artifacts.listed": Scope.READ,
    "drawings.one": Scope.READ,
    "artifacts.read": Scope.READ,
    "artifacts.put": Scope.ADMIN,  # workers upload with the token of their attempt
    "events.of_session": Scope.READ,
    "sessions.stop": Scope.CONTROL,
    "sessions.resume": Scope.CONTROL,
    "sessions.retry": Scope.CONTROL,
    "sessions.skip": Scope.CONTROL,
    "sessions.fork": Scope.SUBMIT,
    "sessions.rerun": Scope.SUBMIT,
    "sessions.exit": Scope.CONTROL,
    "sessions.abort": Scope.CONTROL,
    "sessions.rehome": Scope.CONTROL,
    "sessions.annotate": Scope.CONTROL,
    "sessions.answers": Scope.CONTROL,
    "inbox.listed": Scope.READ,
    "inbox.take": Scope.CONTROL,
    "inbox.notify_parent": Scope.CONTROL,
    "inbox.hint": Scope.CONTROL,
    "locks.listed": Scope.READ,
    "locks.acquire": Scope.CONTROL,
    "locks.renew": Scope.CONTROL,
    "locks.release": Scope.CONTROL,
    "kv.listed": Scope.READ,
    "kv.one": Scope.READ,
    "kv.put": Scope.CONTROL,
    "kv.delete": Scope.CONTROL,
    "work.claim": Scope.CONTROL,  # or the work token of the session
    "work.beat": Scope.CONTROL,
    "work.settle": Scope.CONTROL,
    "guards.listed": Scope.READ,
    "guards.stop": Scope.SUBMIT,
    "guards.event": Scope.SUBMIT,
    "guards.reset": Scope.CONTROL,
    "questions.listed": Scope.READ,
    "attention.listed": Scope.READ,
    "attention.changes": Scope.READ,
    "sign_in.link": Scope.READ,  # the browser can do no more than the token
    "plans.one": Scope.READ,
    "plans.tasks": Scope.READ,
    "plans.task": Scope.READ,
    "plans.own_task": Scope.READ,
    "plans.edit": Scope.CONTROL,
    "plans.approve": Scope.CONTROL,
    "plans.changes": Scope.CONTROL,
    "plans.decide": Scope.CONTROL,
    "plans.report": Scope.CONTROL,
    "worktrees.all": Scope.READ,
    "worktrees.audit": Scope.ADMIN,
    "worktrees.listed": Scope.READ,
    "worktrees.clean": Scope.CONTROL,
    "worktrees.merges": Scope.READ,
    "worktrees.apply_plan": Scope.CONTROL,
    "worktrees.diff": Scope.CONTROL,
    "worktrees.apply": Scope.CONTROL,
    "stacks.listed": Scope.READ,
    "stacks.one": Scope.READ,
    "stacks.workflows": Scope.READ,
    "stacks.workflow": Scope.READ,
    "stacks.outputs": Scope.READ,
    "stacks.start": Scope.CONTROL,
    "stacks.step_start": Scope.CONTROL,
    "stacks.step_complete": Scope.CONTROL,
    "stacks.quality_attempt": Scope.CONTROL,
    "stacks.advance": Scope.CONTROL,
    "stacks.complete": Scope.CONTROL,
    "stacks.abort": Scope.CONTROL,
    "stacks.load": Scope.CONTROL,
    "stacks.delete": Scope.CONTROL,
    "stacks.move": Scope.CONTROL,
    "flows.listed": Scope.READ,
    "flows.one": Scope.READ,
    "flows.run": Scope.SUBMIT,  # the operator wrote the commands in its file
    "flows.validate": Scope.SUBMIT,
    "sessions.delete": Scope.CONTROL,
    "sessions.batch": Scope.SUBMIT,
    "sessions.bulk": Scope.CONTROL,
    "sessions.explain": Scope.READ,
    "sessions.diffs": Scope.READ,
    "sessions.tree": Scope.READ,
    "sessions.export": Scope.READ,
    "workers.listed": Scope.READ,
    "agents.listed": Scope.READ,
    "tools.listed": Scope.READ,
    "fleet.queues": Scope.READ,
    "fleet.fleet": Scope.READ,
    "fleet.metrics": Scope.READ,
    "statistics.of_period": Scope.READ,
    "limits.listed": Scope.READ,
    "limits.one": Scope.READ,
    "limits.put": Scope.ADMIN,
    "limits.delete": Scope.ADMIN,
    "fleet.fsck": Scope.ADMIN,
    "store.show": Scope.READ,
    "store.accept": Scope.ADMIN,
    "tokens.create": Scope.ADMIN,
    "tokens.listed": Scope.ADMIN,
    "tokens.revoke": Scope.ADMIN,
}


class BodyRight(NamedTuple):
    """What a body may do at a route: the scope of its step token, and for which sessions."""

    scope: str
    #: Its own session, those that it started and all below them, both, or a call that is about
    #: no session.
    reach: Literal["own", "below", "tree", "any"] = "tree"


_READS = BodyRight("read")
_CONTROLS = BodyRight("spawn", "below")
_SHARES = BodyRight("share", "own")
#: The token for the local steps of a session is for that session alone.
_WORKS = BodyRight("work", "own")
#: A stack belongs to a folder and not to a session.
_READS_STACKS = BodyRight("read", "any")
_CHANGES_STACKS = BodyRight("share", "any")

#: Route -> what a body may do there; it gets no others.
BODY_NEEDED: Mapping[str, BodyRight] = {
    "sessions.one": _READS,
    "sessions.result": _READS,
    "sessions.steps": _READS,
    "sessions.ledger": _READS,
    "sessions.explain": _READS,
    "sessions.receipt": _READS,
    "sessions.transcript": _READS,
    "sessions.output": _READS,
    "artifacts.listed": _READS,
    "drawings.one": _READS,
    "artifacts.read": _READS,
    "artifacts.put": BodyRight("artifacts", "own"),  # tokens of workers; bodies have none
    "sessions.diffs": _READS,
    "sessions.tree": _READS,
    "events.of_session": _READS,
    "sessions.listed": _READS,  # with the parent named
    "questions.listed": _READS,  # with the session named
    "agents.listed": BodyRight("spawn", "any"),
    "sessions.submit": BodyRight("spawn", "any"),  # a child of its own session
    "flows.run": BodyRight("spawn", "any"),
    "sessions.exit": BodyRight("exit", "own"),
    "sessions.stop": _CONTROLS,
    "sessions.resume": _CONTROLS,
    "sessions.retry": _CONTROLS,
    "sessions.skip": _CONTROLS,
    "sessions.abort": _CONTROLS,
    "inbox.listed": BodyRight("inbox", "own"),
    "inbox.take": BodyRight("inbox", "own"),
    "inbox.notify_parent": BodyRight("report", "own"),
    "locks.listed": BodyRight("read", "own"),
    "locks.acquire": _SHARES,  # for its attempt
    "locks.renew": _SHARES,
    "locks.release": _SHARES,
    "kv.listed": BodyRight("read", "own"),
    "kv.one": BodyRight("read", "own"),
    "kv.put": _SHARES,
    "kv.delete": _SHARES,
    "work.claim": _WORKS,
    "work.beat": _WORKS,
    "work.settle": _WORKS,
    "guards.listed": BodyRight("read", "any"),  # those of its own session
    "guards.stop": BodyRight("share", "any"),
    "guards.event": BodyRight("share", "any"),
    "plans.own_task": BodyRight("read", "own"),
    "plans.report": BodyRight("report", "own"),
    "plans.one": _READS,
    "plans.tasks": _READS,
    "plans.task": _READS,
    "worktrees.listed": _READS,
    "worktrees.merges": _READS,
    "stacks.one": _READS_STACKS,
    "stacks.workflows": _READS_STACKS,
    "stacks.workflow": _READS_STACKS,
    "stacks.outputs": _READS_STACKS,
    "stacks.start": _CHANGES_STACKS,
    "stacks.step_start": _CHANGES_STACKS,
    "stacks.step_complete": _CHANGES_STACKS,
    "stacks.quality_attempt": _CHANGES_STACKS,
    "stacks.advance": _CHANGES_STACKS,
    "stacks.complete": _CHANGES_STACKS,
    "stacks.abort": _CHANGES_STACKS,
    "stacks.load": _CHANGES_STACKS,
}

#: Routes without a session in their path -> the parameter of the query that names it.
SESSION_IN_QUERY: Mapping[str, str] = {
    "sessions.listed": "parent",
    "questions.listed": "session",
}


def scope_of(endpoint: str) -> Scope:
    """Returns the scope (permission) that a REST route requires; `admin` if none is defined."""
    return NEEDED.get(endpoint, Scope.ADMIN)
