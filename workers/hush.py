"""Keeps secrets out of outcomes: what agents are handed must not come back for all to read."""

from __future__ import annotations

from collections.abc import Mapping

from app.outcomes import Outcome
from app.reasons import Reason
from app.redaction import without_keys, without_secrets
from workers.agents.book import AgentBook
from workers.body_task import BodyTask

#: A shorter value is no secret worth the name, and stands in every text.
_SHORTEST = 8


def hushed(outcome: Outcome, task: BodyTask) -> Outcome:
    """The outcome without what must stay secret, wherever in it that stands."""
    secrets = secrets_of(task.agents, task.inherited) | _long({task.handed_token})
    reason = outcome.reason
    return outcome.model_copy(
        update={
            "text": without_keys(outcome.text, secrets),
            "value": without_secrets(outcome.value, secrets),
            "reason": None if reason is None else _reason(reason, secrets),
            "prompt": None if outcome.prompt is None else without_keys(outcome.prompt, secrets),
        }
    )


def secrets_of(agents: AgentBook, held: Mapping[str, str]) -> frozenset[str]:
    """The values of the secret variables that any agent of this worker is handed."""
    return _long({held.get(name, "") for name in agents.secret_names})


def _long(values: set[str]) -> frozenset[str]:
    return frozenset(value for value in values if len(value) >= _SHORTEST)


def _reason(reason: Reason, secrets: frozenset[str]) -> Reason:
    beneath = reason.beneath
    return reason.model_copy(
        update={
            "text": without_keys(reason.text, secrets),
            "beneath": None if beneath is None else _reason(beneath, secrets),
        }
    )
