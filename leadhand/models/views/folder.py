"""Views of the folder that a session has to itself."""

from __future__ import annotations

from typing import Literal

from leadhand.models.views.view import View


class RecheckView(View):
    """Whether checkers judged the merged work before your branch got it."""

    #: `checked`: they ran on the merged work. `same`: it is the tree that they had accepted.
    state: Literal["checked", "same", "unchecked"]
    #: Why it is unchecked.
    why: str = ""
    #: The verdict of each checker that ran again; null if it gave none.
    checks: dict[str, str | None] = {}
    #: The agents that accepted the work, and were not asked again.
    left_out: list[str] = []

    @property
    def text(self) -> str:
        """Return the sentence of the receipt."""
        if self.state == "same":
            return "its checkers had accepted this tree, so nothing ran again"
        if self.state == "unchecked":
            return f"unchecked: {self.why}"
        ran = ", ".join(f"{name} {verdict or 'lost'}" for name, verdict in self.checks.items())
        left = f"; not asked again: {', '.join(self.left_out)}" if self.left_out else ""
        return f"checked again: {ran}{left}"


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
    #: What was checked for that; null before, and where that was refused before the checkers.
    recheck: RecheckView | None = None
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
