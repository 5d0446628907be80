"""Redacts secrets from outcomes before they are stored, where every reader may see them."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from app.domain.environment.session import SessionEnvironment
from app.domain.outcomes import Outcome, ToolCall
from app.domain.reasons import Reason
from app.redaction import without_keys, without_secrets
from workers.processes.environment import is_plain
from workers.registry.agents import AgentBook
from workers.task.excerpt import redacted_start
from workers.task.task import BodyTask

#: Values shorter than this are not redacted: they occur in ordinary text.
_SHORTEST = 8
#: Characters of a tool call's input and of its result.
_TOOL_LIMIT = 500


def redact_outcome(outcome: Outcome, task: BodyTask) -> Outcome:
    """Redacts every secret of the task in all texts and values of the outcome."""
    secrets = secrets_of_task(task)
    reason = outcome.reason
    return outcome.model_copy(
        update={
            "text": without_keys(outcome.text, secrets),
            "value": without_secrets(outcome.value, secrets),
            "reason": None if reason is None else _reason(reason, secrets),
            "raw": None if outcome.raw is None else without_keys(outcome.raw, secrets),
            "tools": None if outcome.tools is None else _tools(outcome.tools, secrets),
            "prompt": None if outcome.prompt is None else without_keys(outcome.prompt, secrets),
        }
    )


def secrets_of_task(task: BodyTask) -> frozenset[str]:
    """Returns the secret values that no output or outcome of this task may show."""
    held = secrets_of(task.agents, task.inherited, task.shelf.book.secret_names)
    return held | secrets_passed(task.session_environment) | _long(set(task.handed_tokens))


def secrets_passed(given: SessionEnvironment) -> frozenset[str]:
    """The values that a session's submitter passed, and their lines.

    Those of variables such as HOME and LANG are no secrets, and are in many texts.
    """
    values = [value for name, value in given.passed.items() if not is_plain(name)]
    return _long({*values, *(line.strip() for value in values for line in value.splitlines())})


def secrets_of(
    agents: AgentBook, held: Mapping[str, str], more: AbstractSet[str] = frozenset()
) -> frozenset[str]:
    """Returns the values of secret environment variables that agents and tools get."""
    return _long({held.get(name, "") for name in agents.secret_names | more})


def _long(values: set[str]) -> frozenset[str]:
    return frozenset(value for value in values if len(value) >= _SHORTEST)


def _tools(calls: tuple[ToolCall, ...], secrets: frozenset[str]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(
            name=without_keys(call.name, secrets),
            input=redacted_start(call.input, _TOOL_LIMIT, secrets),
            result=redacted_start(call.result, _TOOL_LIMIT, secrets),
            failed=call.failed,
        )
        for call in calls
    )


def _reason(reason: Reason, secrets: frozenset[str]) -> Reason:
    beneath = reason.beneath
    return reason.model_copy(
        update={
            "text": without_keys(reason.text, secrets),
            "beneath": None if beneath is None else _reason(beneath, secrets),
        }
    )
