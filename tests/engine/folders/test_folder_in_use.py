"""A worker changes the folder of an ended session only while that session cannot be resumed."""

from __future__ import annotations

import shutil
import threading
from functools import partial
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from app import folders
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action
from app.core.states import ENDED, Control, SessionStatus
from leadhand.errors import ControlRefused, SessionChanged
from leadhand.flows.documents import AnyDocument
from tests.engine.world import World
from tests.unit.workers.folders.repositories import git, make_repository
from workers.attempt.workspace_step import carry_out, turn_failure
from workers.git.audit import OrphanCleanup
from workers.git.cleaning import WorktreeRescue
from workers.git.git import Git
from workers.git.layout import open_worktrees, record_file, write_record
from workers.git.own_folders import Home, open_folder
from workers.registry.agents import AgentBook
from workers.task import BodyTask

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
LOOP = {
    "kind": "loop",
    "task": "Do it",
    "doer": {"command": "true"},
    "baseline": False,
    "checkers": ["true"],
}
DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
TERMINATE = Outcome.model_validate({"word": "succeeded", "verdict": "terminate"})


class Failed:
    """A session that failed, and left something in its worktree."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.engine = world, world.engine
        self.repo = make_repository(folder / "repo")
        given = {**LOOP, "worktree": True, "cwd": str(self.repo)}
        id_ = self.engine.submit.document(DOCUMENT.validate_python(given), free=True).session
        self.ref = SessionRef(id_, id_)
        self.home = Home(self.engine.settings.worktrees_root, id_, self.repo, "")
        open_folder(Git(self.repo), self.home, most=1)
        world.settle(self.ref, world.grant(self.ref, "workspace"))
        folders.record_own(self.engine, {"session": id_, "kind": "worktree"})
        self.fail()

    @property
    def status(self) -> str:
        return self.engine.store.fields(self.ref)["status"]

    def control(self, verb: Control) -> None:
        self.engine.control.apply(self.ref.id, verb)

    def fail(self) -> None:
        """Run one turn of a doer that leaves a file, and end the loop without acceptance."""
        block = "loop~1[1]"
        if self.status != "active":
            self.control("resume")
            block = "loop~2[1]"
        grant = self.world.grant(self.ref, f"{block}/do")
        work = self.engine.attempts.work(self.ref, grant)
        assert turn_failure(work, self.home.root) is None
        (self.home.path / f"left by {block.replace('/', ' ')}").write_text("half")
        self.world.settle(self.ref, grant)
        answer = self.world.settle(self.ref, self.world.grant(self.ref, f"{block}/check.true"))
        self.world.settle(self.ref, self.world.judge(self.ref, answer, block), TERMINATE)
        assert self.status == "failed"

    def left(self) -> str:
        return git(self.home.path, "status", "--porcelain")

    def step(self, started: str, name: str, root: Path | None = None) -> Outcome:
        """Carry out the step of a session that cleans or applies."""
        ref = SessionRef(started, started)
        work = self.engine.attempts.work(ref, self.world.grant(ref, name))
        task = BodyTask(
            session=started, address=name, action=Action.WORKSPACE, iteration=1, attempt=1,
            inputs=work.inputs, cwd=work.cwd, spill=self.repo.parent / "spill", timeout_s=20.0,
            url="", mint=str, agents=AgentBook(agents={}), default_agent=None,
            worktrees=root or self.home.root, reserve=partial(folders.reserve, self.engine),
            release=partial(folders.release, self.engine),
            on_workspace=partial(folders.record_own, self.engine),
        )  # fmt: skip
        return carry_out(task, threading.Event())

    def clean(self) -> str:
        found = folders.find_own(self.engine, self.ref.id)
        assert found is not None
        started = folders.clean_own(self.engine, found, force=True).session
        assert started is not None
        return started


@pytest.fixture
def failed(store_url: str, tmp_path: Path) -> Failed:
    return Failed(World(store_url, worktrees=tmp_path / "state"), tmp_path)


def test_reserved_folder_keeps_its_session_from_being_resumed(failed: Failed) -> None:
    assert folders.reserve(failed.engine, failed.ref.id, ENDED, 60) == ""
    with pytest.raises(ControlRefused, match="a worker commits, applies or removes"):
        failed.control("resume")
    folders.release(failed.engine, failed.ref.id)
    failed.control("resume")
    assert folders.reserve(failed.engine, failed.ref.id, ENDED, 60) == "active"


def test_reservation_of_a_dead_worker_ends(failed: Failed) -> None:
    folders.reserve(failed.engine, failed.ref.id, ENDED, 60)
    failed.world.now += 60_001
    failed.control("resume")
    assert failed.status == "active"


def test_resume_by_the_parent_is_tried_again(failed: Failed) -> None:
    parent = failed.world.session()
    failed.control("resume")
    failed.control("stop")
    folders.reserve(failed.engine, failed.ref.id, ENDED, 60)
    follow = partial(failed.engine.control.follow, failed.ref, "resume", parent)
    with pytest.raises(SessionChanged):  # so that the message stays in the outbox
        follow((SessionStatus.ACTIVE,))
    folders.release(failed.engine, failed.ref.id)
    follow((SessionStatus.ACTIVE,))
    assert failed.status == "active"


def test_clean_leaves_the_folder_of_a_session_that_was_resumed(failed: Failed) -> None:
    started = failed.clean()
    failed.control("resume")
    failed.step(started, "discard")
    assert failed.left()
    found = folders.find_own(failed.engine, failed.ref.id)
    assert found is not None
    assert (found.cleaned, found.kept) == (False, "its session is active")


def test_apply_leaves_the_folder_of_a_session_that_was_resumed(failed: Failed) -> None:
    started = folders.apply(failed.engine, failed.ref.id, force=True).session
    failed.control("resume")
    outcome = failed.step(started, "apply~1[1]/merge")
    assert outcome.reason is not None
    assert (outcome.word, outcome.reason.text) == ("failed", "its session is active")
    assert failed.left()


def test_clean_ends_its_reservation(failed: Failed) -> None:
    failed.step(failed.clean(), "discard")
    assert not failed.home.path.exists()
    failed.control("resume")
    assert failed.status == "active"


@pytest.mark.parametrize("step", ["discard", "apply~1[1]/merge"])
def test_worker_with_another_folder_for_worktrees_refuses(
    failed: Failed, tmp_path: Path, step: str
) -> None:
    id_ = failed.ref.id
    apply = partial(folders.apply, failed.engine, id_, force=True)
    started = failed.clean() if step == "discard" else apply().session
    outcome = failed.step(started, step, tmp_path / "other")
    assert outcome.reason is not None
    assert f"the folder of session {id_} is {str(failed.home.path)!r}" in outcome.reason.text
    found = folders.find_own(failed.engine, id_)
    assert found is not None
    assert not found.cleaned


def test_rescue_leaves_a_session_that_was_resumed_while_it_waited(failed: Failed) -> None:
    rescue, store = WorktreeRescue(failed.engine), failed.engine.store
    read = store.fields_of

    def read_then_resume(sessions: list[str]) -> object:
        found = read(sessions)
        failed.control("resume")
        return found

    store.fields_of = read_then_resume  # type: ignore[method-assign,assignment]
    assert rescue.rescue() == []
    assert failed.left()
    assert list(open_worktrees(failed.home.root)) == [failed.home.path]


def test_rescue_that_failed_is_repeated(failed: Failed) -> None:
    rescue = WorktreeRescue(failed.engine)
    git(failed.home.path, "checkout", "-qb", "mine")
    assert rescue.rescue() == []
    git(failed.home.path, "checkout", "-q", f"leadhand/{failed.ref.id}")
    assert rescue.rescue() == [str(failed.home.path)]
    assert not failed.left()


def test_session_that_fails_again_is_rescued_again(failed: Failed) -> None:
    rescue = WorktreeRescue(failed.engine)
    assert rescue.rescue() == [str(failed.home.path)]
    failed.fail()
    assert failed.left()
    assert rescue.rescue() == [str(failed.home.path)]
    assert not failed.left()


def test_session_is_not_deleted_while_its_folder_has_work(failed: Failed) -> None:
    """The folder would be left behind, and nothing could remove or apply it any more."""
    delete, id_ = failed.engine.deletion.delete, failed.ref.id
    with pytest.raises(ControlRefused, match=f"its folder {failed.home.path} may have work"):
        delete(id_)
    assert failed.status == "failed"
    failed.step(failed.clean(), "discard")
    assert delete(id_) is None


def test_session_with_a_folder_is_deleted_by_force_or_after_apply(
    failed: Failed, tmp_path: Path
) -> None:
    other = Failed(failed.world, tmp_path / "other")
    assert failed.engine.deletion.delete(failed.ref.id, force=True) is None
    folders.record_own(other.engine, {"session": other.ref.id, "applied": "done"})
    assert other.engine.deletion.delete(other.ref.id) is None


def test_session_whose_retention_is_over_is_deleted_with_a_folder(failed: Failed) -> None:
    failed.engine.outbox.run(f"forget|{failed.ref.member}")
    assert failed.engine.store.ref(failed.ref.id) is None


def test_folder_of_a_deleted_session_is_removed_once_it_holds_no_work(failed: Failed) -> None:
    cleanup, tree = OrphanCleanup(failed.engine), failed.home.path
    failed.engine.guard.require()
    record = failed.home.require_record()
    write_record(tree, record.model_copy(update={"store": failed.engine.store.expected_id()}))
    assert cleanup.remove_orphans() == 0
    failed.engine.deletion.delete(failed.ref.id, force=True)
    assert cleanup.remove_orphans() == 0
    assert failed.left()
    for one in tree.glob("left by*"):
        one.unlink()
    assert cleanup.remove_orphans() == 1
    assert not tree.exists()
    assert not record_file(tree).exists()


def test_folders_are_listed_page_by_page(failed: Failed, tmp_path: Path) -> None:
    other = Failed(failed.world, tmp_path / "other")
    failed.engine.guard.require()  # gives a new store its id
    own = {"folder": str(other.home.path), "origin": str(other.repo)}
    folders.record_own(other.engine, {"session": other.ref.id, "cleaned": True, **own})
    found = {one.session: one.cleaned for one in folders.list_all(failed.engine, None).items}
    assert found == {failed.ref.id: False, other.ref.id: True}
    place = folders.list_all(failed.engine, None).items[0].place
    here = folders.read_at_place(failed.engine, place, [failed.ref.id, "0123abcd"])
    assert [one.view.session for one in here.folders] == [failed.ref.id]
    assert here.statuses == {failed.ref.id: "failed"}
    assert here.store == failed.engine.store.expected_id()
