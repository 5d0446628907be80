"""Adds the steps that give each task of a plan a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from app.domain.program import WITH_WORKSPACES, Action, Program, Step
from app.domain.references import literal
from app.domain.workspaces import KEEP, WORKSPACE, Kind, Workspace

#: Seconds for a worktree or a copy of a large folder.
TIMEOUT_S = 1800.0


def survey_step(kind: str | None, *, merge: bool = False) -> Step:
    """The step that looks at a plan's folder before anything is paid for.

    With `merge` it makes the branch that gets the work of the tasks.
    """
    more: dict[str, JsonValue] = {"merge": True} if merge else {}
    return _step(WORKSPACE, {"do": "survey", "kind": kind, **more})


def clean_program(
    plan: str, origin: str, kind: Kind, runs: Sequence[tuple[str, int]], *, force: bool
) -> Program:
    """The program that removes the folders of these runs of tasks."""
    listed: list[JsonValue] = [[task, run] for task, run in runs]
    inputs: dict[str, JsonValue] = {
        "do": "clean", "kind": kind, "plan": plan, "origin": literal(origin),
        "runs": listed, "force": force,
    }  # fmt: skip
    return Program(
        schema_version=WITH_WORKSPACES, name="clean worktrees", body=(_step(WORKSPACE, inputs),)
    )


def in_workspace(program: Program, workspace: Workspace, title: str) -> Program:
    """The program of a task's child session, in a folder that its first step makes."""
    facts: dict[str, JsonValue] = {
        name: literal(value) if isinstance(value, str) else value
        for name, value in workspace._asdict().items()
        if name != "path"  # its worker computes it, and compares it with the session's folder
    }
    body = [_step(WORKSPACE, {"do": "make", **facts}), *program.body]
    if workspace.kind == "worktree":
        message = f"{title}\n\nTask {workspace.task} of plan {workspace.plan}."
        body.append(_step(KEEP, {"do": "keep", **facts, "message": literal(message)}))
    return Program(schema_version=WITH_WORKSPACES, name=program.name, body=tuple(body))


def _step(id_: str, inputs: dict[str, JsonValue]) -> Step:
    return Step(id=id_, action=Action.WORKSPACE, folder=True, timeout_s=TIMEOUT_S, inputs=inputs)
