"""Asks a team lead to divide a request into tasks, and validates the answer."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from app.core.outcomes import Outcome
from leadhand.models.documents import Doer
from leadhand.models.plans import (
    AddTask,
    ChangeTask,
    PlannedTask,
    PlanOperation,
    check_checkers,
    check_tasks,
)
from leadhand.models.verdicts import ReasonCode
from workers.agents.ask import agent_named, ask
from workers.processes.exit_outcome import failed_outcome
from workers.prompts import draft_prompt, prompt_with_messages, replan_prompt
from workers.task import BodyTask

_TASKS = TypeAdapter(tuple[PlannedTask, ...])
_FENCE = re.compile(r"```[ \t]*(?:json)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
#: The most places at which JSON is looked for between prose.
_PLACES = 100


class DraftInputs(BaseModel):
    """The inputs of a draft."""

    request: str
    analysis: str | None = None
    #: Given tasks, as JSON text: the first draft.
    given: str | None = None
    #: The names of the checkers that tasks may choose.
    checkers: tuple[str, ...] = ()
    #: What a person wants changed in the last draft.
    change: str | None = None
    #: The tasks as they are now, with the edits of people.
    current: list[JsonValue] | None = None
    #: As JSON text, the task that failed for good, for which another way is wanted.
    failed: str | None = None
    doer: Doer | None = None
    model: str | None = None


class Replan(BaseModel):
    """The answer of a team lead that is asked about a failed task."""

    operations: tuple[PlanOperation, ...] = Field(default=(), max_length=1000)
    why: str = ""


def draft_tasks(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Return a plan's tasks as an outcome: given ones, or those a team lead agent drafts or edits.

    Given tasks are the first draft. An answer that is no valid list of tasks fails the attempt,
    and the next one gets the reason.
    """
    inputs = DraftInputs.model_validate(task.inputs)
    if inputs.given is not None and inputs.change is None:
        return _drafted(_TASKS.validate_json(inputs.given))
    answer = ask(
        task,
        agent_named(task, inputs.doer.agent if inputs.doer else None),
        prompt_with_messages(_prompt(inputs), task.messages),
        role="checker",
        model=inputs.model,
        timeout_s=task.timeout_s,
        cancel=cancel,
    )
    if answer.failure is not None:
        return answer.add_usage(answer.mark_retryable(answer.failure))
    try:
        if inputs.failed is not None:
            outcome = _replanned(parse_replan(answer.text, inputs))
        else:
            outcome = _drafted(parse_tasks(answer.text, inputs.checkers))
    except ValueError as error:
        text = f"the answer is no plan: {error}"
        outcome = failed_outcome(ReasonCode.INVALID_ANSWER, text, retryable=True)
    return answer.add_usage(outcome)


def _prompt(inputs: DraftInputs) -> str:
    if inputs.failed is not None:
        return replan_prompt(
            request=inputs.request,
            failed=json.loads(inputs.failed),
            current=inputs.current or [],
            checkers=inputs.checkers,
        )
    return draft_prompt(
        request=inputs.request,
        analysis=inputs.analysis or "",
        checkers=inputs.checkers,
        current=inputs.current if inputs.change is not None else None,
        change=inputs.change or "",
    )


def parse_tasks(text: str, checkers: tuple[str, ...]) -> tuple[PlannedTask, ...]:
    """Parses the tasks in an agent's answer. Raises ValueError with what is wrong.

    The JSON may be the whole text, a fenced block, or stand between prose.

    >>> [one.id for one in parse_tasks('Sure: {"tasks": [{"id": "a", "title": "A"}]}.', ())]
    ['a']
    """
    why = "it has no JSON with a list of tasks"
    for value in _candidates(text):
        found = value.get("tasks") if isinstance(value, dict) else value
        if not isinstance(found, list) or not found:
            continue
        try:
            tasks = _TASKS.validate_python(found)
            check_tasks(tasks)
            for task in tasks:
                check_checkers(task.id, task.checkers, checkers)
            return tasks
        except ValidationError as error:
            why = _first_error("tasks.", error)
        except ValueError as error:
            why = str(error)
    raise ValueError(why)


def parse_replan(text: str, inputs: DraftInputs) -> Replan:
    """Parses a plan's edit in an agent's answer and checks it by `inputs`. Raises ValueError."""
    why = 'it has no JSON with "operations"'
    for value in _candidates(text):
        if not isinstance(value, dict) or "operations" not in value:
            continue
        try:
            found = Replan.model_validate(value)
            _check_operations(found, inputs)
            return found
        except ValidationError as error:
            why = _first_error("", error)
        except ValueError as error:
            why = str(error)
    raise ValueError(why)


def _check_operations(replan: Replan, inputs: DraftInputs) -> None:
    """Raises ValueError for a task or checker that the plan does not have."""
    known = {one["id"] for one in inputs.current or () if isinstance(one, dict)}
    for operation in replan.operations:
        if isinstance(operation, AddTask):
            check_checkers(operation.task.id, operation.task.checkers, inputs.checkers)
            known.add(operation.task.id)
            continue
        if operation.id not in known:
            raise ValueError(f"the plan has no task {operation.id!r}")
        if isinstance(operation, ChangeTask):
            check_checkers(operation.id, operation.checkers, inputs.checkers)


def _first_error(prefix: str, error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{prefix}{where} is {str(first['input'])[:100]!r}: {first['msg']}"


def _candidates(text: str) -> Iterator[JsonValue]:
    for piece in (text, *(match.group(1) for match in _FENCE.finditer(text))):
        try:
            yield json.loads(piece)
        except (ValueError, RecursionError):
            continue
    decoder, at = json.JSONDecoder(), 0
    for _ in range(_PLACES):
        found = re.compile(r"[\[{]").search(text, at)
        if found is None:
            return
        try:
            value, at = decoder.raw_decode(text, found.start())
            yield value
        except (ValueError, RecursionError):
            at = found.start() + 1


def _drafted(tasks: tuple[PlannedTask, ...]) -> Outcome:
    dumped: list[JsonValue] = [one.model_dump(mode="json", exclude_defaults=True) for one in tasks]
    lines = "\n".join(f"- {one.id}: {one.title}" for one in tasks)
    count = "1 task" if len(tasks) == 1 else f"{len(tasks)} tasks"
    return Outcome(word="succeeded", text=f"{count}\n{lines}", value={"tasks": dumped})


def _replanned(replan: Replan) -> Outcome:
    value = replan.model_dump(mode="json", exclude_unset=True)
    count = len(replan.operations)
    text = "1 change of the plan" if count == 1 else f"{count} changes of the plan"
    return Outcome(word="succeeded", text=f"{text}\n{replan.why}".rstrip(), value=value)
