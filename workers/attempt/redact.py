"""Redacts secrets from outcomes before they are stored, where every reader may see them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from app.domain.environment.session import SessionEnvironment
from app.domain.outcomes import Outcome
from app.redaction import without_keys, without_secrets
from leadhand.models.reasons import Reason
from leadhand.models.views.step import ToolCallView
from workers.processes.environment import is_plain
from workers.registry.agents import SECRET
from workers.task.excerpt import redacted_start
from workers.task.task import BodyTask

#: Values shorter than this are not redacted: they occur in ordinary text.
_SHORTEST = 8
#: Nor are words such as `production` and `us-east`, unless the variable has a secret's name.
_WORD = re.compile(r"[A-Za-z]{1,16}([-_][A-Za-z]{1,16})?")
#: Characters of a tool call's input and of its result.
_TOOL_LIMIT = 500


def redact_outcome(outcome: Outcome, task: BodyTask) -> Outcome:
    """Returns the outcome with credentials and the task's secrets (8+ characters) redacted."""
    if not _has_text(outcome):
        return outcome
    secrets = secrets_of_task(task)
    reason = outcome.reason
    clean: dict[str, object] = {}
    if outcome.text:
        clean["text"] = without_keys(outcome.text, secrets)
    if outcome.value is not None:
        clean["value"] = without_secrets(outcome.value, secrets)
    if reason is not None:
        clean["reason"] = _reason(reason, secrets)
    if outcome.raw is not None:
        clean["raw"] = without_keys(outcome.raw, secrets)
    if outcome.tools is not None:
        clean["tools"] = _tools(outcome.tools, secrets)
    if outcome.prompt is not None:
        clean["prompt"] = without_keys(outcome.prompt, secrets)
    return outcome.model_copy(update=clean) if clean else outcome


def _has_text(outcome: Outcome) -> bool:
    """Whether the outcome has a text or value that may show a secret."""
    values = (outcome.value, outcome.reason, outcome.raw, outcome.tools, outcome.prompt)
    return bool(outcome.text) or values.count(None) < len(values)


def secrets_of_task(task: BodyTask) -> frozenset[str]:
    """Returns the secret values that no output or outcome of this task may show."""
    names = task.agents.secret_names | task.shelf.book.secret_names
    held = secrets_held(names, task.session_environment, task.worker_environment)
    return held | secrets_passed(task.session_environment) | _long(set(task.handed_tokens))


def secrets_passed(given: SessionEnvironment) -> frozenset[str]:
    """Returns the secret values that a session's submitter passed, and their single lines.

    Those of variables such as HOME and LANG are no secrets, and are in many texts. A plain word
    counts as a secret only in a variable with such a name.

    >>> passed = {"MODE": "production", "API_KEY": "abcdefgh", "HOST": "db-7.internal"}
    >>> sorted(secrets_passed(SessionEnvironment(passed)))
    ['abcdefgh', 'db-7.internal']
    """
    if not given.passed:
        return frozenset()
    values = [
        value
        for name, value in given.passed.items()
        if not is_plain(name) and (SECRET.search(name) or not _WORD.fullmatch(value))
    ]
    return _long({*values, *(line.strip() for value in values for line in value.splitlines())})


def secrets_held(
    names: AbstractSet[str], given: SessionEnvironment, worker: Mapping[str, str]
) -> frozenset[str]:
    """Returns the values of these secret variables: the submitting shell's, else the worker's."""
    shell = given.shell
    return _long({(shell[n] if n in shell else worker.get(n)) or "" for n in names})


def _long(values: set[str]) -> frozenset[str]:
    return frozenset(value for value in values if len(value) >= _SHORTEST)


def _tools(calls: tuple[ToolCallView, ...], secrets: frozenset[str]) -> tuple[ToolCallView, ...]:
    return tuple(
        ToolCallView(
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
