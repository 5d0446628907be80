"""Sessions of another store are imported at rest, signed anew, and go on after a resume."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.artifacts.folder import ArtifactFolder, Limits
from app.domain.ids import SessionRef
from app.domain.outcomes import Outcome
from app.domain.program import Action, Program, Step
from app.errors import SpecForeign
from app.imports import Order, carry_out
from app.operations.registry import Registry
from app.operations.submission.imports import ImportSessions, Origin
from app.operations.submit import About
from app.store.imports import COPY_TTL_S, Imports
from leadhand.models.documents import LoopDocument
from tests.engine.children.test_children import family
from tests.engine.graphs.graph_world import GraphWorld
from tests.engine.test_fsck import audit
from tests.engine.world import World
from workers.attempt.park import park


class Move:
    """A state folder with a store, and the store of the user's services."""

    def __init__(self, url: str, path: Path, *, is_own: bool = True) -> None:
        self.old = World(url, artifacts=path / "old" / "artifacts")
        target = url.removesuffix("/0") + "/2"
        self.new = World(
            target, place="mine", secret="another", artifacts=path / "artifacts",
            spill=path / "spill", own_redis=True,
        )  # fmt: skip
        self.new.now = self.old.now + 3_600_000
        self.folder = path / "old"
        origin = Origin(self.old.engine.store, self.old.engine.registry, self.folder, is_own)
        engine = self.new.engine
        self.imports = ImportSessions(origin, engine.store, engine.registry, engine.settings)

    def stop(self, ref: SessionRef) -> None:
        self.old.engine.control.apply(ref.id, "stop")
        self.old.later(0)

    def resume(self, ref: SessionRef) -> None:
        self.new.hints.clear()
        self.new.engine.control.apply(ref.id, "resume")
        self.new.later(0)

    def is_consistent(self) -> bool:
        found = audit(self.new.engine.audit.run)
        assert found.items == [], found.items
        return True


@pytest.fixture
def move(store_url: str, tmp_path: Path) -> Move:
    return Move(store_url, tmp_path)


def loop(world: World, **more: Any) -> SessionRef:
    given = {
        "task": "t",
        "baseline": False,
        "checkers": ["true"],
        "doer": {"command": "touch it"},
        **more,
    }
    id_ = world.engine.submit.document(LoopDocument.model_validate(given)).session
    return SessionRef(id_, id_)


def test_a_stopped_session_goes_on_where_it_was(move: Move) -> None:
    ref = loop(move.old, label="nightly")
    move.old.turn(ref, 1, "retry", check="check.true")
    move.stop(ref)
    before = move.old.engine.queries.export(ref.id)
    [found] = move.imports.found()
    assert (found.session, found.status, found.label, found.sessions) == (
        ref.id, "stopped", "nightly", 1,
    )  # fmt: skip
    assert found.runs == ["touch it", "true"]
    assert move.imports.import_tree(ref.id) == {ref.id: "imported"}
    assert move.old.engine.queries.export(ref.id) == before
    view = move.new.engine.queries.session(ref.id)
    assert (view.status, view.label, view.place) == ("stopped", "nightly", "mine")
    assert move.is_consistent()
    move.resume(ref)
    move.new.turn(ref, 2, "accept", check="check.true")
    assert move.new.engine.queries.session(ref.id).status == "completed"
    entries = move.new.engine.queries.ledger(ref.id).items
    assert [entry.iteration for entry in entries] == [1, 2]
    assert move.is_consistent()


def test_a_tree_is_imported_whole(move: Move) -> None:
    parent, child = family(move.old)
    move.old.turn(child, 1, "retry", check="check.true")
    move.stop(parent)
    assert [found.session for found in move.imports.found()] == [parent.id]
    words = move.imports.import_tree(parent.id)
    assert words == {child.id: "imported", parent.id: "imported"}
    assert move.is_consistent()
    move.resume(parent)
    move.new.later(0)
    move.new.turn(child, 2, "accept", check="check.true")
    move.new.later(0)
    assert move.new.engine.queries.session(parent.id).status == "completed"
    assert move.is_consistent()


