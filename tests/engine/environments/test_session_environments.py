"""The environment of a session: encrypted at rest, bound to it, and gone with it."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.environment import SessionEnvironment
from app.core.outcomes import Outcome
from app.errors import EnvironmentSealed, InvalidDocument, SpecForeign
from app.programs import Registry
from app.sessions.documents import Changes
from app.sessions.fork import Wish
from leadhand.errors import IdempotencyConflict
from leadhand.models.documents import LoopDocument
from leadhand.models.plans import PlanDocument
from leadhand.models.verdicts import Reason, ReasonCode
from tests.engine.children.test_body_children import Body
from tests.engine.driving import Bench
from tests.engine.world import World

VALUE = "a value that no other text has"
AT = "loop~1[1]/do"


def document(**more: Any) -> LoopDocument:
    given = {
        "task": "t",
        "baseline": False,
        "checkers": ["true"],
        "doer": {"command": "true"},
        **more,
    }
    return LoopDocument.model_validate(given)


def submitted(world: World, *, key: str | None = None, **more: Any) -> SessionRef:
    made = world.engine.submit.document(document(**more), idempotency_key=key)
    return SessionRef(made.session, made.session)


def stored(bench: Bench, ref: SessionRef) -> str:
    return f"lh:{{{ref.root}}}:{ref.id}:environment"


def environment(world: World, ref: SessionRef) -> SessionEnvironment:
    """The environment as a worker reads it, which has seen nothing yet."""
    fresh = Registry(world.engine.store, world.engine.settings)
    facts = fresh.facts(ref)
    fresh.verified_program(ref, facts)
    return fresh.environment(ref, facts.environment)


def everything(bench: Bench) -> str:
    """All keys and values of the server."""
    redis, texts = bench.redis, []
    for key in redis.keys("*"):
        match redis.type(key):
            case "hash":
                value: Any = redis.hgetall(key)
            case "list":
                value = redis.lrange(key, 0, -1)
            case "set":
                value = redis.smembers(key)
            case "zset":
                value = redis.zrange(key, 0, -1)
            case "stream":
                value = redis.xrange(key)
            case _:
                value = redis.get(key)
        texts.append(f"{key} {value}")
    return "\n".join(texts)


def finish(world: World, ref: SessionRef, verdict: str) -> None:
    world.turn(ref, 1, verdict, check="check.true")


def test_values_reach_the_body_and_no_key_of_redis(bench: Bench) -> None:
    world = World.of(bench)
    ref = submitted(world, env={"TOKEN": VALUE, "EMPTY": ""})
    assert environment(world, ref).passed == {"TOKEN": VALUE, "EMPTY": ""}
    work = world.engine.attempts.work(ref, world.grant(ref, AT))
    assert work.environment.passed["TOKEN"] == VALUE
    assert bench.redis.exists(stored(bench, ref))
    assert VALUE not in everything(bench)
    assert VALUE not in repr(work)


def test_plan_keeps_no_value_in_its_program(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanDocument.model_validate(
        {"request": "r", "unchecked": True, "env": {"TOKEN": VALUE}, "cwd": None}
    )
    made = world.engine.submit.document(plan).session
    assert VALUE not in everything(bench)
    program = world.engine.registry.program(
        world.engine.registry.facts(SessionRef(made, made)).program
    )
    assert '"env' not in program.model_dump_json()
    assert "(not shown)" not in program.model_dump_json()


def test_environments_of_two_sessions_cannot_be_swapped(bench: Bench) -> None:
    """Neither alone nor with the marks that their signatures cover."""
    world = World.of(bench)
    one, other = (submitted(world, env={"PATH": path}) for path in ("/one", "/other"))
    first, second = bench.redis.get(stored(bench, one)), bench.redis.get(stored(bench, other))
    bench.redis.set(stored(bench, one), second)
    with pytest.raises(EnvironmentSealed, match="submit --env again"):
        environment(world, one)
    records = [
        key.replace(":environment", ":session")
        for key in (stored(bench, one), stored(bench, other))
    ]
    bench.redis.hset(records[0], "environment", bench.redis.hget(records[1], "environment"))
    with pytest.raises(SpecForeign, match="LEADHAND_SECRET"):
        environment(world, one)
    bench.redis.set(stored(bench, one), first)
    with pytest.raises(SpecForeign):
        environment(world, one)


def test_cipher_itself_is_bound_to_its_session(bench: Bench) -> None:
    from app.security.signatures import decrypt, encrypt

    one, other = SessionRef("aaaaaaaa", "aaaaaaaa"), SessionRef("bbbbbbbb", "aaaaaaaa")
    given = SessionEnvironment({"PATH": "/one"}, {"VIRTUAL_ENV": None})
    sealed = encrypt(given, one, secret="s")
    assert decrypt(sealed, one, accepted=("new", "s")) == given
    for ref, secrets in ((other, ("s",)), (one, ("t",)), (one, ())):
        with pytest.raises(EnvironmentSealed):
            decrypt(sealed, ref, accepted=secrets)
    for damaged in (
        sealed[:-8],
        "",
        "1:",
        "1:%",
        sealed.replace(sealed[9], "A" if sealed[9] != "A" else "B", 1),
    ):
        with pytest.raises(EnvironmentSealed):
            decrypt(damaged, one, accepted=("s",))
    assert encrypt(given, one, secret="s") != sealed, "the nonce repeats"


@pytest.mark.parametrize("what", ["value", "both"])
def test_removed_environment_stops_the_session(bench: Bench, what: str) -> None:
    """Its bodies would run with the PATH of the worker otherwise."""
    world = World.of(bench)
    ref = submitted(world, env={"PATH": "/opt/tools"})
    bench.redis.delete(stored(bench, ref))
    if what == "both":
        bench.redis.hdel(stored(bench, ref).replace(":environment", ":session"), "environment")
    with pytest.raises(SpecForeign):
        environment(world, ref)


def test_another_secret_fails_the_step_with_the_fix(bench: Bench) -> None:
    world = World.of(bench)
    ref = submitted(world, env={"TOKEN": VALUE})
    changed = world.engine.settings.model_copy(update={"secret": "rotated"})
    fresh = Registry(world.engine.store, changed)
    with pytest.raises(SpecForeign, match="submit --env again"):
        fresh.verified_program(ref, fresh.facts(ref))
    both = world.engine.settings.model_copy(update={"secret": "rotated", "secret_other": "s"})
    fresh = Registry(world.engine.store, both)
    fresh.verified_program(ref, fresh.facts(ref))
    assert fresh.environment(ref, fresh.facts(ref).environment).passed == {"TOKEN": VALUE}


def test_repeated_request_is_compared_by_its_values(bench: Bench) -> None:
    world = World.of(bench)
    ref = submitted(world, key="k", env={"TOKEN": VALUE})
    assert submitted(world, key="k", env={"TOKEN": VALUE}) == ref
    for other in ({"TOKEN": "another"}, {}, {"TOKEN": VALUE, "MORE": ""}):
        with pytest.raises(IdempotencyConflict):
            submitted(world, key="k", env=other)


def test_children_inherit_and_may_add(bench: Bench) -> None:
    world = World.of(bench)
    ref = submitted(world, env={"TOKEN": VALUE, "MODE": "parent"})
    child = Body(world, ref).spawn(env={"MODE": "child"})
    assert environment(world, child).passed == {"TOKEN": VALUE, "MODE": "child"}
    assert environment(world, ref).passed["MODE"] == "parent"
    many = {f"A{number}": "" for number in range(63)}
    with pytest.raises(InvalidDocument, match="65 variables"):
        Body(world, submitted(world, env={"B": "", "C": ""})).spawn(env=many)


def test_fork_and_rerun_take_only_what_is_given_today(bench: Bench) -> None:
    world = World.of(bench)
    ref = submitted(world, env={"TOKEN": VALUE})
    rerun = world.engine.reruns.rerun(ref.id, Changes()).session
    assert environment(world, SessionRef(rerun, rerun)).is_empty
    today = SessionEnvironment({"TOKEN": "of today"})
    rerun = world.engine.reruns.rerun(ref.id, Changes(), environment=today, key="k").session
    assert environment(world, SessionRef(rerun, rerun)) == today
    with pytest.raises(IdempotencyConflict):
        world.engine.reruns.rerun(ref.id, Changes(), key="k")
    for given in (SessionEnvironment(), today):
        fork = world.engine.forks.fork(ref.id, Wish(as_is=True, environment=given)).session
        assert environment(world, SessionRef(fork, fork)) == given
    assert VALUE not in everything(bench)


@pytest.mark.parametrize(
    ("end", "is_kept"), [("accept", False), ("terminate", True), ("abort", False), ("stop", True)]
)
def test_kept_while_the_session_can_be_resumed(bench: Bench, end: str, is_kept: bool) -> None:
    world = World.of(bench)
    ref = submitted(world, env={"TOKEN": VALUE})
    if end in ("abort", "stop"):
        world.engine.control.apply(ref.id, end)  # type: ignore[arg-type]
    else:
        finish(world, ref, end)
    assert bool(bench.redis.exists(stored(bench, ref))) == is_kept
    if end != "stop":
        world.engine.deletion.delete(ref.id)
        assert not bench.redis.exists(stored(bench, ref))
        assert not [key for key in bench.redis.keys("*") if ref.id in str(key)]


def test_shell_of_another_machine_is_refused(bench: Bench) -> None:
    world = World.of(bench)
    with pytest.raises(InvalidDocument, match="shell_env"):
        submitted(world, shell_env={"PATH": "/far"})
    own = world.engine.settings.model_copy(update={"own_redis": True})
    world.engine.submit._environments._settings = own
    ref = submitted(world, shell_env={"PATH": "/near", "KEY": None})
    assert environment(world, ref).inherit({"KEY": "old", "A": "a"}) == {"PATH": "/near", "A": "a"}


def test_failed_step_does_not_show_the_values(bench: Bench) -> None:
    world = World.of(bench)
    ref = submitted(world, env={"TOKEN": VALUE})
    reason = Reason(code=ReasonCode.FAILED_STEP, text="it failed", at=AT)
    world.settle(ref, world.grant(ref, AT), Outcome(word="failed", reason=reason, retryable=False))
    assert VALUE not in world.engine.queries.export(ref.id).model_dump_json()
