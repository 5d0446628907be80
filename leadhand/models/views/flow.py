"""Views of flows in the catalog, and of their validation."""

from __future__ import annotations

from pydantic import JsonValue

from leadhand.models.views.view import View


class FlowInput(View):
    """An input of a flow; required if it has no default."""

    name: str
    default: str | None = None
    #: What a value has to be, if the flow declares that; without it, a text.
    json_schema: dict[str, JsonValue] | None = None


class FlowView(View):
    """A flow of the catalog, as its file defines it now."""

    name: str
    description: str = ""
    disabled: bool = False
    #: The error: the file, the path in it, and the fix.
    error: str | None = None
    inputs: list[FlowInput] = []
    #: The hash of its definition and of all files that it uses.
    hash: str = ""
    #: The definition; only in the view of one flow.
    definition: dict[str, JsonValue] | None = None


class FlowFaultView(View):
    """An error in a flow, with its path."""

    path: str
    message: str


class FlowCheckView(View):
    """Whether a flow is valid, and its errors."""

    valid: bool
    faults: list[FlowFaultView] = []
