"""What to do after a failure, chosen by what failed: calls of the agent, and commands."""

from __future__ import annotations

from leadhand.graphs.missing_reference import missing_reference
from leadhand.models.views import ResultView
from leadhand.research.models import Workflow, WorkflowState


def suggestions_for(
    workflow: Workflow,
    state: WorkflowState,
    view: ResultView,
    *,
    step: str | None,
    why: str | None,
    interrupted: list[str],
) -> list[str]:
    """Returns hints on what to do about a workflow that did not complete."""
    going_on = f"continue with await agent.resume_workflow({state.session_id!r})"
    done = len(state.completed_steps)
    kept = f"the results of {done} completed step{'' if done == 1 else 's'} are kept"
    found: list[str] = []
    failing = next((one for one in workflow.steps if one.name == step), None)
    code = view.reason.code if view.reason is not None else ""
    reference = None if failing is None else _missing_value(view, failing.name)
    if failing is not None and why == "not_called" and reference is not None:
        found.append(
            f"step {failing.name!r} failed before tool {failing.tool!r} was called: correct"
            f" {reference} in its arguments, or give it a default, such as"
            f" {reference[:-1]} ?? null}}"
        )
        going_on = f"then run it with await agent.execute_workflow(workflow, {state.session_id!r})"
    elif failing is not None:
        found += _about_step(failing.name, failing.tool, failing.timeout, why)
    elif code in ("deadline", "budget"):
        found.append("raise timeout_seconds of the AgentConfig; a resume gets that much more time")
    elif view.status == "stopped" and not interrupted:
        found.append("nothing failed: the workflow was stopped")
    if interrupted:
        names = ", ".join(map(repr, interrupted))
        found.append(
            f"interrupted at work: {names}; a resume calls the tools again, from the start"
        )
    found.append(f"{going_on}: {kept}")
    found.append(f"see why it ended: leadhand explain {view.session_id}")
    return found


def _missing_value(view: ResultView, step: str) -> str | None:
    """The reference without a value because of which a step failed."""
    result = view.results.get(step)
    error = result.get("error") if isinstance(result, dict) else None
    return missing_reference(error) if isinstance(error, str) else None


def _about_step(name: str, tool: str, timeout: float, why: str | None) -> list[str]:
    match why:
        case "timeout":
            return [f"step {name!r} took longer than {timeout:g} s: raise its timeout"]
        case "circuit_open":
            return [f"tool {tool!r} failed several times in a row: repair it, or wait a minute"]
        case "not_called":
            return [f"step {name!r} failed before tool {tool!r} was called: see its error"]
        case _:
            return [
                f"correct what made tool {tool!r} fail in step {name!r}, or give the step a"
                " retry_count",
                f"if the workflow can do without step {name!r}: set critical=False and start anew",
            ]
