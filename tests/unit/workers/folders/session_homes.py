"""The folder of one session and the folder that it was started in, as their worker sees them."""

from __future__ import annotations

from pathlib import Path

from app.core.folders import RecordedState
from tests.unit.workers.folders.repositories import git, make_repository
from workers.folders.snapshots import Worktree
from workers.git.applying import land_work, merge_branch
from workers.git.copies import Changes, apply_copy
from workers.git.git import Git
from workers.git.layout import Record
from workers.git.own_folders import Home, close_folder, discard_folder, open_folder
from workers.git.recorded_tree import Work

SESSION = "5e551045"
BRANCH = f"leadhand/{SESSION}"


class OneHome:
    """A session that was started in a folder."""

    def __init__(self, origin: Path, root: Path, prefix: str = "") -> None:
        self.origin = origin
        self.home = Home(root, SESSION, origin, prefix)
        self.git = Git(origin)
        self.most = 1_000_000

    @classmethod
    def clean_repository(cls, folder: Path) -> OneHome:
        """A session in a repository without changes."""
        repo = make_repository(folder / "the user's repo")
        git(repo, "reset", "-q", "--hard")
        git(repo, "clean", "-q", "-f")
        return cls(repo, folder / "state" / "worktrees")

    def open(
        self,
        store: str = "",
        state: RecordedState | None = None,
        leave_out: tuple[str, ...] | None = None,
    ) -> Record:
        return open_folder(
            self.git, self.home, most=self.most, store=store, state=state, leave_out=leave_out
        )

    @property
    def snapshots(self) -> Path:
        return self.home.root.parent / "snapshots"

    def work(self) -> Work:
        """The worktree as it is now, as it is recorded after a doer."""
        tree = Worktree(self.home.path, self.snapshots)
        digest = str(tree.snapshot())
        kept = tree.repository
        assert kept is not None
        tree_id = digest.removeprefix("git:")
        return Work(tree_id, kept.objects, kept.variables, kept.conversions, kept.own_attributes)

    def close(self, message: str = "Do it", work: Work | None = None) -> str:
        return close_folder(self.git, self.home, message, work)

    def apply(self) -> str:
        record = self.home.require_record()
        with self.home.locked(self.git, record.kind) as held:
            work = merge_branch(held, self.home.path, record, SESSION)
            arrived = land_work(held, record, work)
        assert arrived is not None
        return arrived.text

    def apply_copy(self) -> Changes:
        return apply_copy(self.home.path, self.home.cwd, self.origin)

    def discard(self, *, force: bool = False) -> str:
        return discard_folder(self.git, self.home, force=force).kept

    def write(self, name: str, text: str) -> Path:
        """Write a file as the session does."""
        file = self.home.cwd / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def user_writes(self, name: str, text: str) -> None:
        (self.origin / name).write_text(text)

    def user_commits(self, name: str, text: str) -> None:
        self.user_writes(name, text)
        git(self.origin, "add", name)
        git(self.origin, "commit", "-qm", f"Change {name}")
