"""Compares the working folder after the checkers with the work that they judged, and puts it back.

What has changed in between is not the doer's work. In a worktree or copy of the session's own it is
put back; in a user's folder it may be what a person has saved, and stays. Then the verdict is
stale: the checkers run once more, and if the folder changes again, the loop ends as contested.
Files that change in both rounds, and that neither git tracks nor a doer wrote, are what checkers
write, such as reports: the verdict of the second round stands, and they are named.
"""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import JsonValue

from app.core.addresses import block_of, turn_of
from app.core.outcomes import Outcome
from app.core.program import Action
from app.redaction import without_keys
from app.sessions.attempts import FolderState, Work
from app.truncate import cut
from leadhand.models.text import list_first
from leadhand.models.verdicts import Reason, ReasonCode
from workers.folders.git_state import GitState
from workers.folders.snapshots import SnapshotLost, Worktree
from workers.folders.work_diff import (
    IgnoredFiles,
    does_work,
    judging_files,
    pack_diff,
    session_tree,
)

log = logging.getLogger(__name__)

#: The most files that the ledger and the warning name.
NAMED, SHOWN = 20, 5
#: The most files of a loop's work that the ledger lists.
LISTED = 100
#: The files beside the snapshots with the state that a judge was about to put back, and with what
#: changed in the last stale round.
_ROUND, _STALE = "round", "stale"
#: The file with the state before the newest check that no judge follows.
_LONE = "lone"
#: The file that names what was put back before isolated checks of a round.
_EARLIER = "earlier"
#: Characters of a warning, and of what a stale verdict says.
_WARNING, _FEEDBACK = 1_000, 16_000
_CHANGED = "The folder changed while checkers judged the work"
_FIX = (
    "let git ignore what checkers write, mark one that mends the work `writes`, or use --worktree"
)
#: Reasons of a judge whose verdict no checker gave, so that it is about no state of the folder.
_NOT_CHECKED = (ReasonCode.CHECKER_DOWN, ReasonCode.JUDGE_UNCLEAR, ReasonCode.USER_SKIP)


