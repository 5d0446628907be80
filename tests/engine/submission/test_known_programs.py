"""A program that is stored already is not sent again; a deleted one is."""

from __future__ import annotations

import pytest

from app.compiler import compile_document
from app.core.addresses import SessionRef
from app.core.program import Action, Program, Step
from app.errors import InvalidDocument
from app.sessions import drafts
from app.sessions.submit import About, Submitted
from leadhand.errors import IdempotencyConflict
from leadhand.graphs.documents import GraphDocument
from leadhand.models.documents import LoopDocument
from tests.engine.driving import Bench
from tests.engine.world import World

LONG = "x" * 4000
#: Its text is long, so that the server's input shows whether it was sent.
PROGRAM = Program(body=(Step(id="only", action=Action.TOOL, inputs={"text": LONG}),))


def submit(world: World) -> SessionRef:
    session = world.engine.submit.program(PROGRAM, About(kind="workflow", name="x")).session
    return SessionRef(session, session)


def document(task: str = "t") -> LoopDocument:
    fields = {"task": task, "checkers": ["true"], "doer": {"command": "true"}, "cwd": "/tmp"}
    return LoopDocument.model_validate(fields)


def test_a_known_program_is_not_sent_again(bench: Bench) -> None:
    world = World.of(bench)
    submit(world)
    bench.redis.config_resetstat()
    submit(world)
    assert bench.redis.info("stats")["total_net_input_bytes"] < len(LONG)


def test_a_program_that_was_deleted_with_its_last_session_is_sent_again(bench: Bench) -> None:
    world = World.of(bench)
    first = submit(world)
    bench.redis.delete(world.engine.store.keys.program(PROGRAM.hash))
    second = submit(world)
    assert second != first
    assert world.engine.store.program(PROGRAM.hash) == PROGRAM.text
    assert world.grant(second, "only").attempt == 1


def test_nothing_of_a_session_is_stored_while_its_program_is_unknown(bench: Bench) -> None:
    world = World.of(bench)
    submit(world)
    bench.redis.flushall()
    before = set(bench.redis.keys())
    sent: list[str] = []
    run = world.engine.store.run

    def spy(*given, **more):
        reply = run(*given, **more)
        sent.append(reply.word)
        if reply.word == "no_program":
            assert set(bench.redis.keys()) == before
        return reply

    world.engine.store.run = spy  # type: ignore[method-assign]
    submit(world)
    assert sent == ["no_program", "created"]


def test_the_same_document_is_compiled_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    world, compiles = World.of(bench), list[str]()
    original = compile_document

    def count(given: LoopDocument) -> Program:
        compiles.append(given.task)
        return original(given)

    monkeypatch.setattr(drafts, "compile_document", count)
    for task in ("a", "a", "b", "a"):
        world.engine.submit.document(document(task), free=True)
    assert compiles == ["a", "b"]


def test_a_copy_of_a_program_has_its_own_hash() -> None:
    assert PROGRAM.hash
    changed = PROGRAM.model_copy(update={"name": "another"})
    assert changed.hash != PROGRAM.hash
    assert changed.hash == Program(name="another", body=PROGRAM.body).hash
    assert PROGRAM.node("only") is changed.node("only")


def keyed(world: World, given: LoopDocument) -> Submitted:
    return world.engine.submit.document(given, free=True, idempotency_key="k")


def test_a_key_finds_its_session_although_its_document_is_refused_now(bench: Bench) -> None:
    world = World.of(bench)
    first = keyed(world, document())
    world.worker("elsewhere")  # from now on this place has no worker
    elsewhere = document().model_copy(update={"place": "here"})
    with pytest.raises(InvalidDocument):
        world.engine.submit.document(elsewhere, free=True)
    again = keyed(world, document())
    assert (again.session, again.created) == (first.session, False)
    with pytest.raises(IdempotencyConflict):
        keyed(world, elsewhere)


def test_a_default_that_is_written_is_another_program_than_one_left_out() -> None:
    """Both documents have the same values, but an agent's step without a limit has a longer one."""
    programs = drafts.CompiledPrograms()
    limits = []
    for more in ({"timeout_s": 60}, {}):
        step = {"name": "ask", "tool": "agent:claude", "arguments": {"task": "t"}, **more}
        graph = GraphDocument.model_validate({"kind": "graph", "name": "g", "steps": [step]})
        program = programs.compile(graph, graph.model_dump_json(), {})
        assert program == compile_document(graph)
        limits.append(program.text)
    assert limits[0] != limits[1]
