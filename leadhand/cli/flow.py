"""`leadhand flow`: run a flow of the catalog, or check one that is being written."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.budgets import budget_options, taken_budget

if TYPE_CHECKING:
    from leadhand.flow_documents import FlowRun
    from leadhand.views import SessionView


@click.group("flow")
def flow_command() -> None:
    """Flows: steps of agents from `flows/NAME.json`."""


@flow_command.command("run")
@click.argument("name")
@click.option("--cwd", metavar="DIR", help="The folder to work in; this one unless given.")
@click.option("--title", metavar="TEXT", help="What people call the session (Flow: NAME).")
@click.option("--input", "inputs", metavar="KEY=TEXT", multiple=True, help="An input of the flow.")
@click.option(
    "--agent",
    "agents",
    metavar="[TYPE=]NAME",
    multiple=True,
    help="Let this agent work wherever the flow says TYPE, or everywhere.",
)
@budget_options
@click.option("--place", metavar="PLACE", help="Where to work, of several places with workers.")
@click.option("--detach", is_flag=True, help="Print the session's id and leave it running.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def flow_run_command(*, name: str, detach: bool, as_json: bool, **given: Any) -> int:
    """Run the flow NAME to its end."""
    from leadhand.cli.connecting import connected
    from leadhand.paths import flow_path

    run = _run(**given)
    flow_path(name)  # What no flow can be called needs no service to say so.
    with connected() as client:
        session = client.run_flow(name, run)
        if detach:
            _show_detached(session, as_json=as_json)
            return 0
        from leadhand.cli.attended import attended
        from leadhand.cli.summaries import flow_summary

        return attended(client, session, as_json=as_json, summary=flow_summary)


@flow_command.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def flow_check_command(*, file: Path, as_json: bool) -> int:
    """Check the flow in FILE and the files that it names, without asking a service.

    All that is wrong is told, each with its place in the file.
    """
    from leadhand.cli.tables import echo_json, plural
    from leadhand.flow_check import faults_in_file
    from leadhand.flow_faults import Found
    from leadhand.flow_files import FlowInvalid

    try:
        found = faults_in_file(file, _folders())
    except FlowInvalid as error:
        found = Found([(error.path, error.message)], None)
    if as_json:
        faults = [{"path": path, "message": message} for path, message in found.faults]
        echo_json({"valid": not faults, "faults": faults})
        return 1 if faults else 0
    if found.faults:
        told = (f"{path}: {message}" if path else message for path, message in found.faults)
        raise click.ClickException("\n".join(f"{file}: {one}" for one in told))
    steps = len(found.flow.steps) if found.flow is not None else 0
    click.echo(f"{file}: {plural(steps, 'step')}, nothing is wrong")
    return 0


def _folders() -> list[Path]:
    """Where flows lie that others may run, if somebody says so."""
    from leadhand.settings import environment

    said = environment().get("LEADHAND_FLOWS", "")
    return [Path(folder) for folder in said.split(os.pathsep) if folder]


def _run(
    *,
    cwd: str | None,
    title: str | None,
    inputs: tuple[str, ...],
    agents: tuple[str, ...],
    place: str | None,
    **limits: Any,
) -> FlowRun:
    from pydantic import ValidationError

    from leadhand.complaints import complaint
    from leadhand.flow_documents import FlowRun

    given = {
        "working_folder": str(Path(cwd or ".").resolve()),
        "title": title,
        "inputs": dict(_pairs(inputs, "--input")),
        "agents": dict(_pairs((a if "=" in a else f"*={a}" for a in agents), "--agent")),
        "place": place,
        "budget": taken_budget(limits),
    }
    try:
        return FlowRun.model_validate({k: v for k, v in given.items() if v})
    except ValidationError as error:
        raise click.ClickException(complaint(error)) from None


def _pairs(texts: Iterable[str], option: str) -> Iterable[tuple[str, str]]:
    seen = set[str]()
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise click.ClickException(f"{option} is {text!r}; give it as KEY=TEXT")
        if key in seen:
            who = "all" if key == "*" else repr(key)
            raise click.ClickException(f"{option} says twice what {who} is; leave one out")
        seen.add(key)
        yield key, value


def _show_detached(session: SessionView, *, as_json: bool) -> None:
    from leadhand.cli.tables import echo_json

    if as_json:
        echo_json(session)
    else:
        click.echo(session.id)
