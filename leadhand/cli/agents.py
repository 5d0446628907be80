"""`leadhand agents`: lists the agents with the places that have them, and tries one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.group import Group
from leadhand.cli.options import env_options
from leadhand.cli.render.tables import echo_json, places_table, plural
from leadhand.models.text import block, plain, tool_lines

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.flows.documents import FlowDocument
    from leadhand.models.views.fleet import AgentView, WorkerView
    from leadhand.models.views.session import SessionView
    from leadhand.models.views.step import StepView, ToolCallView

_PROMPT = (
    "This is a test of your tools. Run the shell command `echo leadhand works` once, and then "
    "answer with its output and one short sentence about who you are."
)
#: Seconds for which the command waits beyond the agent's own timeout.
_GRACE_S = 15.0
_LABEL = "ask"


@dataclass
class Trial:
    """The result of a trial run of an agent."""

    session: str
    step: StepView | None = None
    text: str = ""
    tools: list[ToolCallView] = field(default_factory=list)
    #: Why it failed; "" if it answered.
    failure: str = ""
    #: What the agent's run has written, if it failed.
    output: list[str] = field(default_factory=list)

    @property
    def all_tools_failed(self) -> bool:
        """Whether the agent called tools and none of the calls succeeded."""
        return bool(self.tools) and all(call.failed is not False for call in self.tools)


@click.group("agents", cls=Group, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
@click.pass_context
def agents_command(context: click.Context, *, as_json: bool) -> int:
    """List the agents, their places and MCP tools; or try one.

    `leadhand agents try NAME` lets a worker run it once.
    """
    if context.invoked_subcommand is not None:
        return 0
    from leadhand.cli.connect import open_client, reach
    from leadhand.cli.mcp_check import mcp_finding

    with reach(needs_worker=True) as (url, token), open_client(needs_worker=True) as client:
        agents, workers = client.agents(), client.workers()
        tools = mcp_finding(url, token)
    if as_json:
        why_not = None if tools.level == "ok" else tools.text
        echo_json(
            {
                "items": [agent.model_dump(mode="json") for agent in agents],
                "mcp": {"works": why_not is None, "why_not": why_not},
            }
        )
    else:
        lines = [*agent_lines(agents), *fault_lines(workers), f"tools over MCP: {tools.text}"]
        click.echo("\n".join(lines))
    return 0


@agents_command.command("try")
@click.argument("name")
@click.option("--prompt", default=_PROMPT, help="The prompt (by default: run one shell command).")
@click.option("--model", help="The model, if the agent lets a step choose one.")
@click.option("--cwd", metavar="DIR", help="The folder to work in (the current one).")
@click.option("--place", metavar="NAME", help="The place to try it at, if workers are at several.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=300.0,
              show_default=True, help="Seconds until it times out.")  # fmt: skip
@env_options
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def try_command(*, name: str, timeout_s: float, as_json: bool, **given: Any) -> int:
    """Let an agent run one tool call on a worker.

    It runs as a session of one step, with the variables that any session started here gets. The
    agent may change files. Exits with 3 if it fails, or if all of its tool calls do.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        agent = _usable(client, name, given["place"])
        session = client.submit(_document(name, timeout_s=timeout_s, **given))
        trial = _finish(client, session, timeout_s)
    if as_json:
        echo_json(_fields(trial))
    else:
        click.echo("\n".join(trial_lines(trial, agent)))
    return 3 if trial.failure or trial.all_tools_failed else 0


def _usable(client: Client, name: str, place: str | None) -> AgentView:
    """The agent, if a worker at the place can run it; otherwise ClickException with the reason."""
    agents = client.agents()
    agent = next((one for one in agents if one.name == name), None)
    if agent is None:
        known = ", ".join(one.name for one in agents) or "none, as no worker is running"
        raise click.ClickException(
            f"no worker knows agent {plain(name)!r}; known: {known}. Add it to agents.toml"
        )
    if place in agent.usable_at or (place is None and agent.usable_at) or _is_here(client, agent):
        return agent
    reasons = [
        f"at {plain(where)}: {plain(why, most=400)}"
        for where, why in agent.why_not.items()
        if place in (None, where)
    ]
    reasons = reasons or [f"no worker at {plain(place)} has it"]
    raise click.ClickException(f"agent {name!r} cannot be used {'; '.join(reasons)}")


def _is_here(client: Client, agent: AgentView) -> bool:
    """Whether this shell has what the worker lacks; embedded services take it from here."""
    import shutil
    from pathlib import PurePosixPath

    here, program = client.here, agent.command.split(" ")[0]
    held = {**here.values, **here.passed}
    if not here.is_embedded or agent.kind != "command" or PurePosixPath(program).is_absolute():
        return False
    is_found = shutil.which(program, path=held.get("PATH")) is not None
    return is_found and all(held.get(name) for name in agent.needs_env)


