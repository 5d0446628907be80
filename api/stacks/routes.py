"""REST routes for stacks: start, advance, end, load, list and delete workflow sessions."""

from __future__ import annotations

import re

from flask import Blueprint, Response, g

from api import requests
from api.auth import current_visitor
from api.requests import NoBody, PageQuery
from api.responses import answer
from api.stacks.bodies import (
    AbortWorkflow,
    Advance,
    CompleteStep,
    LoadWorkflow,
    MoveStack,
    OneStep,
    StackQuery,
    StartWorkflow,
    WorkflowsQuery,
)
from api.stacks.rights import StackRights, owner_of
from app.domain.stack_errors import WorkflowUnknown
from app.engine import Engine
from app.errors import InvalidDocument
from app.operations.stacks.changes import NewWorkflow, StackCall
from app.queries.stacks import WorkflowFilter
from leadhand.models.patterns import NAME, form_of
from leadhand.models.stacks import ACTIVE, WORKFLOW_ID, agent_stack


class StackRoutes:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_all(self) -> Response:
        """GET /v1/stacks: list the stacks."""
        asked = requests.query(PageQuery)
        queries = self._engine.stack_queries
        return answer(queries.stacks(limit=asked.limit, cursor=asked.cursor))

    def one(self, stack: str) -> Response:
        """GET /v1/stacks/STACK: show the workflow sessions on a stack."""
        return answer(self._engine.stack_queries.stack(_checked(stack, requests.query(StackQuery))))

    def workflows(self, stack: str) -> Response:
        """GET .../workflows: list the workflow sessions of a stack, ended ones too."""
        asked = requests.query(WorkflowsQuery)
        wanted = WorkflowFilter(
            asked.job_name, asked.workflow_name, asked.instance_id, asked.status
        )
        page = self._engine.stack_queries.workflows(
            _checked(stack, asked), wanted, limit=asked.limit, cursor=asked.cursor
        )
        return answer(page)

    def start(self, stack: str) -> Response:
        """POST .../workflows: start a workflow session on top of the stack."""
        asked = requests.body(StartWorkflow)
        call = _call(stack, ACTIVE)
        return answer(self._engine.stacks.start(call, NewWorkflow(**asked.model_dump())), 201)

    def move(self, stack: str) -> Response:
        """POST .../move: give a stack the name and folder to which its project was moved."""
        asked = requests.body(MoveStack)
        call = _call(stack, ACTIVE)
        change = self._engine.stacks.move(call, asked.to, asked.folder, asked.place)
        return answer(change.stack)

    def workflow(self, stack: str, workflow: str) -> Response:
        """GET .../workflows/ID: show a workflow session."""
        call, queries = _call(stack, workflow), self._engine.stack_queries
        if call.workflow is None:
            return answer(queries.active(call.stack))
        return answer(queries.workflow(call.stack, call.workflow))

    def outputs(self, stack: str, workflow: str) -> Response:
        """GET .../workflows/ID/outputs: merge the outputs of the completed steps."""
        call = _call(stack, workflow)
        return answer(self._engine.stack_queries.outputs(call.stack, call.workflow))

    def start_step(self, stack: str, workflow: str) -> Response:
        """POST .../workflows/ID/step-start: record the start of a step."""
        step = requests.body(OneStep).step_id
        return answer(self._engine.stacks.start_step(_call(stack, workflow), step))

    def complete_step(self, stack: str, workflow: str) -> Response:
        """POST .../workflows/ID/step-complete: record the end of a step."""
        asked = requests.body(CompleteStep)
        change = self._engine.stacks.complete_step(
            _call(stack, workflow), asked.step_id, asked.outputs, asked.notes
        )
        return answer(change)

    def quality_attempt(self, stack: str, workflow: str) -> Response:
        """POST .../workflows/ID/quality-attempt: add 1 to a step's quality attempts."""
        step = requests.body(OneStep).step_id
        return answer(self._engine.stacks.record_quality_attempt(_call(stack, workflow), step))

    def advance(self, stack: str, workflow: str) -> Response:
        """POST .../workflows/ID/advance: make a later or earlier step the current one."""
        asked = requests.body(Advance)
        change = self._engine.stacks.advance(
            _call(stack, workflow), asked.step_id, asked.entry_index
        )
        return answer(change)

    def complete(self, stack: str, workflow: str) -> Response:
        """POST .../workflows/ID/complete: end a workflow session as completed."""
        requests.body(NoBody)
        return answer(self._engine.stacks.complete(_call(stack, workflow)))

    def abort(self, stack: str, workflow: str) -> Response:
        """POST .../workflows/ID/abort: end a workflow session as aborted."""
        asked = requests.body(AbortWorkflow)
        return answer(self._engine.stacks.abort(_call(stack, workflow), asked.reason))

    def load(self, stack: str, workflow: str) -> Response:
        """POST .../workflows/ID/load: put a workflow session back on top of the stack."""
        asked = requests.body(LoadWorkflow)
        call = _named(stack, workflow)
        if asked.record is not None and asked.record.session_id != workflow:
            hint = f"give the id of the path, {workflow}"
            raise InvalidDocument("record.session_id", asked.record.session_id, hint)
        return answer(self._engine.stacks.load(call, asked.record, force=asked.force))

    def delete(self, stack: str, workflow: str) -> Response:
        """DELETE .../workflows/ID: delete a workflow session, active or not."""
        return answer(self._engine.stacks.delete(_named(stack, workflow)))


