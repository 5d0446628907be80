"""`leadhand flows`: lists the flows of the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leadhand.models.views.flow import FlowInput


@click.command("flows")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def flows_command(*, as_json: bool) -> int:
    """List the flows that can be run.

    Their files are in this folder's `flows/`, or in the API's LEADHAND_FLOWS. A changed file is
    reloaded; an invalid one is listed with its error.
    """
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.tables import echo_json, table
    from leadhand.models.text import plain

    with open_client(needs_worker=True) as client:
        found = client.flows()
    if as_json:
        echo_json({"items": [flow.model_dump(mode="json") for flow in found]})
        return 0
    if not found:
        click.echo("there are no flows; write flows/NAME.json, and see docs/flows.md")
        return 0
    rows = [
        [
            flow.name,
            "disabled" if flow.disabled else "ready",
            ", ".join(map(_input, flow.inputs)),
            flow.description,
        ]
        for flow in found
    ]
    for line in table(["FLOW", "STATE", "INPUTS", "DESCRIPTION"], rows):
        click.echo(line)
    for flow in found:
        if flow.error is not None:
            click.echo(plain(flow.error))
    return 0


def _input(one: FlowInput) -> str:
    kind = (one.json_schema or {}).get("type")
    facts = [kind] if isinstance(kind, str) and kind != "string" else []
    facts += ["required"] if one.default is None else []
    return f"{one.name} ({', '.join(facts)})" if facts else one.name
