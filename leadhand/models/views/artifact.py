"""Views of artifacts: results and outputs of steps that are too long for Redis."""

from __future__ import annotations

from typing import Literal

from leadhand.models.views.view import View


class ArtifactView(View):
    """One artifact of a session."""

    #: The step's address and the kind, such as `search/value`.
    name: str
    #: The address of the step.
    step: str
    #: The name of the step as its document has it; empty if that is its address, or in a loop.
    label: str = ""
    #: value: its result, as JSON; result: what a flow that it called returned; stdout, stderr: what
    #: its program wrote.
    kind: Literal["value", "result", "stdout", "stderr"]
    #: SHA-256 of its bytes, in hexadecimal.
    digest: str
    size: int
    media_type: str
    #: When the step ended.
    at: str


class UploadView(View):
    """How far an upload is."""

    digest: str
    #: Whether the artifact is stored.
    complete: bool
