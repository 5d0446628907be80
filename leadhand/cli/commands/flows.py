"""`leadhand flows`: lists the flows of the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from leadhand.cli.connect import shows

if TYPE_CHECKING:
    from leadhand.models.views.flow import FlowInput, FlowView


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
