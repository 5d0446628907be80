"""What to do after a failure, chosen by what failed: calls of the agent, and commands."""

from __future__ import annotations

from leadhand.models.views import ResultView
from leadhand.research.models import Workflow, WorkflowState


def suggestions_for(
    workflow: Workflow,
    state: WorkflowState,
    view: ResultView,
    *,
    step: str | None,
    why: str | None,
) -> list[str]:
    """Returns hints on what to do about a workflow that did not complete."""
    resume = f"await agent.resume_workflow({state.session_id!r})"
    done = len(state.completed_steps)
    kept = f"the results of {done} completed step{'' if done == 1 else 's'} are kept"
    found: list[str] = []
    failing = next((one for one in workflow.steps if one.name == step), None)
    code = view.reason.code if view.reason is not None else ""
    if failing is not None:
        found += _about_step(failing.name, failing.tool, failing.timeout, why)
    elif code in ("deadline", "budget"):
        found.append("raise timeout_seconds of the AgentConfig; a resume gets that much more time")
    elif view.status == "stopped":
        found.append("nothing failed: the workflow was stopped")
    found.append(f"continue with {resume}: {kept}")
    found.append(f"see why it ended: leadhand explain {view.session_id}")
    return found


def _about_step(name: str, tool: str, timeout: float, why: str | None) -> list[str]:
    match why:
        case "timeout":
            return [f"step {name!r} took longer than {timeout:g} s: raise its timeout"]
        case "circuit_open":
            return [f"tool {tool!r} failed several times in a row: repair it, or wait a minute"]
        case _:
            return [
                f"correct what made tool {tool!r} fail in step {name!r}, or give the step a"
                " retry_count",
                f"if the workflow can do without step {name!r}: set critical=False and start anew",
            ]
