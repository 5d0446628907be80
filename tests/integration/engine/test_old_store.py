"""A store that commit 626b29f wrote is opened, resumed and audited by this version."""

from __future__ import annotations

import hashlib
import hmac
import json
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient

from api import create_app
from app.domain.outcomes import Outcome
from app.domain.program import WITHOUT_PLANS, Action
from app.domain.records import Grant
from app.errors import SpecForeign
from app.operations.attempts import Work
from app.settings import Settings
from app.sweep import sweep
from app.webhooks import deliveries
from app.webhooks.http import Posted
from tests.integration.engine.old_store import load_store, read_store
from tests.session_driving import ref_of
from tests.silent_engine import silent_engine
from workers.attempt.park import park

LEASE_MS = 30_000
ENDED = {"completed", "failed", "exited", "aborted"}
PARKED = {Action.HUMAN, Action.WAIT, Action.CHILD}
#: Sessions of the data set that a test drives to their end as they are, in this order: those that
#: hold a lock come before those that wait for it, a child before its parent.
ACTIVE = [
    "ready", "half", "backing-off", "workflow-second-phase", "nested-rewound", "conversation",
    "fan-out", "warned", "owned", "child", "parent", "unheard", "running", "waits-for-folder",
    "waits-for-key", "wait",
]  # fmt: skip
#: Inputs that the compiler has added since.
ADDED_INPUTS = {"tools_failed", "before", "no_diff"}
RESUMABLE = ["stopped", "failed", "nested-stopped", "workflow-failed"]


class OldStore:
    """This version's engine and API on the data of the old one, at the time when it was written."""

    def __init__(self, url: str) -> None:
        self.content = read_store()
        load_store(url, self.content)
        self.now: int = self.content["now_ms"] + 1_000
        secret, operator = self.content["secret"], self.content["operator"]
        self.engine = silent_engine(url, clock=lambda: self.now, secret=secret)
        self.app = create_app(Settings(api_token=operator, secret=secret), self.engine)
        self.client: FlaskClient = self.app.test_client()
        self.ids: dict[str, str] = self.content["sessions"]

    def call(
        self, method: str, path: str, body: object = None, *, token: str = "", key: str = ""
    ) -> Any:
        headers = {"Authorization": f"Bearer {token or self.content['operator']}"}
        if key:
            headers["Idempotency-Key"] = key
        response = self.client.open(f"/v1{path}", method=method, json=body, headers=headers)
        assert response.status_code < 300, (path, response.data)
        return response.json if response.is_json else response.text

    def view(self, name: str) -> dict[str, Any]:
        view: dict[str, Any] = self.call("GET", f"/sessions/{self.ids[name]}")
        return view

    def later(self, ms: int) -> None:
        """Move the clock by small steps, and sweep at each."""
        for _ in range(0, ms, 2_000):
            self.now += 2_000
            sweep(self.engine)

    def expire_leases(self) -> None:
        """Let a lease pass; after a restart of Redis it counts from the first sweep."""
        self.later(2 * LEASE_MS + 4_000)

    def audit(self) -> list[dict[str, Any]]:
        found, cursor = [], None
        while True:
            page = self.engine.audit.run(cursor=cursor)
            found += [one.model_dump(mode="json") for one in page.items]
            cursor = page.next
            if cursor is None:
                return found

    def claim(self, session: str) -> Grant | None:
        """Claim the first step that can be claimed now."""
        for step in self.engine.queries.steps(session, limit=500).items:
            if step.state == "ready":
                answer = self.engine.attempts.claim(
                    ref_of(self.engine, session), step.address, nonce=uuid.uuid4().hex, worker="w/1"
                )
                if answer.word == "granted":
                    return answer.grants[0]
        return None

    def settle(self, session: str, grant: Grant) -> None:
        """Settle a grant as accepted, and settle or park the steps that are granted with it."""
        grants = [grant]
        while grants:
            held = grants.pop(0)
            work = self.engine.attempts.work(ref_of(self.engine, session), held)
            if work.step.action in PARKED:
                assert park(self.engine, work) is None
                continue
            answer = self.engine.attempts.settle(
                work, _outcome(work), take=["n" + held.nonce], worker="w/1"
            )
            grants += answer.grants

    def drive(self, session: str) -> str:
        """Carry out all that is ready, as time passes, until the session ends; its status."""
        status = "active"
        for _ in range(60):  # rounds of two seconds
            while (grant := self.claim(session)) is not None:
                self.settle(session, grant)
            status = str(self.engine.queries.session(session).status)
            if status in ENDED:
                break
            for child in self.engine.store.children(ref_of(self.engine, session)):
                if self.engine.queries.session(child).status not in ENDED:
                    self.drive(child)
            self.later(2_000)
        return status


