"""Commands that hide exit codes are warned of in the reply to the submit."""

from __future__ import annotations

import pytest

from leadhand.flows.documents import AnyDocument, FlowDocument
from leadhand.models.documents import LoopDocument, WorkflowDocument
from leadhand.models.plans import PlanDocument
from tests.engine.world import World

HIDDEN = "false | tee log.txt"
KEY = "ghp_abcdefghABCDEFGH0123456789abcdefghAB"
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


def test_key_in_a_command_is_redacted_before_the_warning_is_cut(store_url: str) -> None:
    engine = World(store_url).engine
    command = f"curl {'y' * 85} {KEY} | tee log"
    document = LoopDocument.model_validate(
        {"task": "t", "checkers": [command], "doer": {"command": "true"}}
    )
    made = engine.submit.document(document, free=True)
    [warning] = engine.queries.session(made.session).warnings
    assert "[redacted]" in warning
    assert KEY[:20] not in warning


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda one: one.kind)
def test_view_of_a_new_session_has_the_warning_once(store_url: str, document: AnyDocument) -> None:
    engine = World(store_url, default_agent="a").engine
    made = engine.submit.document(document, free=True)
    [warning] = engine.queries.session(made.session).warnings
    assert warning.startswith("the exit code of 'false | tee log.txt' is that of tee")
