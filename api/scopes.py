"""What each route needs: one table, and whatever is not in it is the administrator's only."""

from __future__ import annotations

from collections.abc import Mapping

from app.tokens import Scope

#: Answered to anybody, without a token: they tell nothing of what runs.
PUBLIC = frozenset({"health.alive", "health.ready", "description.document", "description.page"})

#: Endpoint -> the scope that a token must have for it.
NEEDED: Mapping[str, Scope] = {
    "sessions.submit": Scope.SUBMIT,  # and exec:free for commands and callables of one's own
    "sessions.listed": Scope.READ,
    "sessions.one": Scope.READ,
    "sessions.result": Scope.READ,
    "sessions.steps": Scope.READ,
    "sessions.ledger": Scope.READ,
    "sessions.receipt": Scope.READ,
    "sessions.transcript": Scope.READ,
    "events.of_session": Scope.READ,
    "sessions.stop": Scope.CONTROL,
    "sessions.resume": Scope.CONTROL,
    "sessions.exit": Scope.CONTROL,
    "sessions.abort": Scope.CONTROL,
    "sessions.rehome": Scope.CONTROL,
    "sessions.answers": Scope.CONTROL,
    "flows.listed": Scope.READ,
    "flows.one": Scope.READ,
    "flows.run": Scope.SUBMIT,  # what its file runs is the operator's word
    "flows.validate": Scope.SUBMIT,
    "sessions.delete": Scope.CONTROL,
    "sessions.bulk": Scope.CONTROL,
    "sessions.explain": Scope.READ,
    "sessions.diffs": Scope.READ,
    "sessions.export": Scope.READ,
    "workers.listed": Scope.READ,
    "agents.listed": Scope.READ,
    "tools.listed": Scope.READ,
    "fleet.queues": Scope.READ,
    "fleet.fleet": Scope.READ,
    "fleet.metrics": Scope.READ,
    "limits.listed": Scope.READ,
    "limits.one": Scope.READ,
    "limits.put": Scope.ADMIN,
    "limits.delete": Scope.ADMIN,
    "fleet.fsck": Scope.ADMIN,
    "tokens.create": Scope.ADMIN,
    "tokens.listed": Scope.ADMIN,
    "tokens.revoke": Scope.ADMIN,
}

#: What a running body may do with its own session, by the scopes of its capability token.
BODY_NEEDED: Mapping[str, str] = {
    "sessions.one": "read",
    "sessions.result": "read",
    "sessions.steps": "read",
    "sessions.ledger": "read",
    "sessions.explain": "read",
    "events.of_session": "read",
    "sessions.exit": "exit",
}


def scope_of(endpoint: str) -> Scope:
    """What a token needs for a route."""
    return NEEDED.get(endpoint, Scope.ADMIN)
