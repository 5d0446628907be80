"""Views of the folder that a session has to itself."""

from __future__ import annotations

from typing import Literal

from leadhand.models.views.view import View


class OwnFolderView(View):
    """The folder that a session works in instead of the one that it was started in."""

    #: None until a worker has made it.
    kind: Literal["worktree", "copy"] | None = None
    #: The folder that it was started in, and which stays as it is until the work is applied.
    origin: str
    folder: str
    #: Of a worktree: its branch, the commit that the branch started from, and the branch or commit
    #: whose tip that was.
    branch: str | None = None
    base: str | None = None
    target: str | None = None
    #: What the last `apply` did, or why it changed nothing.
    applied: str | None = None
    refused: str | None = None
    #: Whether the folder was removed, or why not when that was asked last.
    cleaned: bool = False
    kept: str = ""

    @property
    def is_to_be_applied(self) -> bool:
        """Whether its work is only there yet."""
        return self.kind is not None and self.applied is None and not self.cleaned


class ApplyingView(View):
    """A session that brings the work of another one into the folder that it was started in."""

    #: The session that does it; its end says whether that was done.
    session: str
