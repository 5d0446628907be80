"""`leadhand graph`: runs a graph of tools from a file, or checks or draws the file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.budget_options import budget_options, pop_budget
from leadhand.cli.child_options import child_options
from leadhand.cli.group import Group
from leadhand.cli.key_values import pairs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import JsonValue

    from leadhand.contract.submissions import ParentEnd
    from leadhand.graphs.documents import GraphDocument

_JSON = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
_FILE = click.argument("file", type=click.Path(path_type=Path))
_INPUT = click.option(
    "--input",
    "inputs",
    metavar="KEY=VALUE",
    multiple=True,
    help="An input of the graph: text where its default is text, else JSON if it is JSON.",
)


@click.group("graph", cls=Group)
def graph_command() -> None:
    """Run, check and draw graphs of steps that call tools."""


@graph_command.command("run")
@_FILE
@_INPUT
@click.option("--cwd", metavar="DIR", help="The folder to work in (the current one).")
@click.option("--label", metavar="TEXT", help="The session's label.")
@click.option("--place", metavar="PLACE", help="The place to work at, if workers are at several.")
@budget_options
@child_options
@click.option("--detach", is_flag=True, help="Print the session's id and exit.")
@_JSON
def graph_run_command(
    *,
    file: Path,
    detach: bool,
    as_json: bool,
    key: str | None,
    on_parent_end: ParentEnd | None,
    **given: Any,
) -> int:
    """Run the graph in FILE to its end and print what its steps returned.

    Inside a doer or checker, the session is a child of the running one.
    """
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.graph_text import graph_summary
    from leadhand.cli.render.tables import echo_json
    from leadhand.cli.run_session import wait_and_show

    document = _document(file, **given)
    with open_client(needs_worker=True) as client:
        session = client.submit(document, key, on_parent_end=on_parent_end)
        if not detach:
            return wait_and_show(client, session, as_json=as_json, summary=graph_summary)
    if as_json:
        echo_json(session)
    else:
        click.echo(session.id)
    return 0


@graph_command.command("check")
@_FILE
@_INPUT
@click.option(
    "--workers",
    is_flag=True,
    help="Also compare its tools and their arguments with those of the workers here.",
)
@_JSON
def graph_check_command(
    *, file: Path, inputs: tuple[str, ...], workers: bool, as_json: bool
) -> int:
    """Check the graph in FILE; needs no service without --workers.

    Lists its errors, each with its path in the file: those of fields first.
    """
    from leadhand.cli.graph_file import read_graph
    from leadhand.cli.render.tables import echo_json, plural

    found = read_graph(file, {}, dict(pairs_of(inputs, "--input")))
    if workers and found.given is not None:
        found = found._replace(faults=_faults_here(found.given))
    if as_json:
        faults = [{"path": path, "message": message} for path, message in found.faults]
        echo_json({"valid": not faults, "faults": faults})
        return 1 if faults else 0
    if found.document is None or found.faults:
        raise click.ClickException(_faults_text(file, found.faults))
    click.echo(f"{file}: {plural(len(found.document.steps), 'step')}, no errors")
    return 0


@graph_command.command("draw")
@_FILE
@click.option(
    "--svg", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT",
    help="Write an SVG to OUT, replacing it.",
)  # fmt: skip
def graph_draw_command(*, file: Path, path: Path | None) -> int:
    """Draw the graph in FILE as text or SVG; needs no service.

    Each line is a step with its tool and the steps that it waits for. Steps of one number may run
    side by side. `leadhand draw ID` draws a session that runs or ran.
    """
    from leadhand.cli.commands.draw import write_drawing
    from leadhand.cli.graph_file import read_graph
    from leadhand.cli.render.graph_drawing import graph_drawing, graph_svg

    found = read_graph(file, {}, {})
    if found.document is None:
        raise click.ClickException(_faults_text(file, found.faults))
    if path is not None:
        write_drawing(path, graph_svg(found.document))
        click.echo(f"{file} is drawn in {path}", err=True)
        return 0
    for line in graph_drawing(found.document):
        click.echo(line)
    return 0


def _faults_here(given: Mapping[str, JsonValue]) -> list[tuple[str, str]]:
    """All errors of the graph, with those why the workers could not run it."""
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        view = client.check_flow({**given, "kind": "graph"})
    return [(fault.path, fault.message) for fault in view.faults]


def _document(
    file: Path,
    *,
    inputs: tuple[str, ...],
    cwd: str | None,
    label: str | None,
    place: str | None,
    **limits: Any,
) -> GraphDocument:
    from leadhand.cli.graph_file import read_graph
    from leadhand.run import working_folder

    values = dict(pairs_of(inputs, "--input"))
    try:
        folder = working_folder(cwd)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    budget: dict[str, JsonValue] = {**pop_budget(limits)}
    fields = {"cwd": folder, "label": label, "place": place, "budget": budget}
    found = read_graph(file, {name: value for name, value in fields.items() if value}, values)
    if found.document is None:
        raise click.ClickException(_faults_text(file, found.faults))
    return found.document


def _faults_text(file: Path, faults: list[tuple[str, str]]) -> str:
    lines = (f"{path}: {message}" if path else message for path, message in faults)
    return "\n".join(f"{file}: {line}" for line in lines)
