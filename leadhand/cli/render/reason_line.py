"""Formats why a session ended as one line that names its phase (pure)."""

from __future__ import annotations

from leadhand.models.text import plain, reason_text
from leadhand.models.views.session import SessionView


def reason_line(view: SessionView) -> str:
    """Formats why a session ended without acceptance; "" if it has not, or was accepted.

    The reason of a workflow names the phase in which it ended.
    """
    if view.reason is None or view.status == "completed":
        return ""
    phase = _phase(view)
    where = f"phase {plain(phase)!r}: " if phase else ""
    return f"{where}{reason_text(view.reason.model_dump())}"


def _phase(view: SessionView) -> str:
    """The label of the outermost node that the reason is about."""
    if view.kind != "workflow" or view.reason is None:
        return ""
    at = next((link.at for link in view.reason.chain() if link.at), "")
    node = at.partition("/")[0].partition("[")[0].partition("~")[0]
    return next((one.label or one.node for one in view.progress.nodes if one.node == node), "")
