"""Fields of flow steps."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import (
    Field,
)

from leadhand.flows.structure import Fault
from leadhand.models import patterns


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
