"""Looks at the working folder before and after a doer: its digest, and what the doer changed.

Who works there first after a stop looks too, whatever it is: what a script or a checker leaves
there must not be taken for somebody else's change. What those changed is not kept.
"""

from __future__ import annotations

import base64
import gzip
import json
import logging
from collections.abc import Collection
from pathlib import Path

from app.outcomes import Outcome
from app.program import Action
from app.redaction import without_keys
from app.working import Left, Work
from workers.worktree import Worktree

log = logging.getLogger(__name__)


class Look:
    """From the beginning of one attempt to its end."""

    def __init__(self, tree: Worktree, address: str, left: Left, *, keeps: bool = True) -> None:
        self._tree = tree
        self._keeps = keeps
        self._address = address
        self._before = left.digest
        self.changed = False
        #: The difference that the attempt made, as it is kept; None where git cannot say.
        self.patch: str | None = None
        if left.digest is None or left.compare or not tree.knows(left.digest):
            found = tree.snapshot()
            self.changed = (
                left.compare and None not in (found, left.digest) and found != left.digest
            )
            if not tree.knows(left.digest):
                self._before = found

    def digest(self) -> str | None:
        """The folder's digest as it is now."""
        return self._tree.snapshot()

    def seen(self, outcome: Outcome, secrets: Collection[str]) -> Outcome:
        """The outcome of the attempt with the folder's digest, and where its difference is kept.

        That shows none of the secrets that it may have been handed, nor what looks like a key.
        """
        after = self.digest()
        if after is None:
            log.info("no digest of the folder")
            return outcome
        text = self._tree.patch(self._before, after) if self._keeps else None
        if not text:
            return outcome.model_copy(update={"digest": after})
        self.patch = packed(str(self._before), after, without_keys(text, secrets))
        return outcome.model_copy(update={"digest": after, "diff": self._address})


def look_at(work: Work, left: Left, spill: Path) -> Look:
    """Begin to look at the folder that somebody is about to work in."""
    assert work.cwd is not None
    tree = Worktree(work.cwd, spill / work.ref.id / "work")
    return Look(tree, work.grant.address, left, keeps=work.step.action is Action.AGENT)


def is_looked_at(work: Work) -> bool:
    """Whether a step works in a folder, so that its work can be seen there, or others' work."""
    return work.cwd is not None and (work.step.action is Action.AGENT or work.grant.compare)


def packed(before: str, after: str, text: str) -> str:
    """A difference as it is kept: short, and text for Redis' scripts."""
    whole = json.dumps({"before": before, "after": after, "patch": text}).encode()
    return base64.b64encode(gzip.compress(whole, mtime=0)).decode()
