"""Asks a team lead to divide a request into tasks, and validates the answer."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from app.domain.outcomes import Outcome
from app.domain.reasons import ReasonCode
from leadhand.models.documents import Doer
from leadhand.models.plans import PlannedTask, check_checkers, check_tasks
from workers.agents.ask import agent_named, ask
from workers.processes.exit_outcome import failed_outcome
from workers.prompts.build import prompt_with_messages
from workers.prompts.plan import draft_prompt
from workers.task.task import BodyTask

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
    doer: Doer | None = None
    model: str | None = None


def draft_tasks(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Return the tasks of a plan as the outcome's value, `{"tasks": [...]}`.

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
        outcome = _drafted(parse_tasks(answer.text, inputs.checkers))
    except ValueError as error:
        text = f"the answer is no plan: {error}"
        outcome = failed_outcome(ReasonCode.INVALID_ANSWER, text, retryable=True)
    return answer.add_usage(outcome)


def _prompt(inputs: DraftInputs) -> str:
    return draft_prompt(
        request=inputs.request,
        analysis=inputs.analysis or "",
        checkers=inputs.checkers,
        current=inputs.current if inputs.change is not None else None,
        change=inputs.change or "",
    )


def parse_tasks(text: str, checkers: tuple[str, ...]) -> tuple[PlannedTask, ...]:
    """The tasks in an agent's answer. Raises ValueError that says what is wrong.

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
            first = error.errors(include_url=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            why = f"tasks.{where} is {str(first['input'])[:100]!r}: {first['msg']}"
        except ValueError as error:
            why = str(error)
    raise ValueError(why)


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
