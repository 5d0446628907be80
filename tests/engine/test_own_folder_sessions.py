"""Sessions with a folder of their own: the path is known and signed at create, for any document."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from app import folders
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Loop, Program, Step
from app.errors import InvalidDocument
from app.sessions.fork import Wish
from leadhand.cli.render.result_text import next_steps
from leadhand.cli.render.session_text import session_lines
from leadhand.cli.show import explanation
from leadhand.errors import ControlRefused
from leadhand.flows.documents import AnyDocument
from tests.engine.world import World
from tests.unit.workers.folders.repositories import ENV
from workers.attempt.settle import park
from workers.folders.spill import folder_failure

LOOP = {
    "kind": "loop",
    "task": "Do it",
    "doer": {"command": "true"},
    "baseline": False,
    "checkers": ["true"],
}
DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def submit(world: World, document: Mapping[str, object], *, free: bool = True) -> SessionRef:
    given = DOCUMENT.validate_python({"worktree": True, **document})
    session = world.engine.submit.document(given, free=free).session
    return SessionRef(session, session)


def program_of(world: World, ref: SessionRef) -> Program:
    return world.engine.registry.program(world.engine.store.fields(ref)["program"])


def finish(world: World, ref: SessionRef, verdict: str = "accept") -> None:
    world.settle(ref, world.grant(ref, "workspace"))
    folders.record_own(world.engine, {"session": ref.id, "kind": "worktree", "branch": "b"})
    world.settle(ref, world.grant(ref, "loop~1[1]/do"))
    answer = world.settle(ref, world.grant(ref, "loop~1[1]/check.true"))
    judged = Outcome.model_validate({"word": "succeeded", "verdict": verdict})
    world.settle(ref, world.judge(ref, answer), judged)
    if verdict == "accept":
        world.settle(ref, world.grant(ref, "keep"))


def test_path_is_known_and_signed_at_create(world: World, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub").mkdir()
    ref = submit(world, LOOP | {"cwd": str(tmp_path / "sub")})
    fields = world.engine.store.fields(ref)
    root = world.engine.settings.worktrees_root.resolve()
    assert Path(fields["cwd"]).parts[-3:] == (ref.id, "tree", "sub")
    assert Path(fields["cwd"]).is_relative_to(root)
    assert fields["folder"].endswith(f":{fields['cwd']}")
    work = world.engine.attempts.work(ref, world.grant(ref, "workspace"))  # raises if unsigned
    assert work.inputs == {"do": "open", "origin": str(tmp_path / "sub"), "prefix": "sub"}
    view = world.engine.queries.session(ref.id).worktree
    assert view is not None
    assert (view.origin, view.kind) == (str(tmp_path / "sub"), None)


@pytest.mark.parametrize(
    ("fields", "subject"),
    [
        ({"task": "\n# Fix the parser\n\nIt drops lines."}, "Fix the parser"),
        ({"task": "Fix it", "label": "parser"}, "parser"),
        ({"task": "word " * 40}, f"{('word ' * 15)[:71].rstrip()}…"),
    ],
)
def test_commit_is_named_by_the_label_or_the_first_line_of_the_task(
    world: World, tmp_path: Path, fields: Mapping[str, str], subject: str
) -> None:
    ref = submit(world, LOOP | {"cwd": str(tmp_path), **fields})
    keep = program_of(world, ref).body[-1]
    assert isinstance(keep, Step)
    assert str(keep.inputs["message"]).partition("\n")[0] == subject
    assert len(subject) <= 72


@pytest.mark.parametrize(("verdict", "option"), [("accept", ""), ("terminate", " --force")])
def test_ended_session_says_where_its_work_is(
    world: World, tmp_path: Path, verdict: str, option: str
) -> None:
    ref = submit(world, LOOP | {"cwd": str(tmp_path)})
    finish(world, ref, verdict)
    result, apply = world.engine.queries.result(ref.id), f"leadhand apply {ref.id}{option}"
    explained = world.engine.explainer.explain(ref.id)
    path = result.worktree.folder if result.worktree is not None else ""
    where = f"its work is on branch b, in {path}"
    assert list(next_steps(result))[:2] == [where, f"bring it home with: {apply}"]
    assert where in explanation(explained)
    assert apply in explained.next
    assert f"bring it home with: {apply}" in session_lines(
        world.engine.queries.session(ref.id), [], []
    )
    locked = "another git is at work, or was killed and left its lock: remove the lock"
    folders.record_own(world.engine, {"session": ref.id, "refused": locked})
    session = world.engine.queries.session(ref.id)
    for lines in (
        explanation(world.engine.explainer.explain(ref.id)),
        session_lines(session, [], []),
    ):
        assert [one for one in lines if locked in one] == [f"not applied: {locked}"]
    folders.record_own(world.engine, {"session": ref.id, "applied": "main was fast-forwarded"})
    assert not any(
        "leadhand apply" in one for one in next_steps(world.engine.queries.result(ref.id))
    )
    assert apply not in world.engine.explainer.explain(ref.id).next


def test_user_may_work_in_the_folder_meanwhile(world: World, tmp_path: Path) -> None:
    ref = submit(world, LOOP | {"cwd": str(tmp_path)})
    world.settle(ref, world.grant(ref, "workspace"))
    world.grant(ref, "loop~1[1]/do")
    other = world.session(str(tmp_path))
    world.grant(other, "loop~1[1]/do")


def test_document_without_a_folder_is_refused(world: World) -> None:
    with pytest.raises(InvalidDocument, match="name the folder"):
        submit(world, LOOP)


@pytest.mark.parametrize("is_packed", [False, True])
def test_branch_in_the_way_of_own_branches_is_refused_at_the_submit(
    world: World, tmp_path: Path, *, is_packed: bool
) -> None:
    repo, linked = tmp_path / "repo", tmp_path / "linked"
    for words in (
        ["init", "-q", str(repo)],
        ["-C", str(repo), "commit", "-qm", "1", "--allow-empty"],
        ["-C", str(repo), "worktree", "add", "-q", str(linked)],
        ["-C", str(repo), "branch", "leadhand"],
        *([["-C", str(repo), "pack-refs", "--all"]] if is_packed else []),
    ):
        subprocess.run(["git", *words], check=True, env=ENV)
    (linked / "sub").mkdir()
    for folder in (repo, linked, linked / "sub"):
        with pytest.raises(InvalidDocument, match="the branch 'leadhand' is in the way"):
            submit(world, LOOP | {"cwd": str(folder)})
    subprocess.run(["git", "branch", "-m", "leadhand", "other"], check=True, env=ENV, cwd=repo)
    submit(world, LOOP | {"cwd": str(linked)})


def test_every_node_waits_for_the_folder_and_is_waited_for(world: World, tmp_path: Path) -> None:
    """A phase may have the name of Leadhand's own step; steps may start side by side."""
    phases = [LOOP | {"name": name} for name in ("workspace", "keep")]
    phases = [{k: v for k, v in one.items() if k != "kind"} for one in phases]
    ref = submit(world, {"kind": "workflow", "name": "w", "phases": phases, "cwd": str(tmp_path)})
    program = program_of(world, ref)
    first, *_, last = program.body
    assert isinstance(first, Step)
    assert isinstance(last, Step)
    ids = [node.id for node in program.body]
    assert len(ids) == len(set(ids))
    assert (first.inputs["do"], last.inputs["do"]) == ("open", "close")
    assert [one.id for one in program.body if isinstance(one, Loop)] == ids[1:-1]
    assert last.needs == (ids[-2],)
    assert world.hints == [(ref, first.id)]