def _outcome(work: Work) -> Outcome:
    given: dict[str, object] = {"word": "succeeded", "text": f"done at {work.grant.address}"}
    if work.step.conversation is not None:
        given["thread"] = {"conversation": work.step.conversation, "id": "of the new version"}
    if work.step.action is not Action.AGENT:
        given["verdict"] = "accept"
    return Outcome.model_validate(given)


@pytest.fixture
def old(store_url: str) -> Iterator[OldStore]:
    store = OldStore(store_url)
    yield store
    store.app.fanout.close()


def test_every_session_is_listed_and_shown_as_the_old_version_showed_it(old):
    listed: dict[str, dict[str, Any]] = {}
    cursor = ""
    while True:
        page = old.call("GET", f"/sessions?limit=7{cursor}")
        listed |= {view["id"]: view for view in page["items"]}
        if not page["next"]:
            break
        cursor = f"&cursor={page['next']}"
    assert set(listed) == set(old.ids.values())
    parents = {view["parent"] for view in listed.values() if view["parent"]}
    for name, before in old.content["views"].items():
        for shown in (old.view(name), listed[before["id"]]):
            for view in (shown, before):
                view["budget"].get("wall_s", {}).pop(
                    "used", None
                )  # depends on the time of the call
            for added in ("share", "elapsed_s", "left_s", "at_most"):
                shown["progress"].pop(added, None)
            # What children at work use counts since.
            for limit in ("cost_usd", "tokens") if before["id"] in parents else ():
                assert shown["budget"][limit]["used"] >= before["budget"][limit]["used"]
                shown["budget"][limit]["used"] = before["budget"][limit]["used"]
            assert {field: shown[field] for field in before} == before


def list_all(old: OldStore, **wanted: str) -> tuple[list[str], int]:
    """All ids of a filtered list, newest first, and how many sessions were examined."""
    found: list[str] = []
    examined, cursor = 0, ""
    while True:
        query = "&".join([*(f"{name}={quote(text)}" for name, text in wanted.items()), "limit=5"])
        page = old.call("GET", f"/sessions?{query}{cursor}")
        found += [view["id"] for view in page["items"]]
        examined += page["examined"]
        if not page["next"]:
            return found, examined
        cursor = f"&cursor={page['next']}"


def test_filters_find_all_sessions_before_and_after_they_are_indexed(old):
    views = old.call("GET", "/sessions?limit=500")["items"]
    filters = [
        (fact, value)
        for fact in ("kind", "label", "name")
        for value in sorted({view[fact] for view in views if view[fact]})
    ]
    assert {fact for fact, _ in filters} == {"kind", "label", "name"}
    expected = {
        (fact, value): [view["id"] for view in views if view[fact] == value]
        for fact, value in filters
    }
    facts = old.engine.store.keys.everywhere("facts")
    assert not old.engine.store._redis.exists(facts)
    for fact, value in filters:
        assert list_all(old, **{fact: value}) == (expected[fact, value], len(views))
    assert old.audit() == []
    old.later(2_000)
    for fact, value in filters:
        meant = expected[fact, value]
        assert list_all(old, **{fact: value}) == (meant, len(meant))
    old.later(2_000)
    assert old.audit() == []
    old.engine.store._redis.zremrangebyrank(facts, 0, 4)
    assert {one["kind"] for one in old.audit()} == {"index_lost"}


