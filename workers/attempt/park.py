"""Parks steps that wait without a worker: for a person, a time, a child session or a plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, cast

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.ids import SessionRef
from app.domain.outcomes import Outcome, deleted_child
from app.domain.plans import record_of
from app.domain.program import Action
from app.engine import Engine
from app.errors import InvalidDocument, ParentRests
from app.operations.attempts import Work
from app.redaction import without_secrets
from app.security.command_permission import commands_from_outcomes
from leadhand.errors import LeadhandError, StoreAway
from leadhand.flows.documents import AnyDocument
from leadhand.graphs.called_sessions import with_texts
from leadhand.models.forms import parse_rules
from leadhand.models.plans import PlannedTask
from leadhand.models.reasons import Reason, ReasonCode
from leadhand.models.validation_messages import first_error
from workers.attempt.approvals import settle_or_ask
from workers.task.inputs import as_text

_DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
_TASKS = TypeAdapter(tuple[PlannedTask, ...])
#: The actions that wait without a worker.
PARKING = frozenset({Action.HUMAN, Action.WAIT, Action.CHILD, Action.PLAN})
#: How often a parked step polls its child session, in case the child's report is lost.
LOOK_MS = 60_000


def park(
    engine: Engine, work: Work, secrets: frozenset[str] = frozenset(), *, top: Path | None = None
) -> Outcome | None:
    """Park a step until a person, time, child or plan; return an outcome if nothing is waited for.

    `top` is the session's own worktree or copy.
    """
    match work.step.action:
        case Action.WAIT:
            seconds = cast("float", work.inputs.get("seconds", 0))
            on: Literal["stop", "wait"] = "stop" if work.inputs.get("on") == "stop" else "wait"
            engine.attempts.park(work, on=on, wait_ms=round(float(seconds) * 1000))
        case Action.HUMAN:
            return _ask(engine, work, secrets, top)
        case Action.PLAN:
            engine.attempts.park(work, on="plan", wait_ms=LOOK_MS, plan=_draft(work))
        case Action.CHILD:
            return _child(engine, work)
        case _:
            raise AssertionError(work.step.action)
    return None


def _ask(engine: Engine, work: Work, secrets: frozenset[str], top: Path | None) -> Outcome | None:
    """Ask a person, unless an answer counts by now.

    Secrets are removed from the question: it is shown to many readers.
    """
    asked = settle_or_ask(engine, work, top, secrets)
    if isinstance(asked, Outcome):
        return asked
    question = without_secrets(work.inputs.get("question"), secrets)
    rules = work.inputs.get("rules")
    has_default = parse_rules(rules).default is not None
    engine.attempts.park(
        work,
        on="human",
        wait_ms=round(work.step.timeout_s * 1000),
        question=asked.text(question) if isinstance(question, str) else question,
        # A draft that is asked about once more keeps the edits of people.
        plan=_draft(work) if asked.times == 1 else None,
        default="answer" if has_default else work.inputs.get("default"),
        rules=rules,
        seen=None if asked.seen is None else asked.seen.model_dump_json(exclude_none=True),
        asked=asked.times,
    )
    return None


def _draft(work: Work) -> JsonValue:
    """The draft of a plan that a step adopts, as an argument of the transition; None without."""
    draft, settings = work.inputs.get("draft"), work.inputs.get("settings")
    if not isinstance(draft, dict) or not isinstance(settings, dict):
        return None
    tasks = _TASKS.validate_python(draft["tasks"])
    return {**settings, "tasks": [record_of(task) for task in tasks]}


def _child(engine: Engine, work: Work) -> Outcome | None:
    """Submit the child session, or find that of an earlier attempt, and wait for its end."""
    grant = work.grant
    try:
        document = _DOCUMENT.validate_python(_with_arguments(work.inputs))
        _refuse_fetched_commands(document, work.step.inputs["document"])
        document = _in_same_folder(document, work)
        # Only who submits a session names a receiver: a program may come from somebody else's data.
        document = document.model_copy(update={"webhook": None})
        submitted = engine.submit.document(
            document,
            idempotency_key=f"{work.ref.id}:{grant.address}",
            root=work.ref.root,
            parent={
                "session": work.ref.id,
                "address": grant.address,
                "fence": grant.fence,
                "base": engine.store.keys.base(work.ref),
            },
        )
    except StoreAway:
        raise
    except ParentRests:  # the session was stopped or ended first; a later attempt submits the child
        engine.attempts.release(work.ref, grant, why="stop")
        return None
    except (ValidationError, LeadhandError, KeyError) as error:
        why = first_error(error) if isinstance(error, ValidationError) else error
        text = f"the child session cannot be started: {why}"
        reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
        return Outcome(word="failed", text=text, reason=reason, retryable=False)
    child = SessionRef(submitted.session, work.ref.root)
    answer = engine.attempts.park(work, on="child", wait_ms=LOOK_MS, child=child)
    if answer.word != "ended":
        return None
    fields = engine.store.fields(child)
    if "status" not in fields:
        return deleted_child(child.id)
    return engine.reports.outcome_for(work.step, child, fields)


def _with_arguments(inputs: Mapping[str, JsonValue]) -> JsonValue:
    """The child's document with the inputs of a flow, or the texts of a session, of this call."""
    document, given = inputs["document"], inputs.get("arguments")
    if not isinstance(document, dict) or not isinstance(given, dict):
        return document
    texts = {name: str(as_text(value)) for name, value in given.items()}
    if "session" in inputs:
        return with_texts(document, texts)
    known = document.get("inputs")
    return {**document, "inputs": {**(known if isinstance(known, dict) else {}), **texts}}


def _in_same_folder(document: AnyDocument, work: Work) -> AnyDocument:
    """The child's document, in the folder that its parent has to itself if it names the original.

    The path of that folder was not known when the parent's program was compiled.
    """
    own = work.workspace
    if own is None or own["do"] != "open" or document.cwd != own["origin"]:
        return document
    return document.model_copy(update={"cwd": work.facts.cwd})


def _refuse_fetched_commands(document: AnyDocument, written: JsonValue) -> None:
    """Raise InvalidDocument if the document has commands that come from an outcome.

    Outcomes are not signed: a document from one may name agents, but bring no commands.
    """
    for field in commands_from_outcomes(document, written):
        hint = "a document that comes from an outcome may only name agents; name one"
        raise InvalidDocument(f"document.{field}", "${...}", hint)
