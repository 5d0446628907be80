"""Commands that hide exit codes are warned of in the reply to the submit."""

from __future__ import annotations

import pytest

from leadhand.flows.documents import AnyDocument, FlowDocument
from leadhand.models.documents import LoopDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument
from tests.engine.world import World

HIDDEN = "false | tee log.txt"
LOOP = {"task": "t", "checkers": [HIDDEN, HIDDEN, "pytest -q"]}
DOCUMENTS = [
    LoopDocument.model_validate({**LOOP, "doer": {"command": "true"}}),
    WorkflowDocument.model_validate(
        {"name": "w", "doer": {"command": "true"}, "phases": [{**LOOP, "name": "p"}]}
    ),
    FlowDocument.model_validate({"name": "f", "steps": [{"type": "check", "checker": HIDDEN}]}),
    PlanDocument.model_validate(
        {"request": "r", "doer": {"command": "true"}, "checkers": [HIDDEN]}
    ),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.kind)
def test_view_of_a_new_session_has_the_warning_once(store_url: str, document: AnyDocument) -> None:
    engine = World(store_url, default_agent="a").engine
    made = engine.submit.document(document, free=True)
    [warning] = engine.queries.session(made.session).warnings
    assert warning.startswith("the exit code of 'false | tee log.txt' is that of tee")