class CheckRound:
    """What has changed in the folder since the doer's work was recorded."""

    #: For the settle, as of a doer's look: no state is judged anew, and none came from outside.
    changed, work = False, None

    def __init__(
        self,
        tree: Worktree,
        recorded: str,
        work: Work,
        *,
        changed: Sequence[str] | None = None,
        ignored: Sequence[str] = (),
    ) -> None:
        grant = work.grant
        self._tree = tree
        #: The round and the step that its notes are about.
        self._round, self._at = _round_of(work), _at(work)
        #: The working folder, which may be within that of the snapshots.
        self._cwd = work.cwd or tree.folder
        #: Whether it ends a round of checks, which it can have repeated.
        self._is_judge = work.step.action is Action.JUDGE
        #: Whether the loop's run has had its recheck.
        self._is_rechecked = grant.recheck > 0
        #: All files that the loop has changed, if they are known.
        self._changed = changed
        #: Those of them that the judgement depends on, and of the ones that git ignores.
        self._judging = judging_files([*(changed or ()), *ignored])
        self._work = recorded
        self._address = grant.address
        self._marker, self._stale = tree.shelf / _ROUND, tree.shelf / _STALE
        self._earlier = tree.shelf / _EARLIER
        may_be_of_others = work.is_beside or (self._is_judge and grant.compare)
        #: Whether what has changed is put back.
        self._puts_back = tree.is_own and not may_be_of_others
        self.patch: str | None = None
        self.why_not: Literal["slow", "unreadable", "other_host"] | None = None
        self.put_back = False
        self._left = self._found()
        #: What git has of the worktree, and has changed: HEAD, its branch, the index.
        self.moved = self._put_git_back() if self._puts_back else []
        self.files = tree.changed_names(recorded, self._left)
        if self._left not in (None, recorded) and not self.files:
            self.why_not = "other_host"  # it has the snapshot of the work
        if self.files and self._puts_back:
            self._put_back()

    def digest(self) -> str | None:
        """Return the digest of the folder as the next step finds it; None if it is unknown."""
        return self._tree.part(self._work if self.put_back else self._left, self._cwd)

    def add_diff(self, outcome: Outcome, secrets: Collection[str]) -> Outcome:
        """Add what has changed to a judge's outcome; `patch` is the diff without secrets."""
        value = outcome.value if isinstance(outcome.value, dict) else {}
        if self._changed is not None:
            shown: list[JsonValue] = [without_keys(one, secrets) for one in self._changed[:LISTED]]
            value = {**value, "changed": {"files": shown, "count": len(self._changed)}}
        for name, files in self._judging.items():
            value = {**value, name: [without_keys(str(one), secrets) for one in files]}
        left_out = self._tree.left_out()[:NAMED]
        if left_out:
            value = {**value, "left_out": [without_keys(one, secrets) for one in left_out]}
        if self.why_not is not None:
            value = {**value, "not_compared": self.why_not}
        earlier = self._read_earlier()
        all_files = sorted({*self.files, *earlier.files})
        moved = list(dict.fromkeys([*earlier.moved, *self.moved]))
        if not all_files and not moved:
            return outcome.model_copy(update={"value": value, "digest": self.digest()})
        self._pack(secrets)
        names = [without_keys(one, secrets) for one in all_files[:NAMED]]
        put_back = self.put_back or not self.files
        facts: dict[str, JsonValue] = {
            "files": [*names], "count": len(all_files), "put_back": put_back,
        }  # fmt: skip
        if moved:
            facts["git"] = [without_keys(one, secrets) for one in moved]
        warning = _warning(names, len(all_files), moved, put_back=put_back)
        outcome = self._mark_stale(outcome, [without_keys(one, secrets) for one in self.files])
        return outcome.model_copy(
            update={
                "value": {**value, "changed_by_checkers": facts},
                "digest": self.digest(),
                "diff": self._address if self.patch else None,
                "warning": "; ".join(filter(None, (outcome.warning, warning))),
            }
        )

    def _pack(self, secrets: Collection[str]) -> None:
        """Store the diff of what has changed, without secrets."""
        text = self._tree.patch(self._work, self._left) if self.files else None
        if text:
            packed = without_keys(text, secrets)
            self.patch = pack_diff(self._work, str(self._left), packed, by="checkers")

    def _read_earlier(self) -> _Earlier:
        """What was put back before the isolated checks of this round, or by a killed attempt."""
        try:
            round_, *found = json.loads(self._earlier.read_text())
        except (OSError, ValueError):
            return _Earlier([], [])
        return _Earlier(*found) if round_ == self._round else _Earlier([], [])

    def _note_earlier(self, files: Sequence[str], moved: Sequence[str]) -> None:
        before = self._read_earlier()
        both = ({*before.files, *files}, {*before.moved, *moved})
        self._earlier.write_text(json.dumps([self._round, *map(sorted, both)]))

    def _put_git_back(self) -> list[str]:
        """Put HEAD, its branch and the index back; return what was changed, in words."""
        state = GitState(self._tree)
        if state.is_missing():
            self.why_not = self.why_not or "other_host"
        moved = state.changes()
        if moved:
            self._note_earlier([], moved)
            try:
                state.put_back()
            except (OSError, subprocess.SubprocessError) as error:
                log.warning("HEAD could not be put back", extra={"why": str(error)})
        return moved

    def _mark_stale(self, outcome: Outcome, names: list[str]) -> Outcome:
        """The outcome of a judge whose checkers may have seen another state than there is now."""
        code = outcome.reason.code if outcome.reason is not None else None
        is_judged = outcome.verdict is not None and code not in _NOT_CHECKED
        if not (self.files and is_judged and self._is_judge) or self.put_back:
            return outcome
        listed = list_first(names, SHOWN, of=len(self.files))
        if self._is_rechecked and self._is_of_checkers():
            return outcome
        if self._is_rechecked:
            text = f"{_CHANGED}, and again in the recheck: {listed}; {_FIX}"
            reason = Reason(code=ReasonCode.CONTESTED, text=cut(text, _WARNING))
            update: dict[str, object] = {
                "verdict": "terminate", "text": reason.text, "reason": reason
            }  # fmt: skip
        else:
            self._note_stale()
            note = (
                f"{_CHANGED} ({listed}), so their verdict, {outcome.verdict}, does not count,"
                f" and they run again."
            )
            text = cut(f"{note}\n\n{outcome.text}".rstrip(), _FEEDBACK)
            update = {"verdict": "retry", "text": text, "reason": None, "recheck": True}
        return outcome.model_copy(update={**update, "stale": outcome.verdict})

    def _note_stale(self) -> None:
        """Keep what has changed without being work: only checkers change it again."""
        work = {*self._tree.tracked(self.files)}
        work.update(self.files if self._changed is None else self._changed)
        files = [name for name in self.files if name not in work]
        self._stale.write_text(json.dumps([turn_of(self._round), files]))

    def _is_of_checkers(self) -> bool:
        """Whether nothing has changed in the recheck but what the stale round had changed."""
        try:
            run, files = json.loads(self._stale.read_text())
        except (OSError, ValueError):
            return False
        return run == turn_of(self._round) and set(self.files) <= set(files)

    def _found(self) -> str | None:
        """The state after the checkers; of an attempt that was killed, as that had found it."""
        at, _, left = self._read_marker().partition(" ")
        if at == self._at and self._tree.knows(left):
            return left
        found = self._tree.snapshot()
        if found is None:
            self.why_not = self._tree.failure
        return found

    def _put_back(self) -> None:
        self._marker.write_text(f"{self._at} {self._left}")
        try:
            self._tree.put_back(self._work)
        except SnapshotLost as error:
            log.warning("the work could not be put back", extra={"why": str(error)})
        else:
            self.put_back = True

    def _read_marker(self) -> str:
        try:
            return self._marker.read_text()
        except OSError:
            return ""


