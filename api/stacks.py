"""Serves the operations on stacks, and knows which stacks a body may use.

A body uses the stacks of its session's folder, and those that its session made.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from flask import request

from api import requests
from api.auth import current_caller, current_visitor
from api.serving import Call, serves
from app import stacks as app_stacks
from app.engine import Engine
from app.errors import InvalidDocument
from app.stacks import StackCall, WorkflowFilter
from app.store.stacks import StackReads
from leadhand.contract import stacks
from leadhand.contract.operation import NoBody, PageQuery
from leadhand.contract.stacks import StackQuery
from leadhand.errors import TokenRefused, WorkflowUnknown
from leadhand.models.patterns import NAME, form_of
from leadhand.models.stacks import (
    ACTIVE,
    WORKFLOW_ID,
    OutputsView,
    StackChange,
    StackHead,
    StackView,
    WorkflowSession,
    agent_stack,
    folder_stack,
    place_of_host,
)
from leadhand.models.views.view import Page

#: How the name of a folder's stack begins.
_OF_FOLDER = re.compile(r"^folder-[0-9a-f]{16}")


@serves(stacks.LIST)
def list_all(engine: Engine, _: Call, asked: PageQuery) -> Page[StackHead]:
    """Lists the stacks."""
    return app_stacks.list_stacks(engine, limit=asked.limit, cursor=asked.cursor)


@serves(stacks.SHOW)
def show(engine: Engine, call: Call, asked: StackQuery) -> StackView:
    """Shows the workflow sessions on a stack."""
    return app_stacks.read_stack(engine, _stack_of(engine, call, asked))


@serves(stacks.WORKFLOWS)
def workflows(engine: Engine, call: Call, asked: stacks.WorkflowsQuery) -> Page[WorkflowSession]:
    """Lists the workflow sessions of a stack, ended ones too."""
    wanted = WorkflowFilter(asked.job_name, asked.workflow_name, asked.instance_id, asked.status)
    stack = _stack_of(engine, call, asked)
    return app_stacks.list_workflows(engine, stack, wanted, limit=asked.limit, cursor=asked.cursor)


@serves(stacks.START)
def start(engine: Engine, call: Call, asked: stacks.StartWorkflow) -> StackChange:
    """Starts a workflow session on top of the stack."""
    return app_stacks.start(engine, _on_top(engine, call), asked)


@serves(stacks.MOVE)
def move(engine: Engine, call: Call, asked: stacks.MoveStack) -> StackView:
    """Gives a stack the name and folder to which its project was moved."""
    change = app_stacks.move(engine, _on_top(engine, call), asked.to, asked.folder, asked.place)
    return change.stack


@serves(stacks.WORKFLOW)
def workflow(engine: Engine, call: Call, _: StackQuery) -> WorkflowSession:
    """Shows a workflow session, or the active one."""
    about = _about(engine, call)
    if about.workflow is None:
        return app_stacks.read_active(engine, about.stack)
    return app_stacks.read_workflow(engine, about.stack, about.workflow)


@serves(stacks.OUTPUTS)
def outputs(engine: Engine, call: Call, _: StackQuery) -> OutputsView:
    """Merges the outputs of the completed steps."""
    about = _about(engine, call)
    return app_stacks.merge_outputs(engine, about.stack, about.workflow)


@serves(stacks.START_STEP)
def start_step(engine: Engine, call: Call, asked: stacks.OneStep) -> StackChange:
    """Records the start of a step."""
    return app_stacks.start_step(engine, _about(engine, call), asked.step_id)


@serves(stacks.COMPLETE_STEP)
def complete_step(engine: Engine, call: Call, asked: stacks.CompleteStep) -> StackChange:
    """Records the end of a step."""
    return app_stacks.complete_step(
        engine, _about(engine, call), asked.step_id, asked.outputs, asked.notes
    )


@serves(stacks.QUALITY_ATTEMPT)
def quality_attempt(engine: Engine, call: Call, asked: stacks.OneStep) -> StackChange:
    """Adds 1 to a step's quality attempts."""
    return app_stacks.record_quality_attempt(engine, _about(engine, call), asked.step_id)


@serves(stacks.ADVANCE)
def advance(engine: Engine, call: Call, asked: stacks.Advance) -> StackChange:
    """Makes a later or earlier step the current one."""
    return app_stacks.advance(engine, _about(engine, call), asked.step_id, asked.entry_index)


@serves(stacks.COMPLETE)
def complete(engine: Engine, call: Call, _: NoBody) -> StackChange:
    """Ends a workflow session as completed."""
    return app_stacks.complete(engine, _about(engine, call))


@serves(stacks.ABORT)
def abort(engine: Engine, call: Call, asked: stacks.AbortWorkflow) -> StackChange:
    """Ends a workflow session as aborted."""
    return app_stacks.abort(engine, _about(engine, call), asked.reason)


