"""Steps that wait and hold no worker: for a person, for a time, for a child session."""

from __future__ import annotations

from typing import cast

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.children import gone, outcome_of_child
from app.engine import Engine
from app.errors import InvalidDocument, LeadhandError, ParentRests, StoreAway
from app.free_commands import fetched_commands
from app.keys import SessionRef
from app.outcomes import Outcome
from app.program import Action
from app.reasons import Reason, ReasonCode
from app.redaction import without_secrets
from app.working import Work
from leadhand.any_document import AnyDocument

_DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
#: How often a step that waits for a child looks at it, should the child's word get lost.
LOOK_MS = 60_000


def park(engine: Engine, work: Work, secrets: frozenset[str] = frozenset()) -> Outcome | None:
    """Let the step wait; an outcome where there is nothing (left) to wait for.

    A person is asked without these secrets: many may read what it is asked.
    """
    match work.step.action:
        case Action.WAIT:
            seconds = cast("float", work.inputs.get("seconds", 0))
            engine.park(work, on="wait", wait_ms=round(float(seconds) * 1000))
        case Action.HUMAN:
            wait_ms = round(work.step.timeout_s * 1000)
            question = without_secrets(work.inputs.get("question"), secrets)
            engine.park(work, on="human", wait_ms=wait_ms, question=question)
        case Action.CHILD:
            return _child(engine, work)
        case _:
            raise AssertionError(work.step.action)
    return None


def _child(engine: Engine, work: Work) -> Outcome | None:
    """Start the child, or find the one that an earlier attempt started, and wait for its end."""
    grant = work.grant
    try:
        document = _DOCUMENT.validate_python(work.inputs["document"])
        _refuse_fetched_commands(document, work.step.inputs["document"])
        submitted = engine.submit(
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
    except ParentRests:  # a stop was first, or what ends it: the child is that of a later attempt
        engine.release(work.ref, grant, why="stop")
        return None
    except (ValidationError, LeadhandError, KeyError) as error:
        text = f"the child session cannot be started: {error}"
        reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
        return Outcome(word="failed", text=text, reason=reason, retryable=False)
    child = SessionRef(submitted.session, work.ref.root)
    answer = engine.park(work, on="child", wait_ms=LOOK_MS, child=child)
    if answer.word != "ended":
        return None
    fields = engine.store.fields(child)
    if "status" not in fields:
        return gone(child.id)
    return outcome_of_child(child.id, fields)


def _refuse_fetched_commands(document: AnyDocument, written: JsonValue) -> None:
    """Outcomes are not signed: what comes from one may name agents, and bring no commands."""
    for field in fetched_commands(document, written):
        hint = "a document that comes from an outcome may name agents only"
        raise InvalidDocument(f"document.{field}", "${...}", hint)
