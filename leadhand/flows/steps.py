"""Fields of flow steps."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictBool, field_validator
from pydantic.alias_generators import to_camel

from leadhand.flows.structure import Fault
from leadhand.models import patterns
from leadhand.models.documents import Name


class FieldFaulty(ValueError):
    """A field conflicts with another one or is missing."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field
        self.message = message

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class FlowMalformed(ValueError):
    """The steps do not fit together."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault

    def __str__(self) -> str:
        return f"{self.fault.path}: {self.fault.message}"


#: How often a loop of a flow turns at most, unless it says otherwise.
DEFAULT_CEILING = 100
#: How long a person may take to answer unless the step says otherwise.
HUMAN_TIMEOUT_S = 7 * 24 * 3600.0
#: The longest wait, for a time or for a person.
LONGEST_WAIT_S = 30 * 24 * 3600

AgentType = Annotated[str, Field(pattern=patterns.NAME)]
#: What a flow and a command are called: the stem of their file.
Stem = Annotated[str, Field(pattern=patterns.NAME)]
#: A Markdown file beneath the folder of the flows.
MarkdownFile = Annotated[str, Field(max_length=300)]
_MARKDOWN = re.compile(r"^([A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*\.md$")


class Written(BaseModel):
    """Frozen; unknown fields are errors; field names are camelCase as in the files."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        str_strip_whitespace=True,
        alias_generator=to_camel,
        serialize_by_alias=True,
    )


class LabelledStep(Written):
    """A step that may have a label."""

    #: The step's name for display and for `resume --after`.
    label: Name | None = None


class WorkStep(LabelledStep):
    """A step with an effect, in a folder."""

    #: Whether the flow continues if the step fails (not if it is stopped).
    continue_on_failure: StrictBool = False
    #: The step's working folder, beneath that of the run.
    working_folder: str | None = Field(default=None, alias="working_folder", max_length=500)

    @field_validator("working_folder")
    @classmethod
    def _beneath(cls, value: str | None) -> str | None:
        parts = value.split("/") if value is not None else []
        if value is not None and (value.startswith("/") or ".." in parts or "\0" in value):
            raise ValueError(
                f"it is {value!r}; give a path beneath the run's own folder, without '..'"
            )
        return value