def test_apply_is_a_session_in_the_users_folder(world: World, tmp_path: Path) -> None:
    ref = submit(world, LOOP | {"cwd": str(tmp_path)})
    with pytest.raises(ControlRefused, match="wait for its end"):
        folders.apply(world.engine, ref.id, force=True)
    finish(world, ref)
    assert world.engine.queries.session(ref.id).status == "completed"
    started = folders.apply(world.engine, ref.id, force=False).session
    other = SessionRef(started, started)
    fields = world.engine.store.fields(other)
    assert fields["folder"].endswith(f":{tmp_path}")
    work = world.engine.attempts.work(other, world.grant(other, "apply~1[1]/merge"))
    assert (work.inputs["do"], work.inputs["session"]) == ("merge", ref.id)
    assert (str(work.cwd), work.locks_another) == (
        f"{Path(work.facts.cwd or '').parent}/.merge",
        None,
    )
    holder = world.session(str(tmp_path))
    assert world.claim(holder, "loop~1[1]/do").why == "lock"
    folders.record_own(world.engine, {"session": ref.id, "applied": "done", "refused": ""})
    view = world.engine.queries.session(ref.id).worktree
    assert view is not None
    assert (view.applied, view.refused, view.branch) == ("done", None, "b")


def test_unaccepted_work_is_applied_only_by_force(world: World, tmp_path: Path) -> None:
    ref = submit(world, LOOP | {"cwd": str(tmp_path)})
    finish(world, ref, "terminate")
    with pytest.raises(ControlRefused, match="its work was not accepted; --force"):
        folders.apply(world.engine, ref.id, force=False)
    assert folders.apply(world.engine, ref.id, force=True).session