READ = ["steps", "ledger", "transcript", "export", "receipt", "explain", "diffs", "events"]


@pytest.mark.parametrize("name", sorted(read_store()["sessions"]))
def test_everything_about_a_session_can_be_read(old, name):
    session, keys = old.ids[name], old.content["keys"]
    for what in READ:
        old.call("GET", f"/sessions/{session}/{what}")
    assert old.call("GET", f"/sessions/{session}/transcript?format=markdown")
    if old.view(name)["status"] in ENDED | {"stopped"}:
        old.call("GET", f"/sessions/{session}/result")
    [base] = [key.removesuffix("session") for key in keys if key.endswith(f":{session}:session")]
    exported = old.engine.queries.export(session)
    assert len(exported.events) == len(keys[f"{base}events"]["value"])
    assert len(exported.steps) == len(keys[f"{base}steps"]["value"])
    assert len(exported.ledger) == len(keys.get(f"{base}ledger", {"value": []})["value"])
    assert len(exported.transcript) == len(keys.get(f"{base}transcript", {"value": []})["value"])


def test_the_audit_finds_what_the_old_audit_found(old):
    assert old.audit() == old.content["audit"] == []


def test_work_diff_of_the_old_version_is_shown(old):
    [diff] = old.call("GET", f"/sessions/{old.ids['completed']}/diffs")["items"]
    assert "+new" in diff["patch"]


@pytest.mark.parametrize("name", ["ready", "half", "workflow-second-phase", "conversation"])
def test_signature_of_the_old_version_verifies_with_its_secret_only(old, store_url, name):
    session = old.ids[name]
    grant = old.claim(session)
    assert grant is not None
    assert old.engine.attempts.work(ref_of(old.engine, session), grant)
    other = silent_engine(store_url, clock=lambda: old.now, secret="another one")
    with pytest.raises(SpecForeign):
        other.attempts.work(ref_of(other, session), grant)


def test_tokens_of_the_old_version_still_open(old):
    kept = old.content["kept"]
    assert old.call("GET", "/sessions?limit=1", token=kept["reader"])["items"]
    refused = old.client.post(
        "/v1/sessions", json=kept["document"], headers={"Authorization": f"Bearer {kept['reader']}"}
    )
    assert refused.status_code == 403
    [ci] = [token for token in old.call("GET", "/tokens")["items"] if token["name"] == "ci"]
    assert ci["spent"]["sessions"] == 1
    again: dict[str, object] = {"name": "ci", "scopes": ["read", "submit", "control", "exec:free"]}
    again["quotas"] = {"max_sessions": 5, "steps_per_day": 100}
    assert old.call("POST", "/tokens", again, key="the token of ci")["token"] == kept["token"]


def test_idempotency_key_of_the_old_version_finds_its_session(old):
    kept = old.content["kept"]
    again = old.call("POST", "/sessions", kept["document"], token=kept["token"], key=kept["key"])
    assert again["id"] == old.ids["owned"]


def test_programs_have_the_schema_and_the_hash_that_this_version_writes(old):
    keys = old.content["keys"]
    for key, entry in keys.items():
        if key.startswith("lh:program:"):
            assert json.loads(entry["value"]["document"])["schema_version"] == WITHOUT_PLANS
    new = old.call("POST", "/sessions", old.content["kept"]["document"])["id"]
    programs = [
        old.engine.store.values(ref_of(old.engine, session), "session", ["program"])["program"]
        for session in (old.ids["owned"], new)
    ]
    documents = [old.engine.store.program(program) for program in programs]
    assert without_added_inputs(documents[0]) == without_added_inputs(documents[1])


def without_added_inputs(document: str | None) -> object:
    """A program without the inputs that were added since: older workers ignore them.

    Judges read whole outcomes since they heed who skipped a check; older programs are judged too.
    """
    pairs = json.loads((document or "").replace(":outcome!}", ":}"), object_pairs_hook=list)
    return _without(pairs)


def _without(value: object) -> object:
    if not isinstance(value, list):
        return value
    return [
        (one[0], _without(one[1])) if isinstance(one, tuple) else _without(one)
        for one in value
        if not (isinstance(one, tuple) and one[0] in ADDED_INPUTS)
    ]


