"""The step of a flow that calls a tool."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue, StrictBool, field_validator, model_validator

from leadhand.flows.steps import FieldFaulty, WorkStep
from leadhand.graphs.references import require_list
from leadhand.models.documents import Seconds
from leadhand.models.tool_names import check_flow_tool_name

ForEach = Annotated[
    Annotated[str, Field(min_length=1, max_length=2_000)] | list[JsonValue],
    BeforeValidator(require_list),
]


class ToolStep(WorkStep):
    """Calls a tool of the worker, once or for each item of a list."""

    type: Literal["tool"]
    #: `module:function` in the workers' tool folders; a tool of tools.toml, `SERVER.TOOL` of an MCP
    #: server; `echo`, which returns its arguments, or `noop`, which returns nothing.
    tool: Annotated[str, Field(max_length=200)]
    arguments: dict[str, JsonValue] = Field(default={})
    #: A list, or one reference to a list; the tool is called once for each `${item}`.
    for_each: ForEach | None = None
    #: The most items of forEach that run at once; all of them if it is left out.
    at_once: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = None
    #: A reference, or `not` and a reference; the step is skipped unless its value is true.
    when: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None
    timeout_seconds: Seconds = 60.0
    #: A function that takes milliseconds and may share its process with other calls.
    quick: StrictBool = False

    @field_validator("tool")
    @classmethod
    def _named(cls, value: str) -> str:
        return check_flow_tool_name(value)

    @model_validator(mode="after")
    def _limits_a_list(self) -> ToolStep:
        if self.at_once is not None and self.for_each is None:
            raise FieldFaulty("atOnce", "the step has no forEach; add it, or remove atOnce")
        return self