def test_an_end_that_the_parent_had_not_heard_of_reaches_it(move: Move) -> None:
    parent, child = family(move.old)
    move.old.engine.transitions.deliver = lambda _: None
    move.old.turn(child, 1, "accept", check="check.true")
    move.old.engine.control.apply(parent.id, "stop")
    move.imports.import_tree(parent.id)
    move.resume(parent)
    move.new.later(60_000)
    assert move.new.engine.queries.session(parent.id).status == "completed"


def test_an_open_question_can_be_answered(move: Move) -> None:
    step = Step(
        id="title", action=Action.HUMAN, needs=(), timeout_s=86_400, inputs={"question": "Which?"}
    )
    made = move.old.engine.submit.program(Program(body=(step,)), About(kind="flow", name="x"))
    ref = SessionRef(made.session, made.session)
    work = move.old.engine.attempts.work(ref, move.old.grant(ref, "title"))
    assert park(move.old.engine, work) is None
    move.stop(ref)
    move.imports.import_tree(ref.id)
    assert move.is_consistent()
    move.resume(ref)
    for _, address in move.new.hints:
        work = move.new.engine.attempts.work(ref, move.new.grant(ref, address))
        park(move.new.engine, work)
    [question] = move.new.engine.questions.page(limit=9, cursor=None).items
    assert (question.session, question.question) == (ref.id, "Which?")
    move.new.engine.answers.give(ref.id, "Loops")
    assert move.new.engine.queries.session(ref.id).status == "completed"


def test_an_ended_session_is_kept_as_history(move: Move) -> None:
    ref = loop(move.old)
    move.old.turn(ref, 1, "accept", check="check.true")
    [found] = move.imports.found()
    assert found.runs == []
    move.imports.import_tree(ref.id)
    assert move.new.engine.queries.session(ref.id).status == "completed"
    assert move.is_consistent()
    kept_s = int(move.new.engine.store.fields(ref)["retention"])
    move.new.later(kept_s * 1000 - 1)
    assert move.new.engine.store.ref(ref.id) is not None
    move.new.later(1)
    move.new.later(1000)  # first it leaves the lists
    assert move.new.engine.store.ref(ref.id) is None  # it is deleted in its time
    assert move.is_consistent()


def test_nothing_of_a_tree_at_work_is_imported(move: Move) -> None:
    parent, child = family(move.old)
    assert set(move.imports.import_tree(parent.id).values()) == {"at work"}
    assert move.new.engine.store.ref(child.id) is None


def test_a_repeated_import_changes_nothing(move: Move) -> None:
    ref = loop(move.old)
    move.stop(ref)
    move.imports.import_tree(ref.id)
    move.resume(ref)
    move.new.turn(ref, 1, "accept", check="check.true")
    shown = move.new.engine.queries.export(ref.id)
    assert move.imports.import_tree(ref.id) == {ref.id: "exists"}
    assert move.new.engine.queries.export(ref.id) == shown


def test_an_id_of_another_session_is_left_alone(move: Move) -> None:
    ref = loop(move.old)
    move.stop(ref)
    own = loop(move.new)
    redis = move.new.engine.store._redis
    redis.set(f"lh:id:{ref.id}", own.id)
    assert move.imports.import_tree(ref.id) == {ref.id: "taken"}
    redis.set(f"lh:id:{ref.id}", ref.id)
    redis.hset(f"lh:{{{ref.id}}}:{ref.id}:session", "nonce", "of another")
    assert move.imports.import_tree(ref.id) == {ref.id: "taken"}