def _document(
    name: str, *, prompt: str, model: str | None, cwd: str | None, place: str | None,
    timeout_s: float,
) -> FlowDocument:  # fmt: skip
    from pydantic import ValidationError

    from leadhand.flows.documents import FlowDocument
    from leadhand.models.validation_messages import first_error
    from leadhand.run import working_folder

    step = {
        "type": "llm", "label": _LABEL, "agentType": name, "identifier": "try", "model": model,
        "timeoutSeconds": timeout_s, "messages": [{"role": "user", "content": [prompt]}],
    }  # fmt: skip
    try:
        return FlowDocument.model_validate(
            {"kind": "flow", "name": "agents-try", "label": None, "cwd": working_folder(cwd),
             "place": place, "attempts": 1, "steps": [step]}
        )  # fmt: skip
    except ValidationError as error:
        raise click.ClickException(first_error(error)) from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def _finish(client: Client, session: SessionView, timeout_s: float) -> Trial:
    """Wait for the session; one that takes too long, or that Ctrl-C ends, is aborted."""
    from leadhand.cli.connect import tell
    from leadhand.client.waiting import reporting_troubles
    from leadhand.errors import WaitTimedOut

    failure = ""
    try:
        with reporting_troubles(client, [session.id], tell):
            client.wait(session.id, timeout_s + _GRACE_S)
    except WaitTimedOut:
        failure = f"no answer within {timeout_s:g} s: {client.explain(session.id).text}"
        _abort(client, session.id)
    except KeyboardInterrupt:
        _abort(client, session.id)
        raise
    return _read(client, session.id, failure)


def _abort(client: Client, session: str) -> None:
    from leadhand.errors import ControlRefused

    with suppress(ControlRefused):  # it has ended meanwhile
        client.abort(session)


def _read(client: Client, session: str, failure: str) -> Trial:
    from leadhand.cli.render.output_text import attempt_lines

    trial = Trial(session, failure=failure)
    trial.step = next(iter(client.steps(session).items), None)
    for entry in client.transcript(session).items:
        trial.tools += entry.tools
        if entry.role == "assistant":
            trial.text = entry.text
    if trial.step is not None and trial.step.state == "failed":
        trial.failure = trial.failure or trial.step.summary or "it failed"
    if trial.failure:
        outputs = client.output(session, step=_LABEL, limit=1)
        trial.output = [line for view in outputs for line in attempt_lines(view)]
    return trial


def trial_lines(trial: Trial, agent: AgentView) -> Iterator[str]:
    """Formats the result of trying an agent: tool calls, answer or failure, and facts."""
    yield from tool_lines(trial.tools)
    if trial.failure:
        if not trial.tools:
            yield from (f"  {line}" for line in trial.output)
        yield f"agent {agent.name!r} failed: {plain(trial.failure, most=2000)}"
    else:
        yield from block(trial.text)
    if trial.all_tools_failed:
        yield f"{_calls(trial)} failed; see the results above, and the agent's sandbox"
    elif not trial.failure:
        yield _verdict(trial, agent)
    yield "; ".join(_facts(trial))


def _verdict(trial: Trial, agent: AgentView) -> str:
    """Says that the agent works; without a tool call that is a warning, since it may do nothing."""
    if trial.tools:
        return f"agent {agent.name!r} works: it answered, and its tools work"
    if agent.kind == "command":
        why = "it may change no file; compare its answer with the prompt"
    else:
        why = f"an agent of kind {agent.kind} has no tools, it answers and edits nothing"
    return f"warning: agent {agent.name!r} answered, but reported no tool call: {why}"


def _calls(trial: Trial) -> str:
    return "its only tool call" if len(trial.tools) == 1 else f"all {len(trial.tools)} tool calls"


def _facts(trial: Trial) -> Iterator[str]:
    from leadhand.cli.render.step_tree import step_seconds

    step = trial.step
    seconds = step_seconds(step) if step is not None else None
    word = "failed" if trial.failure else "answered"
    after = "" if seconds is None else f" after {seconds:.1f} s"
    at = f" on {plain(step.worker)}" if step is not None and step.worker else ""
    yield f"{word}{after}{at}"
    if trial.tools:
        failed = sum(call.failed is not False for call in trial.tools)
        yield plural(len(trial.tools), "tool call") + (f" ({failed} failed)" if failed else "")
    if step is not None:
        yield f"cost ${step.cost_usd:.4f}" if step.cost_usd else "reported no cost"
        if step.input_tokens or step.output_tokens:
            yield f"{step.input_tokens} tokens in, {step.output_tokens} out"
    yield f"session {trial.session}"


def _fields(trial: Trial) -> dict[str, object]:
    step = trial.step
    return {
        "session": trial.session,
        "word": "failed" if trial.failure else "succeeded",
        "text": trial.text,
        "failure": trial.failure or None,
        "tools": [call.model_dump(mode="json") for call in trial.tools],
        "step": None if step is None else step.model_dump(mode="json"),
    }


def agent_lines(agents: list[AgentView]) -> list[str]:
    """Formats the table of agents; below each, where it cannot be used and why."""
    if not agents:
        return ["no worker is running; start one with `leadhand worker`"]
    head = ["AGENT", "KIND", "USABLE AT", "COMMAND"]
    rows = [
        [
            f"{agent.name} (default)" if agent.default else agent.name,
            agent.kind,
            " ".join(agent.usable_at) or "nowhere",
            agent.command,
        ]
        for agent in agents
    ]
    return places_table(head, rows, [agent.why_not for agent in agents])


def fault_lines(workers: list[WorkerView]) -> list[str]:
    """Formats the errors in workers' agents files that concern no single agent, each once."""
    faults = (
        f"at {plain(worker.place)}: {plain(fault.text, most=400)}"
        for worker in workers
        for fault in worker.agents_faults
        if fault.agent is None
    )
    return list(dict.fromkeys(faults))
