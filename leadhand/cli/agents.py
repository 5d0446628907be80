"""`leadhand agents`: who can work, where, and whether one of them answers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.tables import echo_json, places_table
from leadhand.text import plain

if TYPE_CHECKING:
    from leadhand.views import AgentView

_PROMPT = "Answer with one short sentence: who are you?"


@click.group("agents", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
@click.pass_context
def agents_command(context: click.Context, *, as_json: bool) -> int:
    """List the agents with where each can be used, or try one.

    `leadhand agents try NAME` asks it here.
    """
    if context.invoked_subcommand is not None:
        return 0
    from leadhand.cli.connecting import connected

    with connected() as client:
        agents = client.agents()
    if as_json:
        echo_json({"items": [agent.model_dump(mode="json") for agent in agents]})
    else:
        click.echo("\n".join(agent_lines(agents)))
    return 0


def agent_lines(agents: list[AgentView]) -> list[str]:
    """Each agent, and beneath it why it cannot be used where it cannot."""
    if not agents:
        return ["no worker has told of its agents; start one with `leadhand worker`"]
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


@agents_command.command("try")
@click.argument("name")
@click.option("--prompt", default=_PROMPT, show_default=True, help="What to ask.")
@click.option("--model", help="The model to ask, where the agent can be told one.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), default=300.0,
              show_default=True, help="Seconds that it may take.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def try_command(
    *, name: str, prompt: str, model: str | None, timeout_s: float, as_json: bool
) -> int:
    """Ask an agent here, in this folder, as a worker would.

    It may change files. Exits with 3 where it does not answer.
    """
    told = _tried(name, prompt, model, timeout_s)
    if "error" in told:
        raise click.ClickException(plain(told["error"], most=2000))
    if as_json:
        echo_json(told)
    else:
        click.echo("\n".join(outcome_lines(told)))
    return 0 if told["word"] == "succeeded" else 3


def _tried(name: str, prompt: str, model: str | None, timeout_s: float) -> dict[str, Any]:
    """What the worker's own code made of it, in a process of its own."""
    from leadhand.keepsakes import agents_files
    from leadhand.modules import only_ours, python_module
    from leadhand.settings import environment

    env = only_ours(environment())
    files = env.get("LEADHAND_AGENTS") or os.pathsep.join(map(str, agents_files(Path.cwd())))
    asked = [name, "--timeout", str(timeout_s), *(["--model", model] if model else [])]
    done = subprocess.run(  # noqa: S603 - our own module
        [*python_module("workers.trying", env), *asked],
        env={**env, "LEADHAND_AGENTS": files},
        input=prompt,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    try:
        told: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"error": f"the agent could not be tried: exit code {done.returncode}"}
    return told


def outcome_lines(told: dict[str, Any]) -> list[str]:
    """What an attempt came to, for people."""
    failed = told["word"] != "succeeded"
    said = told.get("reason", {}).get("text", "it failed") if failed else told.get("text", "")
    usage, thread = told.get("usage", {}), told.get("thread", {})
    cost = usage.get("cost_usd")
    seconds = (told.get("ended_ms", 0) - told.get("started_ms", 0)) / 1000
    facts = [
        f"{'failed' if failed else 'answered'} after {seconds:.1f} s",
        f"cost ${cost:.4f}" if cost is not None else "told no cost",
        f"{usage['input_tokens']} tokens in, {usage['output_tokens']} out" if usage else "",
        f"conversation {plain(thread['id'])}" if thread.get("id") else "",
    ]
    return [*(plain(line, most=4000) for line in said.splitlines()), "; ".join(filter(None, facts))]