def test_an_import_that_was_killed_leaves_nothing(move: Move, monkeypatch: Any) -> None:
    ref = loop(move.old)
    move.old.turn(ref, 1, "retry", check="check.true")
    move.stop(ref)
    before = set(move.new.engine.store._redis.keys("*"))
    store = move.new.engine.store
    monkeypatch.setattr(store, "run", _killed)
    with pytest.raises(KeyboardInterrupt):
        move.imports.import_tree(ref.id)
    monkeypatch.undo()
    left = set(store._redis.keys("*")) - before
    assert left
    assert all(0 < store._redis.ttl(key) <= COPY_TTL_S for key in left)
    assert store.ref(ref.id) is None
    assert move.imports.import_tree(ref.id) == {ref.id: "imported"}
    assert move.is_consistent()


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_records_that_expired_meanwhile_are_not_imported(move: Move) -> None:
    ref = loop(move.old)
    move.stop(ref)
    copy = move.old.engine.store.part(Imports).copy(ref, move.new.engine.store.part(Imports))
    base = move.new.engine.store.keys.base(ref)
    move.new.engine.store._redis.delete(f"{base}steps{copy.mark}")
    text = str(move.old.engine.store.program(move.old.engine.store.fields(ref)["program"]))
    program = Program.model_validate_json(text)
    arguments: dict[str, Any] = {
        "root": ref.root, "program": program.hash, "routes": {}, "copied": copy.mark,
        "counts": {**copy.counts}, "fields": {}, "errands": [], "leases": {},
    }  # fmt: skip
    run = partial(move.new.engine.store.run, "import", ref, program.hash, outcome=text)
    assert run(arguments).word == "torn"
    assert run({**arguments, "store": "of another"}).word == "other_store"
    assert move.new.engine.store.ref(ref.id) is None


def test_a_changed_program_is_not_imported(move: Move) -> None:
    ref = loop(move.old)
    move.stop(ref)
    redis, name = move.old.engine.store._redis, move.old.engine.store.fields(ref)["program"]
    text = str(redis.hget(f"lh:program:{name}", "document"))
    redis.hset(f"lh:program:{name}", "document", text.replace("touch it", "touch that"))
    assert move.imports.import_tree(ref.id) == {ref.id: "unreadable"}
    assert move.new.engine.store.ref(ref.id) is None


def test_a_tree_with_a_changed_program_is_imported_in_no_part(move: Move) -> None:
    parent, child = family(move.old)
    move.stop(parent)
    redis, name = move.old.engine.store._redis, move.old.engine.store.fields(child)["program"]
    redis.hset(f"lh:program:{name}", "document", "{}")
    words = move.imports.import_tree(parent.id)
    assert words == {child.id: "unreadable", parent.id: "unreadable"}
    assert move.new.engine.store.ref(parent.id) is None


def test_a_damaged_tree_that_turns_in_a_circle_is_read_once(move: Move) -> None:
    parent, child = family(move.old)
    move.stop(parent)
    redis = move.old.engine.store._redis
    redis.sadd(f"lh:{{{parent.id}}}:{child.id}:children", parent.id, child.id)
    [found] = move.imports.found()
    assert found.sessions == 2


def test_routes_are_made_from_the_program(move: Move) -> None:
    ref = loop(move.old)
    move.stop(ref)
    redis, name = move.old.engine.store._redis, move.old.engine.store.fields(ref)["program"]
    redis.hset(f"lh:program:{name}", "/loop", json.dumps({"action": "of somebody else"}))
    move.imports.import_tree(ref.id)
    route = move.new.engine.store._redis.hget(f"lh:program:{name}", "/loop")
    assert "somebody else" not in str(route)


def test_receivers_and_owners_stay_behind(move: Move) -> None:
    ref = loop(move.old, webhook={"url": "https://receiver.example/"})
    move.old.engine.store._redis.hset(f"lh:{{{ref.id}}}:{ref.id}:session", "token", "of-before")
    move.stop(ref)
    move.imports.import_tree(ref.id)
    fields = move.new.engine.store.fields(ref)
    assert (fields["webhook"], fields["rings"], fields["token"]) == ("", "", "")
    move.new.engine.control.apply(ref.id, "abort")
    assert move.new.engine.store.due_hooks(9) == []


