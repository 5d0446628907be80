"""Local steps on the real scripts: claims, outcomes once, lost workers, lost sessions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.core.addresses import SessionRef
from app.core.artifacts import INLINE_BYTES, Artifact
from app.core.outcomes import Outcome
from app.errors import InvalidDocument
from app.store.artifact_folder import ArtifactFolder, Limits
from leadhand.graphs.documents import GraphDocument
from leadhand.models.local_work import BeatWork, ClaimWork, SettleWork
from leadhand.models.views.session import WorkGrant, WorkView
from tests.engine.driving import Bench
from tests.engine.world import World


class Local:
    """A graph with local steps, and its worker."""

    def __init__(self, world: World, *steps: Mapping[str, object]) -> None:
        self.world, self.count = world, 0
        given = [{"tool": "local:do", **step} for step in steps]
        document = GraphDocument.model_validate({"steps": given})
        self.id = world.engine.submit.document(document).session
        self.ref = SessionRef(self.id, self.id)

    def claim(
        self, *, worker: str = "one", nonce: str = "", takes_over: bool = False
    ) -> WorkGrant | None:
        self.count += 1
        asked = ClaimWork(
            worker=worker, nonce=nonce or f"nonce-{self.count:04}", takes_over=takes_over
        )
        self.world.engine.local_work.open(self.id, asked)
        return self.world.engine.local_work.claim(self.id, asked).grant

    def look(self) -> WorkView:
        """A claim of which the whole reply is read."""
        self.count += 1
        asked = ClaimWork(worker="one", nonce=f"nonce-{self.count:04}")
        return self.world.engine.local_work.claim(self.id, asked)

    def granted(self, *, worker: str = "one") -> WorkGrant:
        grant = self.claim(worker=worker)
        assert grant is not None
        return grant

    def settle(self, grant: WorkGrant, value: object = None, **more: object) -> str:
        asked = SettleWork.model_validate(
            {**named(grant), "outcome": "succeeded", "value": value, **more}
        )
        return self.world.engine.local_work.settle(self.id, asked).result

    def beat(self, grant: WorkGrant) -> str:
        return self.world.engine.local_work.beat(
            self.id, BeatWork.model_validate(named(grant))
        ).order

    @property
    def status(self) -> str:
        return self.world.engine.queries.session(self.id).status


def named(grant: WorkGrant) -> dict[str, object]:
    return {"address": grant.address, "fence": grant.fence, "nonce": grant.nonce}


A = {"name": "a", "arguments": {"x": 1}}
B = {"name": "b", "arguments": {"x": "${a.y}"}}


def test_results_flow_to_the_next_local_step(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A, B)
    first = local.granted()
    assert (first.step, first.tool, first.arguments) == ("a", "do", {"x": 1})
    assert local.claim() is None
    assert local.settle(first, {"y": [2]}) == "settled"
    second = local.granted()
    assert (second.step, second.arguments) == ("b", {"x": [2]})
    local.settle(second, "end")
    assert local.status == "completed"
    assert world.engine.queries.result(local.id).results == {"a": {"y": [2]}, "b": "end"}


def test_step_whose_artifact_is_gone_fails_with_that_reason(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, {"name": "a", "tool": "echo"}, B)
    work = world.engine.attempts.work(local.ref, world.grant(local.ref, "a"))
    gone = Artifact(name="value", digest="0" * 64, size=70_000, media_type="application/json")
    world.engine.attempts.settle(
        work, Outcome(word="succeeded", artifacts=(gone,)), take=[], worker="w"
    )
    assert local.claim() is None
    outcome = json.loads(world.engine.store.values(local.ref, "out", ["b"])["b"])
    assert "artifact" in outcome["reason"]["text"]
    assert local.status == "failed"


def test_local_steps_are_never_hinted_to_workers(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A, B)
    local.settle(local.granted(), {"y": 1})
    for _ in range(4):
        world.later(11_000)
        local.claim(nonce="nonce-is-here")  # it gets the step that it has, and is seen
    assert world.hints == []


def test_a_worker_of_the_fleet_gets_no_local_step(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A)
    reply = world.claim(local.ref, "a")
    assert (reply.word, reply.why) == ("refused", "queue")


def test_a_local_worker_gets_no_step_of_the_fleet(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, {"name": "a", "tool": "echo"})
    assert local.claim() is None
    reply = world.engine.attempts.claim(local.ref, "a", nonce="n" * 8, worker="w", is_local=True)
    assert (reply.word, reply.why) == ("refused", "queue")


def test_the_same_nonce_gets_the_same_step_again(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A, {"name": "c"})
    first, again = local.claim(nonce="the-nonce"), local.claim(nonce="the-nonce")
    assert first is not None
    assert again is not None
    assert named(first) == named(again)


def test_two_claimants_get_different_steps(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A, {"name": "c"})
    assert {local.granted(worker="one").step, local.granted(worker="two").step} == {"a", "c"}
    assert local.claim(worker="two") is None


def test_an_outcome_is_recorded_once(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A)
    grant = local.granted()
    assert local.settle(grant, 1) == "settled"
    assert local.settle(grant, 2) == "repeated"
    assert world.engine.queries.result(local.id).results == {"a": 1}


def test_a_late_outcome_with_an_old_fence_is_superseded(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A)
    late = local.granted(worker="one")
    world.later(31_000)
    new = local.granted(worker="two")
    assert (new.fence, new.attempt) == (late.fence + 1, 2)
    assert local.beat(late) == "lost"
    assert local.settle(late, "late") == "superseded"
    assert local.settle(new, "new") == "settled"
    assert world.engine.queries.result(local.id).results == {"a": "new"}


def test_a_beat_keeps_the_attempt(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, {**A, "timeout_s": 600})
    grant = local.granted()
    for _ in range(9):
        world.later(10_000)
        assert local.beat(grant) == "ok"
    assert local.settle(grant, 1) == "settled"


def test_who_takes_over_need_not_wait_for_the_lease(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A)
    old = local.granted(worker="killed")
    assert local.claim(worker="new") is None
    new = local.claim(worker="new", takes_over=True)
    assert new is not None
    assert new.fence > old.fence
    assert local.claim(worker="new", takes_over=True) is None  # its own attempt is kept
    assert local.settle(new, 1) == "settled"


def test_session_without_a_worker_is_stopped_as_lost_and_can_be_resumed(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A, B)
    local.settle(local.granted(), {"y": 1})
    world.later(59_000)
    assert local.status == "active"
    world.later(12_000)
    view = world.engine.queries.session(local.id)
    assert view.status == "stopped"
    assert view.reason is not None
    assert view.reason.code == "lost"
    assert local.claim() is None
    world.engine.control.apply(local.id, "resume")
    world.later(30_000)
    assert local.status == "active"
    assert local.granted().step == "b"


def test_worker_that_is_busy_is_not_lost(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, {**A, "timeout_s": 600}, {"name": "c"})
    grant = local.granted()
    for _ in range(12):
        world.later(10_000)
        assert local.beat(grant) == "ok"
    assert local.status == "active"


def test_skipped_step_needs_no_call(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(
        world, A, {**B, "when": "${a.y}", "arguments": {}}, {"name": "c", "depends_on": ["b"]}
    )
    local.settle(local.granted(), {"y": False})
    assert local.granted().step == "c"


def test_step_without_its_reference_fails_and_says_why(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A, B)
    local.settle(local.granted(), {"z": 1})
    assert local.claim() is None
    view = world.engine.queries.session(local.id)
    assert view.status == "failed"
    assert view.reason is not None
    assert "has no 'y'" in world.engine.explainer.explain(local.id).model_dump_json()


def test_failed_outcome_is_retried_and_then_ends_the_session(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, {**A, "retries": 1, "backoff_s": 1}, B)
    failed = {"outcome": "failed", "error": "no", "why": "timeout"}
    assert local.settle(local.granted(), **failed) == "again"
    assert local.claim() is None
    world.later(3_000)
    assert local.settle(local.granted(), **failed) == "settled"
    view = world.engine.queries.session(local.id)
    assert (view.status, view.reason and view.reason.code) == ("failed", "timeout")


FAILED = {"outcome": "failed", "error": "no"}


def test_retry_is_claimed_when_it_is_due_and_before_any_sweep(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, {**A, "retries": 1, "backoff_s": 1, "jitter": 0})
    local.settle(local.granted(), **FAILED)
    world.now += 999
    assert local.look().grant is None
    world.now += 1
    assert local.granted().attempt == 2


def test_claim_without_a_step_says_when_the_next_retry_is_due(bench: Bench) -> None:
    world = World.of(bench)
    later = {**A, "retries": 1, "backoff_s": 5, "jitter": 0}
    sooner = {"name": "c", "retries": 1, "backoff_s": 3, "jitter": 0}
    local = Local(world, later, sooner, {"name": "d"})
    for grant in [local.granted(), local.granted()]:
        local.settle(grant, **FAILED)
    assert local.look().grant is not None
    world.now += 1_000
    assert local.look().next_s == 2.0
    world.later(2_000)
    assert local.look().grant is not None
    assert local.look().next_s == 2.0


def test_claim_says_no_time_while_no_retry_waits(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, {**A, "retries": 1}, B)
    grant = local.granted()
    assert local.look().next_s is None
    local.settle(grant, {"y": 1})
    local.settle(local.granted(), 1)
    assert local.look().next_s is None


def test_retry_of_a_stopped_session_is_not_claimed(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, {**A, "retries": 1, "backoff_s": 1})
    local.settle(local.granted(), **FAILED)
    world.engine.control.apply(local.id, "stop")
    world.now += 2_000
    assert (local.look().grant, local.status) == (None, "stopped")


def test_secrets_in_a_value_are_redacted(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A)
    local.settle(local.granted(), {"key": "sk-ant-" + "a1" * 24})
    assert "a1a1a1" not in str(world.engine.queries.result(local.id).results)


def test_attempts_at_other_steps_are_refused(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, {"name": "a", "tool": "echo"})
    grant = world.grant(local.ref, "a")
    asked = SettleWork(address="a", fence=grant.fence, nonce="nonce-000", outcome="succeeded")
    with pytest.raises(InvalidDocument):
        world.engine.local_work.settle(local.id, asked)


def test_local_worker_is_listed_and_takes_no_part_in_admission(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A)
    local.claim()
    assert [one.queues for one in world.engine.fleet.workers()] == [[f"local@{local.id}"]]
    assert world.engine.fleet.inventories() == []


def test_lost_session_explains_what_to_do(bench: Bench) -> None:
    world = World.of(bench)
    local = Local(world, A)
    text = world.engine.explainer.explain(local.id).model_dump_json()
    assert "the program that submitted" in text
    assert "leadhand worker" not in text


def with_folder(world: World, path: Path, limits: Limits) -> None:
    engine = world.engine
    engine.local_work._folder = engine.local_artifacts._folder = ArtifactFolder(path, limits)


def test_long_value_is_an_artifact(bench: Bench, tmp_path: Path) -> None:
    world = World.of(bench)
    with_folder(world, tmp_path, Limits(10_000_000, 10_000_000))
    local = Local(world, A, B)
    grant, value = local.granted(), {"y": "x" * INLINE_BYTES}
    assert local.settle(grant, value) == "settled"
    assert local.settle(grant, value) == "repeated"
    data = json.dumps(value, separators=(",", ":")).encode()
    digest = hashlib.sha256(data).hexdigest()
    assert world.engine.local_artifacts.read(local.ref, digest, len(data)) == data
    assert set(world.engine.store.artifacts().referenced([digest])) == {digest}
    assert local.granted().arguments == {"x": value["y"]}


def test_long_value_without_room_fails_the_step(bench: Bench, tmp_path: Path) -> None:
    world = World.of(bench)
    with_folder(world, tmp_path, Limits(1_000, 1_000))
    local = Local(world, A)
    local.settle(local.granted(), "x" * INLINE_BYTES)
    assert local.status == "failed"
    reason = world.engine.queries.session(local.id).reason
    assert reason is not None
    assert "the result cannot be stored" in reason.text
    assert "LEADHAND_ARTIFACT_MAX, 1000 bytes" in reason.text
