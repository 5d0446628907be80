"""Artifacts on the real store: references by outcomes, reading through a session, and the sweep."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from app.core.artifacts import YOUNG_S, Artifact
from app.core.outcomes import Outcome
from app.core.program import Action, Step
from app.engine import Engine
from app.sessions.artifacts import list_artifacts, read_artifact, sweep_artifacts
from app.sessions.results import MOST_BYTES
from app.store.artifact_folder import ArtifactFolder, Limits, LocalArtifacts
from leadhand.errors import ArtifactUnknown, SessionUnknown
from tests.engine.driving import Bench
from tests.engine.graphs.graph_world import GraphWorld
from tests.engine.world import World
from tests.flows import flow
from workers.attempt.outcomes import _failure
from workers.attempt.settle import park

LONG: list[JsonValue] = [{"url": f"paper-{n}", "text": "x" * 1000} for n in range(100)]
TWO: list[dict[str, object]] = [
    {"name": "search"},
    {"name": "report", "arguments": {"first": "${search[0].url}", "text": "of ${search[7].url}"}},
]


class Fleet:
    """An engine with a folder of artifacts of its own; its workers share the folder."""

    def __init__(self, bench: Bench, path: Path) -> None:
        self.world = World.of(bench)
        engine: Engine = self.world.engine
        self.engine = engine
        self.folder = engine.artifact_folder = ArtifactFolder(
            path / "artifacts", Limits(64 * 1024**2, 1024**3)
        )
        self.local = LocalArtifacts(self.folder)
        engine.attempts.open_artifacts = lambda *_: self.local
        engine.queries._artifacts = self.local
        self.path = path

    def stored(self, value: JsonValue, kind: Any = "value") -> Artifact:
        """An artifact as a worker stores it before it settles."""
        data = json.dumps(value).encode()
        file = self.path / "draft"
        file.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        self.local.put(self.engine.queries.ref(self.any_session), digest, file)
        return Artifact(name=kind, digest=digest, size=len(data), media_type="application/json")

    def graph(self, steps: list[dict[str, object]] = TWO) -> GraphWorld:
        graph = GraphWorld(self.world, steps)
        self.any_session = graph.id
        return graph

    def settle(self, graph: GraphWorld, address: str, value: JsonValue) -> Artifact:
        grant = graph.grant(address)
        work = self.engine.attempts.work(graph.ref, grant)
        artifact = self.stored(value)
        outcome = Outcome(word="succeeded", value=value, artifacts=(artifact,))
        answer = self.engine.attempts.settle(work, outcome, take=[], worker="w")
        assert answer.word == "settled"
        self.engine.transitions.dispatch(graph.ref, answer)
        return artifact

    def age(self) -> None:
        """Make all artifacts old enough for the sweep."""
        self.now_s = max(f.stat().st_mtime for f in self.folder._files()) + YOUNG_S + 1

    def sweep(self) -> list[str]:
        self.age()
        return sweep_artifacts(self.engine, self.now_s)


def test_reference_resolves_through_an_artifact(bench: Bench, tmp_path: Path) -> None:
    fleet = Fleet(bench, tmp_path)
    graph = fleet.graph()
    artifact = fleet.settle(graph, "search", LONG)
    stored = json.loads(fleet.engine.store.values(graph.ref, "out", ["search"])["search"])
    assert stored["value"] == {"artifact": artifact.digest, "bytes": artifact.size}
    graph.run()
    assert graph.calls == [("report", {"first": "paper-0", "text": "of paper-7"})]
    assert graph.status == "completed"
    assert graph.result.results["search"] == LONG


def test_missing_artifact_fails_the_step_that_refers_to_it(bench: Bench, tmp_path: Path) -> None:
    fleet = Fleet(bench, tmp_path)
    graph = fleet.graph()
    artifact = fleet.settle(graph, "search", LONG)
    (fleet.folder.path / artifact.digest[:2] / artifact.digest).unlink()
    with pytest.raises(ArtifactUnknown, match=artifact.digest):
        fleet.engine.attempts.work(graph.ref, graph.grant("report"))


def test_for_each_iterates_over_an_artifact(bench: Bench, tmp_path: Path) -> None:
    fleet = Fleet(bench, tmp_path)
    graph = fleet.graph([
        {"name": "search"},
        {"name": "fetch", "for_each": "${search}", "arguments": {"url": "${item.url}"}},
    ])  # fmt: skip
    fleet.settle(graph, "search", LONG)
    graph.run()
    assert [arguments["url"] for _, arguments in graph.calls] == [f"paper-{n}" for n in range(100)]


def test_result_shows_long_artifacts_by_their_digests(bench: Bench, tmp_path: Path) -> None:
    fleet = Fleet(bench, tmp_path)
    graph = fleet.graph([{"name": "search"}])
    artifact = fleet.settle(graph, "search", "x" * MOST_BYTES)
    shown = {"artifact": artifact.digest, "bytes": artifact.size}
    assert graph.result.results["search"] == shown


def test_artifact_is_read_only_through_a_session_that_refers_to_it(
    bench: Bench, tmp_path: Path
) -> None:
    fleet = Fleet(bench, tmp_path)
    graph, other = fleet.graph(), fleet.graph()
    digest = fleet.settle(graph, "search", LONG).digest
    listed = list_artifacts(fleet.engine, graph.id).items
    assert [(one.name, one.digest) for one in listed] == [("search/value", digest)]
    piece = read_artifact(fleet.engine, graph.id, digest, at=0, limit=10**9)
    assert (json.loads(piece.data), piece.size) == (LONG, listed[0].size)
    assert read_artifact(fleet.engine, graph.id, digest, at=5, limit=3).data == piece.data[5:8]
    assert list_artifacts(fleet.engine, other.id).items == []
    for session, name in ((other.id, digest), (graph.id, "0" * 64), (graph.id, "../../x")):
        with pytest.raises(ArtifactUnknown):
            read_artifact(fleet.engine, session, name, at=0, limit=1)
    with pytest.raises(SessionUnknown):
        read_artifact(fleet.engine, "deadbeef", digest, at=0, limit=1)


def test_sweep_keeps_what_a_session_refers_to(bench: Bench, tmp_path: Path) -> None:
    fleet = Fleet(bench, tmp_path)
    first, second = fleet.graph(), fleet.graph()
    digest = fleet.settle(first, "search", LONG).digest
    assert fleet.settle(second, "search", LONG).digest == digest
    assert fleet.sweep() == []
    fleet.engine.deletion.delete(first.id, force=True)
    fleet.engine.outbox.run(f"delete|{first.ref.member}")
    assert fleet.engine.store.ref(first.id) is None
    assert fleet.sweep() == []
    assert read_artifact(fleet.engine, second.id, digest, at=0, limit=1).data == b"["
    fleet.engine.deletion.delete(second.id, force=True)
    fleet.engine.outbox.run(f"delete|{second.ref.member}")
    assert fleet.sweep() == [digest]
    assert bench.redis.zcard("lh:artifacts") == 0


def test_artifact_of_an_attempt_that_died_before_its_settle_is_swept_after_a_day(
    bench: Bench, tmp_path: Path
) -> None:
    fleet = Fleet(bench, tmp_path)
    graph = fleet.graph()
    lost = fleet.stored(LONG).digest
    assert sweep_artifacts(fleet.engine) == []
    assert fleet.sweep() == [lost]
    assert fleet.settle(graph, "search", LONG).digest == lost
    assert fleet.sweep() == []


def test_superseded_attempt_refers_to_nothing(bench: Bench, tmp_path: Path) -> None:
    fleet = Fleet(bench, tmp_path)
    graph = fleet.graph()
    grant = graph.grant("search")
    work = fleet.engine.attempts.work(graph.ref, grant)
    artifact = fleet.stored(LONG)
    late = Outcome(word="succeeded", value=LONG, artifacts=(artifact,))
    stale = work._replace(grant=grant.model_copy(update={"fence": grant.fence - 1}))
    assert fleet.engine.attempts.settle(stale, late, take=[], worker="w").word == "superseded"
    assert list_artifacts(fleet.engine, graph.id).items == []
    assert fleet.sweep() == [artifact.digest]


def test_folder_of_another_store_is_not_swept(bench: Bench, tmp_path: Path) -> None:
    fleet = Fleet(bench, tmp_path)
    fleet.graph()
    fleet.stored(LONG)
    (fleet.folder.path / ".store").write_text("another")
    assert fleet.sweep() == []


def test_join_does_not_load_the_values_that_it_waits_for(bench: Bench, tmp_path: Path) -> None:
    fleet = Fleet(bench, tmp_path)
    steps: list[dict[str, object]] = [
        {"name": "search"},
        {"name": "end", "depends_on": ["search"], "join": "all"},
    ]
    graph = fleet.graph(steps)
    fleet.settle(graph, "search", LONG)
    fleet.local.read = lambda *_: pytest.fail("it is not used")  # type: ignore[method-assign]
    graph.run()
    assert graph.called == ["end"]


def called_flow(fleet: Fleet) -> Outcome:
    """The outcome of a step that called a flow whose last step returned a long value."""
    child = fleet.graph([{"name": "search"}])
    fleet.settle(child, "search", LONG)
    assert child.status == "completed"
    step = Step(id="search", action=Action.CHILD, inputs={"flow": "papers"})
    fields = fleet.engine.store.fields(child.ref)
    return fleet.engine.reports.outcome_for(step, child.ref, fields)


def test_long_result_of_a_called_flow_is_the_value_that_others_refer_to(
    bench: Bench, tmp_path: Path
) -> None:
    fleet = Fleet(bench, tmp_path)
    outcome = called_flow(fleet)
    (artifact,) = outcome.artifacts or ()
    assert isinstance(outcome.value, dict)
    assert outcome.value["result"] == {"artifact": artifact.digest, "bytes": artifact.size}
    report: dict[str, object] = {"name": "report", "arguments": {"a": "${search.result[7].url}"}}
    steps: list[dict[str, object]] = [{"name": "search"}, report]
    graph = fleet.graph(steps)
    grant = graph.grant("search")
    work = fleet.engine.attempts.work(graph.ref, grant)
    answer = fleet.engine.attempts.settle(work, outcome, take=[], worker="w")
    fleet.engine.transitions.dispatch(graph.ref, answer)
    graph.run()
    assert graph.calls == [("report", {"a": "paper-7"})]
    (listed,) = list_artifacts(fleet.engine, graph.id).items
    assert (listed.kind, listed.digest) == ("result", artifact.digest)
    assert fleet.sweep() == []


def test_parked_step_that_a_flow_answers_refers_to_its_artifact(
    bench: Bench, tmp_path: Path
) -> None:
    fleet = Fleet(bench, tmp_path)
    outcome = called_flow(fleet)
    step: dict[str, Any] = {"type": "human", "question": "Well?", "timeoutSeconds": 60}
    session = fleet.engine.submit.document(flow(step)).session
    ref = fleet.engine.queries.ref(session)
    (address,) = fleet.engine.store.members(ref, "live")
    grant = fleet.world.grant(ref, address)
    assert park(fleet.engine, fleet.engine.attempts.work(ref, grant)) is None
    fence = fleet.engine.store.steps(ref, [address])[address].fence
    answer = fleet.engine.answers.settle(ref, address, outcome, fence=fence, by="child")
    assert answer.word == "settled"
    (listed,) = list_artifacts(fleet.engine, session).items
    assert listed.kind == "result"


def test_result_that_cannot_be_stored_may_be_made_again() -> None:
    failed = _failure(Outcome(word="succeeded", value=LONG), "the disk is full", ())
    assert (failed.word, failed.retryable) == ("failed", True)


def test_artifact_has_the_name_of_its_step_as_written(bench: Bench, tmp_path: Path) -> None:
    fleet = Fleet(bench, tmp_path)
    graph = fleet.graph([{"name": "big one"}, {"name": "small"}])
    fleet.settle(graph, "big-one", LONG)
    fleet.settle(graph, "small", LONG)
    found = list_artifacts(fleet.engine, graph.id).items
    assert [(one.name, one.label) for one in found] == [
        ("big-one/value", "big one"), ("small/value", ""),
    ]  # fmt: skip
