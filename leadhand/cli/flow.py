"""`leadhand flow` and `leadhand flows`: runs a flow, checks a flow file, lists the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.connect import shows
from leadhand.cli.group import Group
from leadhand.cli.options import (
    budget_options,
    child_options,
    pairs_of,
    pop_budget,
    protect_option,
    worktree_field,
    worktree_option,
)

if TYPE_CHECKING:
    from leadhand.contract.submissions import ParentEnd
    from leadhand.flows.documents import FlowRun
    from leadhand.models.views.session import SessionView
    from leadhand.models.views.shared import FlowInput, FlowView


@click.group("flow", cls=Group)
def flow_command() -> None:
    """Run and check flows of agent steps.

    A flow is defined in `flows/NAME.json`.
    """


@flow_command.command("run")
@click.argument("name")
@click.option("--cwd", metavar="DIR", help="The folder to work in (the current one).")
@worktree_option
@protect_option
@click.option("--title", metavar="TEXT", help="The session's label (Flow: NAME).")
@click.option("--input", "inputs", metavar="KEY=TEXT", multiple=True, help="An input of the flow.")
@click.option(
    "--agent",
    "agents",
    metavar="[TYPE=]NAME",
    multiple=True,
    help="Use this agent for every agentType TYPE of the flow, or for all.",
)
@budget_options
@click.option("--place", metavar="PLACE", help="The place to work at, if workers are at several.")
@child_options
@click.option("--detach", is_flag=True, help="Print the session's id and exit.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def flow_run_command(
    *,
    name: str,
    detach: bool,
    as_json: bool,
    key: str | None,
    on_parent_end: ParentEnd | None,
    **given: Any,
) -> int:
    """Run the flow NAME to its end and print its result.

    Inside a doer or checker, the session is a child of the running one.
    """
    from leadhand.cli.connect import open_client, tell_warnings
    from leadhand.cli.running import warn_about_cost_limit_of_flow
    from leadhand.contract import flows
    from leadhand.contract.requests import path_of

    run = _run(**given)
    path_of(flows.SHOW, name)  # Reject an invalid name before any service is started.
    with open_client(needs_worker=True) as client:
        session = client.run_flow(name, run, key, on_parent_end=on_parent_end)
        warn_about_cost_limit_of_flow(client, name, run)
        tell_warnings(session)
        if detach:
            _show_detached(session, as_json=as_json)
            return 0
        from leadhand.cli.render.result_text import flow_summary
        from leadhand.cli.running import wait_and_show

        return wait_and_show(client, session, as_json=as_json, summary=flow_summary)


@flow_command.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def flow_check_command(*, file: Path, as_json: bool) -> int:
    """Check the flow in FILE and the files that it names; needs no service.

    Lists its errors, each with its path in the file: those of fields first.
    """
    from leadhand.cli.render.tables import echo_json, plural
    from leadhand.flows.faults import Found
    from leadhand.flows.file_reading import FlowInvalid, faults_in_file

    try:
        found = faults_in_file(file, _folders())
    except FlowInvalid as error:
        found = Found([(error.path, error.message)], None)
    if as_json:
        faults = [{"path": path, "message": message} for path, message in found.faults]
        echo_json({"valid": not faults, "faults": faults})
        return 1 if faults else 0
    if found.faults:
        lines = (f"{path}: {message}" if path else message for path, message in found.faults)
        raise click.ClickException("\n".join(f"{file}: {line}" for line in lines))
    steps = len(found.flow.steps) if found.flow is not None else 0
    click.echo(f"{file}: {plural(steps, 'step')}, no errors")
    return 0


def _folders() -> list[Path]:
    """The folders of LEADHAND_FLOWS."""
    from leadhand.models.session_environment import ServerVariables, given
    from leadhand.settings import environment

    named = given(ServerVariables, environment())
    return [*ServerVariables.model_validate({"flows": named.get("flows", "")}).flows]


def _run(
    *,
    cwd: str | None,
    title: str | None,
    inputs: tuple[str, ...],
    agents: tuple[str, ...],
    place: str | None,
    worktree: bool,
    no_prepare: bool,
    protected: tuple[str, ...] | None,
    **limits: Any,
) -> FlowRun:
    from pydantic import ValidationError

    from leadhand.flows.documents import FlowRun
    from leadhand.models.validation_messages import first_error

    given = {
        "working_folder": str(Path(cwd or ".").resolve()),
        "title": title,
        "inputs": dict(pairs_of(inputs, "--input")),
        "agents": dict(pairs_of((a if "=" in a else f"*={a}" for a in agents), "--agent")),
        "place": place,
        "protected": protected or (),
        "worktree": worktree_field(cwd, worktree=worktree, no_prepare=no_prepare),
        "budget": pop_budget(limits),
    }
    try:
        return FlowRun.model_validate({k: v for k, v in given.items() if v})
    except ValidationError as error:
        raise click.ClickException(first_error(error)) from None


def _show_detached(session: SessionView, *, as_json: bool) -> None:
    from leadhand.cli.render.tables import echo_json

    if as_json:
        echo_json(session)
    else:
        click.echo(session.id)


@click.command("flows")
@shows("flows", needs_worker=True, with_json=True)
def flows_command(found: list[FlowView]) -> Iterator[str]:
    """List the flows that can be run.

    Their files are in this folder's `flows/`, or in the API's LEADHAND_FLOWS. A changed file is
    reloaded; an invalid one is listed with its error.
    """
    from leadhand.cli.render.tables import table
    from leadhand.models.text import plain

    if not found:
        yield "there are no flows; write flows/NAME.json, and see docs/flows.md"
        return
    rows = [
        [
            flow.name,
            "disabled" if flow.disabled else "ready",
            ", ".join(map(_input, flow.inputs)),
            flow.description,
        ]
        for flow in found
    ]
    yield from table(["FLOW", "STATE", "INPUTS", "DESCRIPTION"], rows)
    yield from (plain(flow.error) for flow in found if flow.error is not None)


def _input(one: FlowInput) -> str:
    kind = (one.json_schema or {}).get("type")
    facts = [kind] if isinstance(kind, str) and kind != "string" else []
    facts += ["required"] if one.default is None else []
    return f"{one.name} ({', '.join(facts)})" if facts else one.name