def _checked(stack: str, asked: StackQuery) -> str:
    """The name of a stack, or of that of an agent session beside it.

    Raises InvalidDocument, and Refused if the caller may not use it.
    """
    if not re.fullmatch(NAME, stack):
        raise InvalidDocument("stack", stack[:80], f"give {form_of(NAME)}")
    if asked.agent_session is not None:
        try:
            stack = agent_stack(stack, asked.agent_session)
        except ValueError as error:
            raise InvalidDocument("stack", stack, str(error)) from None
    g.check_stack(stack)
    return stack


def _call(stack: str, workflow: str) -> StackCall:
    """A call about a workflow session, or the active one. Raises WorkflowUnknown."""
    if workflow != ACTIVE:
        return _named(stack, workflow)
    name = _checked(stack, requests.query(StackQuery))
    return StackCall(name, None, current_visitor(), requests.idempotency_key(), owner_of(name))


def _named(stack: str, workflow: str) -> StackCall:
    """A call about a workflow session that is named by its id. Raises WorkflowUnknown."""
    name = _checked(stack, requests.query(StackQuery))
    if not re.fullmatch(WORKFLOW_ID, workflow):
        raise WorkflowUnknown(workflow[:80])
    return StackCall(name, workflow, current_visitor(), requests.idempotency_key(), owner_of(name))


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the routes of stacks."""
    stacks = StackRoutes(engine)
    routes, rights = Blueprint("stacks", __name__, url_prefix="/v1/stacks"), StackRights(engine)

    @routes.before_request
    def know_rights() -> None:
        g.check_stack = rights.check

    routes.add_url_rule("", "listed", stacks.list_all)
    routes.add_url_rule("/<stack>", "one", stacks.one)
    routes.add_url_rule("/<stack>/move", "move", stacks.move, methods=["POST"])
    routes.add_url_rule("/<stack>/workflows", "workflows", stacks.workflows)
    routes.add_url_rule("/<stack>/workflows", "start", stacks.start, methods=["POST"])
    one = "/<stack>/workflows/<workflow>"
    routes.add_url_rule(one, "workflow", stacks.workflow)
    routes.add_url_rule(one, "delete", stacks.delete, methods=["DELETE"])
    routes.add_url_rule(f"{one}/outputs", "outputs", stacks.outputs)
    for verb, act in (
        ("step-start", stacks.start_step),
        ("step-complete", stacks.complete_step),
        ("quality-attempt", stacks.quality_attempt),
        ("advance", stacks.advance),
        ("complete", stacks.complete),
        ("abort", stacks.abort),
        ("load", stacks.load),
    ):
        routes.add_url_rule(f"{one}/{verb}", verb.replace("-", "_"), act, methods=["POST"])
    return routes