@pytest.mark.parametrize("is_own", [True, False])
def test_the_environment_comes_along_only_from_a_folder_of_this_user(
    store_url: str, tmp_path: Path, *, is_own: bool
) -> None:
    move = Move(store_url, tmp_path, is_own=is_own)
    ref = loop(move.old, env={"KEY": "value"})
    move.stop(ref)
    move.imports.import_tree(ref.id)
    fresh = Registry(move.new.engine.store, move.new.engine.settings)
    facts = fresh.facts(ref)
    fresh.verified_program(ref, facts)
    passed = fresh.environment(ref, facts.environment).passed
    assert passed == ({"KEY": "value"} if is_own else {})
    assert "value" not in str(
        move.new.engine.store._redis.get(f"lh:{{{ref.id}}}:{ref.id}:environment")
    )


def test_the_secret_of_the_other_store_signs_nothing_here(move: Move) -> None:
    ref = loop(move.old)
    move.stop(ref)
    signature = move.old.engine.store.fields(ref)["signature"]
    move.imports.import_tree(ref.id)
    store = move.new.engine.store
    store._redis.hset(f"lh:{{{ref.id}}}:{ref.id}:session", "signature", signature)
    fresh = Registry(store, move.new.engine.settings)
    with pytest.raises(SpecForeign):
        fresh.verified_program(ref, fresh.facts(ref))


def test_a_graph_goes_on_with_the_results_that_it_has(move: Move) -> None:
    steps: list[dict[str, object]] = [{"name": "a"}, {"name": "b", "arguments": {"a": "${a}"}}]
    graph = GraphWorld(move.old, steps)
    grant = graph.grant("a")
    work = move.old.engine.attempts.work(graph.ref, grant)
    outcome = Outcome(word="succeeded", value={"n": 7})
    move.old.engine.attempts.settle(work, outcome, take=[], worker="w")
    move.stop(graph.ref)
    move.imports.import_tree(graph.id)
    move.resume(graph.ref)
    graph.world, graph.engine = move.new, move.new.engine
    graph.run()
    assert graph.called == ["b"]
    assert graph.result.results["b"] == {"a": {"n": 7}}


def test_artifacts_and_spill_files_come_along(move: Move, tmp_path: Path) -> None:
    ref = loop(move.old)
    move.stop(ref)
    data = b"a long result"
    digest, evil = hashlib.sha256(data).hexdigest(), "../" * 20 + "x" * 4
    (tmp_path / "result").write_bytes(data)
    old = ArtifactFolder(move.folder / "artifacts", Limits(100, 100))
    old.put_file(digest, tmp_path / "result")
    at = f"lh:{{{ref.id}}}:{ref.id}:artifacts"
    known: dict[Any, Any] = {digest: "13|text/plain", "do|value": "{}", evil: "1|text/plain"}
    move.old.engine.store._redis.hset(at, mapping=known)
    spill = move.folder / "spill" / ref.id / "do.1"
    spill.mkdir(parents=True)
    (spill / "prompt").write_text("what to do")
    assert move.imports.import_tree(ref.id) == {ref.id: "imported"}
    new = ArtifactFolder(tmp_path / "artifacts", Limits(100, 100))
    assert new.read(digest) == data
    assert (tmp_path / "spill" / ref.id / "do.1" / "prompt").read_text() == "what to do"
    assert move.is_consistent()


def test_an_order_lists_and_imports(move: Move) -> None:
    ref = loop(move.old)
    move.stop(ref)
    order = Order(
        redis_url=str(move.old.engine.settings.redis_url),
        secret=move.old.engine.settings.secret,
        folder=move.folder,
        is_own=True,
    )
    settings = move.new.engine.settings
    listed: Any = carry_out(order, settings)
    [found] = listed
    assert (found["session"], found["label"]) == (ref.id, "t")
    chosen = order.model_copy(update={"sessions": [ref.id]})
    assert carry_out(chosen, settings) == {ref.id: "imported"}
    assert carry_out(chosen, settings) == {ref.id: "exists"}
