"""Checks a step's working folder against the worker's roots, and the owner of the spill folder."""

from __future__ import annotations

from pathlib import Path

from app.domain.outcomes import Outcome
from app.operations.attempts import Work
from app.settings import Settings
from leadhand.models.reasons import Reason, ReasonCode
from workers.processes.own_folders import claim_folder


def folder_failure(work: Work, settings: Settings) -> Outcome | None:
    """Returns a failure if a step's folder is not allowed, or the spill folder unusable; else None.

    The folder must be beneath a root of this worker, or beneath that of its worktrees; so must the
    folder from which the session's own was made. A step's own folder must exist beneath the
    session's, with links resolved. The spill folder must belong to this user.
    """
    try:
        claim_folder(settings.spill)
    except OSError as error:
        return _no_folder(str(error))
    roots, own = settings.roots, work.inputs.get("working_folder")
    if work.cwd is None or not (roots or own):
        return None
    folder = work.cwd.resolve()
    if own and not folder.is_relative_to(Path(str(work.facts.cwd)).resolve()):
        return _no_folder(f"{own!r} is outside of the session's working folder; name one inside it")
    if own and not folder.is_dir():
        return _no_folder(f"{own!r} is not a folder in {work.facts.cwd!r}; create it there first")
    allowed = [root.resolve() for root in (*roots, settings.worktrees_root)]
    for one in _used(work) if roots else ():
        if not any(one.resolve().is_relative_to(root) for root in allowed):
            place = settings.place
            return _no_folder(f"{str(one)!r} is not beneath a root of place {place!r}")
    return None


def _used(work: Work) -> list[Path]:
    """The working folder, and the folder from which it was made if it is a session's own."""
    made = work.workspace.get("origin") if work.workspace is not None else None
    return [one for one in (work.cwd, Path(str(made)) if made else None) if one is not None]


def _no_folder(text: str) -> Outcome:
    """A failure that is not retried."""
    reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
    return Outcome(word="failed", text=text, reason=reason, retryable=False)