def test_session_without_a_folder_of_its_own_has_nothing_to_apply(world: World) -> None:
    with pytest.raises(ControlRefused, match="it worked in the folder itself"):
        folders.apply(world.engine, world.session().id, force=True)


def test_clean_waits_for_the_end_and_removes_once(world: World, tmp_path: Path) -> None:
    ref = submit(world, LOOP | {"cwd": str(tmp_path)})
    found = folders.find_own(world.engine, ref.id)
    assert found is not None
    assert [one.kept for one in folders.clean_own(world.engine, found, force=True).failed] == [
        "its session is active"
    ]
    finish(world, ref)
    found = folders.find_own(world.engine, ref.id)
    assert found is not None
    started = folders.clean_own(world.engine, found, force=False)
    assert started.session is not None
    work = world.engine.attempts.work(
        SessionRef(started.session, started.session),
        world.grant(SessionRef(started.session, started.session), "discard"),
    )
    assert (work.inputs["do"], work.inputs["force"]) == ("discard", False)
    folders.record_own(world.engine, {"session": ref.id, "cleaned": True, "kept": ""})
    found = folders.find_own(world.engine, ref.id)
    assert found is not None
    assert found.cleaned
    assert folders.clean_own(world.engine, found, force=True).session is None
    with pytest.raises(ControlRefused, match="its folder was removed"):
        folders.apply(world.engine, ref.id, force=True)


def test_subflow_works_in_the_folder_of_its_parent(world: World, tmp_path: Path) -> None:
    """Its document was compiled into the program before that folder was known."""
    child = {"steps": [{"type": "wait", "seconds": 1}]}
    flow = {
        "kind": "flow",
        "steps": [{"type": "subflow", "flowNames": ["inner"]}],
        "cwd": str(tmp_path),
    }
    ref = submit(world, flow | {"flows": {"inner": child}, "place": "there"})
    there = world.at("there")
    (answer,) = there.settle(ref, there.grant(ref, "workspace")).grants
    work = there.engine.attempts.work(ref, answer)
    assert park(world.engine, work) is None  # from here it is not visible whether there is one
    parked = world.engine.store.steps(ref, [answer.address])[answer.address].parked
    assert parked is not None
    fields = world.engine.store.fields(SessionRef(str(parked["child"]), ref.id))
    own = world.engine.store.fields(ref)["cwd"]
    assert fields["cwd"] == own
    assert "own_folder" not in fields or not fields["own_folder"]


def test_fact_of_a_deleted_session_is_dropped(world: World) -> None:
    folders.record_own(world.engine, {"session": "00000000", "cleaned": True})
    assert world.engine.store.ref("00000000") is None


def test_facts_are_stored_as_one_json_text(world: World, tmp_path: Path) -> None:
    ref = submit(world, LOOP | {"cwd": str(tmp_path)})
    folders.record_own(world.engine, {"session": ref.id, "kind": "copy"})
    stored = json.loads(world.engine.store.fields(ref)["own_folder"])
    assert stored["kind"] == "copy"
    assert stored["origin"] == str(tmp_path)


def test_folder_of_its_own_is_made_only_from_one_beneath_a_root(
    world: World, tmp_path: Path
) -> None:
    """The worktree itself is always beneath a folder in which steps may work."""
    origin, root = tmp_path / "outside", tmp_path / "root"
    origin.mkdir()
    ref = submit(world, LOOP | {"cwd": str(origin)})
    work = world.engine.attempts.work(ref, world.grant(ref, "workspace"))
    settings = world.engine.settings.model_copy(update={"spill": tmp_path / "spill"})
    failed = folder_failure(work, settings.model_copy(update={"roots": (root,)}))
    assert failed is not None
    assert f"{str(origin)!r} is not beneath a root" in failed.text
    assert folder_failure(work, settings.model_copy(update={"roots": (tmp_path,)})) is None


def test_without_a_recorded_state_it_is_rerun_instead_of_forked(
    world: World, tmp_path: Path
) -> None:
    ref = submit(world, LOOP | {"cwd": str(tmp_path)})
    finish(world, ref, "retry")
    with pytest.raises(ControlRefused, match=f"leadhand rerun {ref.id}"):
        world.engine.forks.fork(ref.id, Wish("loop[1]/do"))
    with pytest.raises(InvalidDocument, match="its fork gets another"):
        world.engine.forks.fork(ref.id, Wish("loop[1]/do", as_is=True))
