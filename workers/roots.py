"""Whether a worker may carry a step out in its folder."""

from __future__ import annotations

from pathlib import Path

from app.outcomes import Outcome
from app.reasons import Reason, ReasonCode
from app.settings import Settings
from app.working import Work


def outside(work: Work, settings: Settings) -> Outcome | None:
    """A failure where the working folder is not beneath a root of this worker's.

    A step's own must be there, beneath the session's, wherever links may lead.
    """
    roots, own = settings.roots, work.inputs.get("working_folder")
    if work.cwd is None or not (roots or own):
        return None
    folder = work.cwd.resolve()
    if own and not folder.is_relative_to(Path(str(work.facts.cwd)).resolve()):
        return _no_folder(f"{own!r} leads out of the working folder of the run")
    if own and not folder.is_dir():
        return _no_folder(f"{own!r} is no folder in {work.facts.cwd!r}; make it there first")
    if not roots or any(folder.is_relative_to(root.resolve()) for root in roots):
        return None
    place = settings.place
    return _no_folder(f"{str(work.cwd)!r} is beneath no root of place {place!r}")


def _no_folder(text: str) -> Outcome:
    """The step cannot work where it is to work; trying again does not help."""
    reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
    return Outcome(word="failed", text=text, reason=reason, retryable=False)
