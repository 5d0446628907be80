"""Serves the operations on flows: list, show, run and validate."""

from __future__ import annotations

from pydantic import JsonValue

from api.auth import allow, current_caller, current_owner, may_bring_commands
from api.folder import folder_of_command, found_here
from api.serving import Call, serves
from api.sessions import parent_end
from app.engine import Engine
from leadhand.contract import flows
from leadhand.contract.fleet import FolderQuery
from leadhand.flows.documents import FlowRun
from leadhand.models.views.session import SessionView
from leadhand.models.views.shared import FlowCheckView, FlowView
from leadhand.models.views.view import Page


@serves(flows.LIST)
def list_all(engine: Engine, _: Call, asked: FolderQuery) -> Page[FlowView]:
    """Lists the flows of the catalog that applies to the caller's folder."""
    found = found_here(engine, asked)
    return Page[FlowView](items=engine.catalog_of(found.folder, found.free).flows())


@serves(flows.SHOW)
def show(engine: Engine, call: Call, asked: FolderQuery) -> FlowView:
    """Shows a flow."""
    found = found_here(engine, asked)
    return engine.catalog_of(found.folder, found.free).flow(call.path["name"])


@serves(flows.RUN)
def run(engine: Engine, call: Call, asked: FlowRun) -> SessionView:
    """Starts a session that runs a flow of the catalog; needs no scope exec:free.

    The operator wrote the flow, or the user has approved that of a folder.
    Only the command that prepares a worktree is the caller's.
    """
    caller, name = current_caller(), call.path["name"]
    policy = parent_end(call.query, is_child=caller is not None)
    free = may_bring_commands(engine)
    allow(asked, free=free)
    if caller is not None:
        submitted = engine.spawner.flow(caller, name, asked, key=call.key, on_parent_end=policy)
    else:
        submitted = engine.submit.flow(
            name,
            asked,
            idempotency_key=call.key,
            owner=current_owner(),
            free=free,
            folder=folder_of_command(),
        )
    return engine.queries.session(submitted.session)


@serves(flows.VALIDATE)
def validate(engine: Engine, _: Call, given: JsonValue) -> FlowCheckView:
    """Checks a flow, or a graph, without running it."""
    free = may_bring_commands(engine)
    return engine.flow_checks.check(given, folder=folder_of_command(), free=free)
