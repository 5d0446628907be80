"""Whatever the API can be asked, both clients can ask."""

from __future__ import annotations

import inspect

import pytest

from leadhand.client.client import AsyncClient, Client
from leadhand.contract.operations import OPERATIONS

#: Endpoint -> the clients' method for it, where it is not called as the endpoint ends.
METHODS = {
    "sessions.listed": "sessions",
    "sessions.one": "session",
    "sessions.batch": "submit_many",
    "sessions.answers": "answer",
    "questions.listed": "questions",
    "inbox.listed": "inbox",
    "inbox.take": "take_messages",
    "locks.listed": "locks",
    "locks.acquire": "acquire_lock",
    "locks.renew": "renew_lock",
    "locks.release": "release_lock",
    "kv.listed": "values",
    "kv.one": "value",
    "kv.put": "set_value",
    "kv.delete": "delete_value",
    "stacks.listed": "stacks",
    "stacks.one": "stack",
    "stacks.workflows": "stack_workflows",
    "stacks.workflow": "stack_workflow",
    "stacks.outputs": "workflow_outputs",
    "stacks.start": "start_workflow",
    "stacks.step_start": "start_step",
    "stacks.step_complete": "complete_step",
    "stacks.quality_attempt": "record_quality_attempt",
    "stacks.advance": "advance_to_step",
    "stacks.complete": "complete_workflow",
    "stacks.abort": "abort_workflow",
    "stacks.load": "load_workflow",
    "stacks.delete": "delete_workflow",
    "stacks.move": "move_stack",
    "drawings.one": "drawing",
    "artifacts.listed": "artifacts",
    "artifacts.read": "artifact",
    "artifacts.put": "put_artifact",
    "work.claim": "claim_work",
    "work.beat": "beat_work",
    "work.settle": "settle_work",
    "guards.listed": "guards",
    "guards.stop": "report_stop",
    "guards.event": "report_event",
    "guards.reset": "reset_guards",
    "events.of_session": "events",
    "attention.listed": "attention",
    "sign_in.link": "sign_in_link",
    "flows.listed": "flows",
    "flows.one": "flow",
    "flows.run": "run_flow",
    "flows.validate": "check_flow",
    "plans.one": "plan",
    "plans.edit": "edit_plan",
    "plans.approve": "approve_plan",
    "plans.changes": "change_plan",
    "plans.tasks": "plan_tasks",
    "plans.task": "plan_task",
    "plans.decide": "decide_proposal",
    "worktrees.all": "all_worktrees",
    "worktrees.audit": "audit_worktrees",
    "worktrees.listed": "worktrees",
    "worktrees.clean": "clean_worktrees",
    "worktrees.merges": "merges",
    "worktrees.apply_plan": "apply_plan",
    "worktrees.diff": "diff_plan",
    "worktrees.apply": "apply",
    "statistics.of_period": "statistics",
    "workers.listed": "workers",
    "agents.listed": "agents",
    "tools.listed": "tools",
    "limits.listed": "limits",
    "limits.one": "limit",
    "limits.put": "set_limit",
    "limits.delete": "remove_limit",
    "tokens.create": "create_token",
    "tokens.listed": "tokens",
    "tokens.revoke": "revoke_token",
    "store.show": "store",
    "store.accept": "accept_store",
    "health.ready": "ping",
}
#: What is not for programs that run sessions: a scraper's, an orchestrator's, a reader's.
OTHERS = {"fleet.metrics", "health.alive", "description.document", "description.page"}
ASKED = [name for name in OPERATIONS if name not in OTHERS]


@pytest.mark.parametrize("endpoint", ASKED)
def test_an_operation_has_its_method_in_both_clients(endpoint):
    name = METHODS.get(endpoint, endpoint.partition(".")[2])
    parameters = []
    for client in (Client, AsyncClient):
        method = getattr(client, name)
        assert inspect.getdoc(method), name
        signature = inspect.signature(method)
        assert signature.return_annotation is not inspect.Signature.empty
        parameters.append([(p.name, p.kind, p.default) for p in signature.parameters.values()])
    assert parameters[0] == parameters[1], f"{name} is called in two ways"


def test_no_method_is_told_of_that_answers_nothing():
    assert METHODS.keys() <= OPERATIONS.keys()
