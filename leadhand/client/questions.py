"""Questions that bodies ask people: a child session of one human step (pure)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from leadhand.flows.documents import FlowDocument
from leadhand.models.references import escape_flow_text
from leadhand.models.validation_messages import first_error
from leadhand.models.views.session import SessionView
from leadhand.models.views.step import StepView

#: How long a person may take to answer unless the body says otherwise: a day.
ASK_TIMEOUT_S = 24 * 3600.0
#: The label of the step that asks, and the name of its session.
STEP, NAME = "ask", "question"


class Asked(NamedTuple):
    """A question as the document of a child session, with its key.

    The key has no number of the attempt: the step's next attempt finds the same question, and its
    answer. `let-go-on` keeps the question open when an attempt is lost.
    """

    document: FlowDocument
    key: str
    on_parent_end: Any = "let-go-on"


def question_of(
    question: str,
    rules: Mapping[str, Any],
    *,
    timeout_s: float = ASK_TIMEOUT_S,
    key: str | None = None,
) -> Asked:
    """Builds a one-step flow that asks a person, with a key that is equal for equal questions.

    `rules` are its choices, form and default. Raises ValueError with a sentence if they are faulty.
    """
    given = {name: value for name, value in rules.items() if value is not None}
    text = escape_flow_text(question)
    step = {"type": "human", "label": STEP, "question": text, "timeoutSeconds": float(timeout_s)}
    try:
        document = FlowDocument.model_validate({"name": NAME, "steps": [{**step, **given}]})
    except ValidationError as error:
        raise ValueError(first_error(error)) from None
    digest = hashlib.sha256(document.model_dump_json().encode()).hexdigest()[:32]
    return Asked(document, f"{STEP}:{digest}" + (f":{key}" if key else ""))


def answer_in(view: SessionView, steps: Iterable[StepView]) -> dict[str, Any]:
    """Returns the answer of a question's session as a dict; without one, `answered` is False."""
    found = {"session": view.id, "status": view.status}
    for step in steps:
        if step.label == STEP and step.answer is not None:
            return {"answered": True, **found, **step.answer, "answered_by": step.answered_by}
    return {"answered": False, **found}