class _Earlier(NamedTuple):
    """What was put back earlier in a round: files, and what git has of the worktree."""

    files: list[str]
    moved: list[str]


def _warning(names: list[str], count: int, moved: list[str], *, put_back: bool) -> str:
    what = "1 file was" if count == 1 else f"{count} files were"
    end = (
        "the work of the doer was put back"
        if put_back
        else "that is not the doer's work, and it was left as it is"
    )
    listed = list_first(names, SHOWN, of=count)
    files = f"{what} changed while checkers judged the work: {listed}; {end}"
    git = f"checkers changed what git has of the worktree: {', '.join(moved)}; it was put back"
    parts = [*([files] if count else []), *([git] if moved else [])]
    return cut("; ".join(parts), _WARNING)


class Isolation(CheckRound):
    """The work of the doer, as it was put back for a check that runs by itself.

    What was put back is of the round: it is stored with its diff by the check, and named by the
    judge. A check that no judge follows puts back and names what it has changed itself.
    """

    def __init__(self, tree: Worktree, recorded: str, work: Work) -> None:
        super().__init__(tree, recorded, work)
        self._after = partial(CheckRound, tree, recorded, work) if is_lone(work) else None

    def _put_back(self) -> None:
        self._note_earlier(self.files, [])
        super()._put_back()

    @property
    def refusal(self) -> str | None:
        """Return why the folder does not have the work and nothing else; None if it does."""
        if not self._puts_back:
            return "an isolated one needs a worktree or copy of the session's own"
        if not self._work.startswith("git:"):
            return "the work that it judges is not recorded"
        if self.why_not is not None:
            return f"its folder cannot be compared with the work: {self.why_not}"
        if self.files and not self.put_back:
            return "the work could not be put back before it"
        return None

    def digest(self) -> str | None:
        """Return the digest of the folder as the check has left it: no person has done that."""
        return self._tree.part(self._tree.snapshot(), self._cwd)

    def add_diff(self, outcome: Outcome, secrets: Collection[str]) -> Outcome:
        """Add the diff of what was put back to a check's outcome, and how the check ran."""
        self._pack(secrets)
        diff = self._address if self.patch else None
        if self.refusal is not None:
            return outcome.model_copy(update={"digest": self.digest(), "diff": diff})
        outcome = outcome.model_copy(update={"diff": diff, "ran": "isolated"})
        if self._after is None:
            return outcome.model_copy(update={"digest": self.digest()})
        self._marker.unlink(missing_ok=True)  # it is about what was put back before the check
        after = self._after()
        if not (self.files or self.moved or after.files or after.moved):
            return outcome.model_copy(update={"digest": after.digest()})
        found = after.add_diff(outcome, secrets)
        self.patch = after.patch or self.patch
        return found.model_copy(update={"diff": found.diff or diff})