@pytest.mark.parametrize("name", RESUMABLE)
def test_stopped_and_failed_sessions_are_resumed_and_driven_to_their_end(old, name):
    old.expire_leases()
    body = {"max_iterations": 4} if "failed" in name else {}
    old.call("POST", f"/sessions/{old.ids[name]}/resume", body)
    assert old.drive(old.ids[name]) == "completed"
    assert old.audit() == []


def test_stopped_flow_is_resumed_from_an_earlier_point(old):
    session = old.ids["nested-stopped"]
    old.call("POST", f"/sessions/{session}/resume", {"after": "plan"})
    assert old.drive(session) == "completed"
    assert old.audit() == []


def test_question_of_the_old_version_is_answered(old):
    session = old.ids["person"]
    old.call("POST", f"/sessions/{session}/answers", {"text": "the second"})
    assert old.drive(session) == "completed"
    said = old.call("GET", f"/sessions/{session}/transcript")["items"]
    assert "the second" in json.dumps(said)


def test_expired_lease_of_the_old_version_lets_the_step_run_again(old):
    session = old.ids["running"]
    [before] = [s for s in old.engine.queries.steps(session).items if s.state == "running"]
    old.expire_leases()
    grant = old.claim(session)
    assert grant is not None
    assert (grant.address, grant.lost) == (before.address, 1)
    old.settle(session, grant)
    assert old.drive(session) == "completed"


def test_conversation_goes_on_where_the_old_version_left_it(old):
    session = old.ids["conversation"]
    aside = old.claim(session)
    assert aside is not None
    assert aside.thread is None
    old.settle(session, aside)
    last = old.claim(session)
    assert last is not None
    assert last.thread is not None
    assert last.thread.id == "t-1"


def test_report_that_the_old_version_did_not_deliver_is_delivered(old):
    assert old.view("unheard")["status"] == "waiting"
    old.later(2_000)
    assert old.view("unheard")["status"] == "active"


def test_webhooks_that_the_old_version_owed_are_delivered(old, monkeypatch):
    posted: list[tuple[bytes, dict[str, str]]] = []

    def post(url: str, body: bytes, headers: dict[str, str], **_: object) -> Posted:
        posted.append((body, headers))
        return Posted(arrived=True, why="")

    monkeypatch.setattr(deliveries, "post", post)
    webhooks = deliveries.Webhooks(old.engine)
    assert [webhooks.deliver(line) for line in webhooks.due(9)] == ["arrived", "arrived"]
    assert webhooks.due(9) == []
    for body, headers in posted:
        at, _, mark = headers["Leadhand-Signature"].removeprefix("t=").partition(",v1=")
        signed = at.encode() + b"." + body
        key = b"the receiver's own secret"
        assert mark == hmac.new(key, signed, hashlib.sha256).hexdigest()
    events = {json.loads(body)["event"] for body, _ in posted}
    assert events == {"failed", "waiting"}


def test_every_active_session_is_driven_to_its_end_and_leaves_nothing_wrong(old):
    old.expire_leases()
    for name in [*ACTIVE, "person"]:
        if name == "person":
            old.call("POST", f"/sessions/{old.ids[name]}/answers", {"text": "the first"})
        if name == "wait":
            old.later(3_600_000 // 10)
            old.now += 3_600_000
            sweep(old.engine)
        assert old.drive(old.ids[name]) == "completed", name
    assert old.audit() == []
    statuses = {old.view(name)["status"] for name in old.ids}
    assert statuses == {"completed", "failed", "stopped", "exited", "aborted"}


def test_ended_sessions_of_the_old_version_are_deleted_without_a_trace(old):
    for name in ("completed", "exited", "aborted", "workflow-failed", "workflow-completed"):
        old.call("DELETE", f"/sessions/{old.ids[name]}")
        left = [key for key in old.engine.store._redis.scan_iter() if old.ids[name] in str(key)]
        assert left == []
    assert old.audit() == []
