"""Questions about the work: each shows it, and an answer counts for that state of the folder only.

The worker that asks puts the newest checks and the digest of the folder into the question. Once it
is answered, the step runs again and compares the folder: if it differs, the question is asked once
more, and after that the step fails as contested.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from app.core.addresses import path_of
from app.core.outcomes import Outcome
from app.core.program import Action, Program, is_before_work
from app.engine import Engine
from app.redaction import without_keys
from app.sessions.attempts import Work
from leadhand.models.text import list_first
from leadhand.models.verdicts import ReasonCode
from leadhand.models.views.explain import CheckSeen, SeenWork
from workers.folders.snapshots import Worktree
from workers.folders.work_diff import session_tree
from workers.processes.exit_outcome import failed_outcome

#: The most files and checks that a question keeps, and that its text names.
_KEPT, _NAMED = 100, 5
_CHECKS = 20
_NOT_COMPARED = "the folder could not be compared with the work that the answer was given for"


class Asked(NamedTuple):
    """What a question shows of the work."""

    seen: SeenWork | None
    #: What is put before the question, as it was asked before.
    before: str = ""
    #: How often it is asked.
    times: int = 1

    def text(self, question: str) -> str:
        """Return the question with the work that it is about."""
        if self.seen is None:
            return question
        parts = (self.before, question, "\n".join(_lines(self.seen)))
        return "\n\n".join(part for part in parts if part)


def settle_or_ask(
    engine: Engine, work: Work, top: Path | None, secrets: Collection[str]
) -> Outcome | Asked:
    """Return the outcome of an answer that counts, or what the question shows.

    `top` is the session's own worktree or copy, which the folder may be within.
    """
    if "binds" not in work.inputs or work.cwd is None or work.is_beside:
        return Asked(None)
    settings = engine.settings
    tree = session_tree(work, Path(settings.spill), top, most=settings.copy_max)
    digest, given = tree.snapshot(), work.grant.given
    if given is None:
        seen = _seen(engine, work, tree, digest, secrets) if digest else None
        # Without any work and check, the question is about something else.
        return Asked(None if seen is None or (seen.files is None and not seen.checks) else seen)
    before = SeenWork.model_validate_json(given.seen).digest
    outcome = Outcome.model_validate_json(given.outcome)
    if digest is None:
        return outcome.model_copy(update={"warning": _NOT_COMPARED})
    if digest == before and "draft" in work.inputs:
        return outcome
    if digest == before:  # the next step in the folder compares it again
        return outcome.model_copy(update={"digest": tree.part(digest, work.cwd)})
    names = _listed(tree.changed_names(before, digest), secrets)
    if given.asked > 1:
        why = f"the folder changed again before an answer counted: {names}"
        return failed_outcome(ReasonCode.CONTESTED, why).model_copy(update={"text": ""})
    note = f"Asked once more, because the folder has changed since the question was shown: {names}."
    return Asked(_seen(engine, work, tree, digest, secrets), note, given.asked + 1)


def contested_outcome(changed: Sequence[str]) -> Outcome:
    """Return the failure of a step before which the folder has changed since an answer counted."""
    text = (
        f"the folder changed after a person's answer counted: {_listed(changed)}; retry the"
        " question to have it asked again, or resume to go on with the folder as it is"
    )
    return failed_outcome(ReasonCode.CONTESTED, text).model_copy(update={"text": text})


def _listed(changed: Sequence[str], secrets: Collection[str] = ()) -> str:
    return without_keys(list_first(changed, _NAMED) or "its files", secrets)


def _seen(
    engine: Engine, work: Work, tree: Worktree, digest: str, secrets: Collection[str]
) -> SeenWork:
    fields = engine.store.fields(work.ref)
    bases = {value for name, value in fields.items() if name.startswith("base|")}
    changed = sorted({one for base in bases for one in tree.changed_names(base, digest)})
    return SeenWork(
        digest=digest,
        files=[without_keys(one, secrets) for one in changed[:_KEPT]] if bases else None,
        count=len(changed),
        checks=_newest_checks(engine, work),
    )


def _newest_checks(engine: Engine, work: Work) -> list[CheckSeen]:
    """The newest verdict of each check of the session, in the order in which they ended."""
    store, program = engine.store, engine.registry.program(work.facts.program)
    names = [one for one in store.names(work.ref, "steps") if _is_check(program, one)]
    records = store.steps(work.ref, names)
    judged = [one for one in names if one in records and records[one].verdict is not None]
    judged.sort(key=lambda address: records[address].ended or 0)
    newest = {path_of(address): address for address in judged}
    shown = sorted(newest.values(), key=judged.index)[-_CHECKS:]
    outcomes = store.values(work.ref, "out", shown)
    return [
        CheckSeen(
            name=without_keys(_name(program, address)),
            verdict=records[address].verdict,
            counts=Outcome.model_validate_json(outcomes[address]).counts
            if address in outcomes
            else None,
        )
        for address in shown
    ]


def _is_check(program: Program, address: str) -> bool:
    step = program.step_or_none(address)
    is_check = step is not None and step.action is Action.CHECK and "checker" in step.inputs
    return is_check and step is not None and not is_before_work(step)


def _name(program: Program, address: str) -> str:
    step = program.step(address)
    checker = step.inputs["checker"]
    named = checker.get("name") if isinstance(checker, dict) else None
    return str(named or step.label or step.id.removeprefix("check."))


def _lines(seen: SeenWork) -> Sequence[str]:
    checks = ", ".join(_verdict(one) for one in seen.checks) or "none has run"
    if seen.files is None:
        files = "no agent of this session has worked in the folder"
    elif not seen.count:
        files = "nothing has changed"
    else:
        noun = "file has" if seen.count == 1 else "files have"
        files = f"{seen.count} {noun} changed: {list_first(seen.files, _NAMED, of=seen.count)}"
    return f"Checks: {checks}.", f"Work: {files}. State of the folder: {seen.digest[:16]}."


def _verdict(check: CheckSeen) -> str:
    counts = f" ({check.counts.text})" if check.counts is not None else ""
    return f"{check.name} {check.verdict}{counts}"