@serves(stacks.LOAD)
def load(engine: Engine, call: Call, asked: stacks.LoadWorkflow) -> StackChange:
    """Puts a workflow session back on top of the stack."""
    about, named = _about_named(engine, call), call.path["workflow"]
    if asked.record is not None and asked.record.session_id != named:
        hint = f"give the id of the path, {named}"
        raise InvalidDocument("record.session_id", asked.record.session_id, hint)
    return app_stacks.load(engine, about, asked.record, force=asked.force)


@serves(stacks.DELETE)
def delete(engine: Engine, call: Call, _: StackQuery) -> StackChange:
    """Deletes a workflow session, active or not."""
    return app_stacks.delete(engine, _about_named(engine, call))


def _stack_of(engine: Engine, call: Call, asked: StackQuery) -> str:
    """The name of the path's stack, or of that of an agent session beside it.

    Raises InvalidDocument, and Refused if the caller may not use it.
    """
    stack = call.path["stack"]
    if not re.fullmatch(NAME, stack):
        raise InvalidDocument("stack", stack[:80], f"give {form_of(NAME)}")
    if asked.agent_session is not None:
        try:
            stack = agent_stack(stack, asked.agent_session)
        except ValueError as error:
            raise InvalidDocument("stack", stack, str(error)) from None
    _check_rights(engine, stack)
    return stack


def _about(engine: Engine, call: Call) -> StackCall:
    """A call about the path's workflow session, or the active one. Raises WorkflowUnknown."""
    if call.path["workflow"] != ACTIVE:
        return _about_named(engine, call)
    return _on_top(engine, call)


def _on_top(engine: Engine, call: Call) -> StackCall:
    name = _stack_of(engine, call, call.query)
    return StackCall(name, None, current_visitor(), call.key, owner_of(name))


def _about_named(engine: Engine, call: Call) -> StackCall:
    """A call about a workflow session that is named by its id. Raises WorkflowUnknown."""
    name, workflow = _stack_of(engine, call, call.query), call.path["workflow"]
    if not re.fullmatch(WORKFLOW_ID, workflow):
        raise WorkflowUnknown(workflow[:80])
    return StackCall(name, workflow, current_visitor(), call.key, owner_of(name))


def _check_rights(engine: Engine, stack: str) -> None:
    """Raises Refused unless the request's caller may use the stack of this name.

    A body may use those of its session's folder and those that its session made; others all.
    """
    caller = current_caller()
    if caller is None:
        return
    head = engine.store.part(StackReads).heads([stack])[0][0]
    of_folder = _OF_FOLDER.match(stack)
    if of_folder is None:
        # One that is unused becomes the session's own by its first change.
        allowed = not head or head.get("made_by") == caller.session
    else:
        # Otherwise a body could make the stack of another folder before that has one.
        allowed = _is_of_its_folder(engine, caller.session, of_folder[0], head)
    if not allowed:
        what = f"stack {stack!r} is not of the folder of session {caller.session!r}"
        hint = "use the stack of the session's folder, or a new one with another name"
        raise TokenRefused(f"{what}, and the session has not made it", hint=hint)


def _is_of_its_folder(engine: Engine, session: str, stack: str, head: dict[str, str]) -> bool:
    """Whether a stack is that of a session's working folder, or of one beneath it."""
    ref = engine.registry.ref(session)
    fields = engine.store.values(ref, "session", ["cwd", "place"])
    cwd, place = fields.get("cwd", ""), fields.get("place", "")
    if not cwd:
        return False
    hosts = (one.host for one in engine.fleet.inventories() if one.place == place)
    places = {place, *map(place_of_host, hosts)}
    folders = {cwd, os.path.realpath(cwd)}
    named = [(folder, one) for folder in folders for one in places]
    named += [
        (folder, one)
        for folder, one in ((head.get("folder"), head.get("place")), *_of_start())
        if folder and one in places and any(_is_within(folder, above) for above in folders)
    ]
    return any(folder_stack(one, folder) == stack for folder, one in named if one)


def owner_of(stack: str) -> str | None:
    """Returns the session that has to have made a stack for this request; None if none has to."""
    caller = current_caller()
    return None if caller is None or _OF_FOLDER.match(stack) else caller.session


def _of_start() -> Iterator[tuple[str | None, str | None]]:
    """The folder and place that a request to start a workflow session gives its stack."""
    given = requests.value() if request.endpoint == stacks.START.name else None
    if isinstance(given, dict):
        folder, place = given.get("folder"), given.get("place")
        if isinstance(folder, str) and isinstance(place, str):
            yield folder, place


def _is_within(folder: str, above: str) -> bool:
    path = PurePosixPath(folder)
    return path.is_relative_to(above) and ".." not in path.parts