class LoneCheck:
    """The folder around a check that no judge follows: what it changes is no work either."""

    #: For the settle, as of a doer's look.
    changed, work = False, None

    def __init__(self, tree: Worktree, work: Work) -> None:
        self._round = partial(CheckRound, tree, work=work)
        self._tree, self._cwd, self._at = tree, work.cwd or tree.folder, _at(work)
        self.patch: str | None = None
        begun = tree.shelf / _LONE
        self._before = self._begun_before(begun)
        if self._before is not None and tree.knows(self._before):
            self._round(recorded=self._before)  # what an attempt that was killed has left
            return
        self._before = tree.snapshot()
        if tree.is_own and self._before is not None:
            GitState(tree).record()
        if self._before is not None:
            begun.write_text(f"{self._at} {self._before}")

    def digest(self) -> str | None:
        """Return the digest of the folder as a check that was ended has left it."""
        return self._tree.part(self._tree.snapshot(), self._cwd)

    def add_diff(self, outcome: Outcome, secrets: Collection[str]) -> Outcome:
        """Compare the folder, put it back if it is the session's own, and name what differs."""
        if self._before is None:
            return outcome
        (self._tree.shelf / _ROUND).unlink(missing_ok=True)  # of an attempt that was killed
        found = self._round(recorded=self._before)
        if not (found.files or found.moved):
            return outcome.model_copy(update={"digest": found.digest()})
        outcome = found.add_diff(outcome, secrets)
        self.patch = found.patch
        return outcome

    def _begun_before(self, begun: Path) -> str | None:
        try:
            at, _, digest = begun.read_text().partition(" ")
        except OSError:
            return None
        return digest if at == self._at else None


def is_lone(work: Work) -> bool:
    """Whether the step is a check that no judge follows, and beside which no other step runs."""
    is_check = work.step.action is Action.CHECK and "lone" in work.inputs
    return is_check and not work.is_beside and not does_work(work)


def lone_check(work: Work, spill: Path, top: Path | None, *, most: int) -> LoneCheck:
    """Takes a snapshot of the folder before a check that no judge follows."""
    return LoneCheck(session_tree(work, spill, top, most=most), work)


def is_isolated(work: Work) -> bool:
    """Whether the work is put back before the step: it is a check that runs by itself."""
    checker = work.inputs.get("checker") if work.step.action is Action.CHECK else None
    wanted = isinstance(checker, dict) and checker.get("isolated") is True
    return wanted and not work.inputs.get("is_baseline")


def isolate(work: Work, spill: Path, top: Path | None, recorded: str | None) -> Isolation:
    """Puts the recorded work back into a folder of the session's own, for an isolated check."""
    return Isolation(session_tree(work, spill, top), recorded or "", work)


def _at(work: Work) -> str:
    """Names a step in the notes beside the snapshots, which sessions in the folder share."""
    return f"{work.ref.id}:{work.grant.address}"


def _round_of(work: Work) -> str:
    """Names the checks that a judge ends; a check that no judge follows is a round by itself."""
    return _at(work) if is_lone(work) else f"{work.ref.id}:{block_of(work.grant.address)}"


def _changed(tree: Worktree, base: str | None, work: str) -> list[str] | None:
    """The files that differ from when the loop's run began; None if that is unknown."""
    names = tree.changed_names(base, work)
    is_known = base is not None and (bool(names) or base == work)
    return names if is_known else None


def diff_of_loop(work: Work, state: FolderState, spill: Path, top: Path | None) -> str:
    """Returns the diff of all work since a loop's run began; '' if a state is unknown."""
    return session_tree(work, spill, top).patch(state.base, state.work) or ""


def compare_round(
    work: Work, spill: Path, state: FolderState, top: Path | None
) -> CheckRound | None:
    """Compares a judge's folder with the recorded work; None if no work is recorded.

    `top` is the session's own worktree or copy. What has changed while the session was stopped may
    be a person's, and what other sessions write at the same time is theirs: it is not put back.
    """
    recorded = state.work
    if work.cwd is None or recorded is None or not recorded.startswith("git:"):
        return None
    tree = session_tree(work, spill, top)
    ignored = IgnoredFiles(tree, work)
    changed = _changed(tree, state.base, recorded)
    found = CheckRound(tree, recorded, work, changed=changed, ignored=ignored.changed())
    if state.base is not None and changed is None:
        found.why_not = found.why_not or "other_host"
    return found
