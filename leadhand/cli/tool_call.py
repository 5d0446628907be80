"""The session of one step that calls a tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click
from pydantic import ValidationError

from leadhand.graphs.documents import GraphDocument
from leadhand.graphs.references import escape_value
from leadhand.models.json_schema import schema_of, typed_value
from leadhand.models.suggestions import nearest
from leadhand.models.validation_messages import first_error
from leadhand.models.views.fleet import ToolView
from leadhand.run import working_folder


def find_tool(tools: Sequence[ToolView], name: str) -> ToolView:
    """Returns the tool of that name. Raises ClickException with the nearest name if unknown."""
    known = {tool.name: tool for tool in tools}
    if name in known:
        return known[name]
    near = nearest(name, known)
    hint = f"did you mean {near!r}?" if near is not None else "`leadhand tools` lists them"
    raise click.ClickException(f"no worker has a tool {name!r}; {hint}")


def call_document(
    tools: Sequence[ToolView],
    name: str,
    given: Mapping[str, str],
    *,
    cwd: str | None,
    timeout_s: float | None,
) -> GraphDocument:
    """Builds a graph with one step that calls a tool. Raises ClickException if it is not valid."""
    # Without any tool the workers are still starting: the call itself then checks everything.
    schema = find_tool(tools, name).input_schema if tools else {}
    arguments = {key: typed_value(text, schema_of(schema, key)) for key, text in given.items()}
    step = {
        "name": name.rpartition(":")[2],
        "tool": name,
        "arguments": escape_value(arguments),
        **({} if timeout_s is None else {"timeout_s": timeout_s}),
    }
    fields = {"name": name, "steps": [step]}
    try:
        return GraphDocument.model_validate({**fields, "cwd": working_folder(cwd)})
    except ValidationError as error:
        raise click.ClickException(first_error(error, GraphDocument)) from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None
