"""`leadhand graph`: runs a graph of tools from a file, or checks or draws the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from leadhand.cli.group import Group
from leadhand.cli.options import budget_options, child_options, pairs_of, pop_budget

if TYPE_CHECKING:
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
    from leadhand.cli.running import wait_and_show

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
    from leadhand.cli.ls import write_drawing
    from leadhand.cli.render.graph_text import graph_drawing, graph_svg

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


class GraphFile(NamedTuple):
    """A graph file: the document if it has no errors, and else their paths and messages."""

    document: GraphDocument | None
    faults: list[tuple[str, str]]
    #: The JSON with the given fields and inputs; None if it is no object.
    given: dict[str, JsonValue] | None = None


def read_graph(file: Path, fields: Mapping[str, JsonValue], inputs: Mapping[str, str]) -> GraphFile:
    """Reads a graph file with `fields` and `inputs` replaced; returns the graph, or its errors."""
    from leadhand.flows.file_reading import FlowInvalid, json_in
    from leadhand.graphs.documents import declare_inputs
    from leadhand.models.json_schema import schema_of, typed_value

    try:
        given = json_in(file)
    except FlowInvalid as error:
        return GraphFile(None, [(error.path, error.message)])
    if not isinstance(given, dict):
        return GraphFile(None, [("", "it is not an object; write {...} with the field `steps`")])
    given = {"name": file.stem, **given, **fields}
    given = declare_inputs(given)
    known = given.get("inputs")
    declared = known if isinstance(known, dict) else {}
    unknown = [name for name in inputs if name not in declared]
    if unknown:
        names = ", ".join(declared) or "none"
        return GraphFile(
            None, [(f"inputs.{unknown[0]}", f"there is no such input; there: {names}")]
        )
    schema = given.get("input_schema")
    values = {
        name: typed_value(text, one) if (one := schema_of(schema, name)) else _value(text, default)
        for name, text in inputs.items()
        for default in (declared[name],)
    }
    given["inputs"] = {**declared, **values} if isinstance(known, dict) or not known else known
    return _read_document(given)


def _read_document(given: dict[str, JsonValue]) -> GraphFile:
    from pydantic import ValidationError

    from leadhand.flows.faults import faults_of_graph
    from leadhand.graphs.documents import GraphDocument

    try:
        return GraphFile(GraphDocument.model_validate(given), [], given)
    except ValidationError as error:
        return GraphFile(None, faults_of_graph(error, given), given)


def _value(text: str, default: JsonValue) -> JsonValue:
    """The value of an input: text if its default is text, else JSON where it is JSON.

    >>> _value("7", "none"), _value("7", None), _value("x y", 3)
    ('7', 7, 'x y')
    """
    if isinstance(default, str):
        return text
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return value
