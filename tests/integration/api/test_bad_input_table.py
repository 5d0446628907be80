"""Bad input of every kind over REST: one line each, and nothing of it leaves a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import pytest
import redis
from flask.testing import FlaskClient

from api import create_app
from api.requests import MAX_BODY_BYTES
from app.engine import Engine
from app.settings import Settings
from leadhand.models.problems import MEDIA_TYPE
from tests.session_driving import add_worker
from tests.silent_engine import loop, silent_engine

TOKEN = "the operator's own"
LOOP = {"kind": "loop", "task": "write it", "checker": "true", "doer": {"command": "true"}}
NEW = {"name": "ci", "scopes": ["read"]}
S, L, T = "/v1/sessions", "/v1/limits", "/v1/tokens"
#: In the table, the id of a session that is active.
ACTIVE = "00000a11"
A = f"{S}/{ACTIVE}"
HOOK = {"url": "https://example.org/x"}
ANY = {"kind": "loop"}
JSON = {"Content-Type": "application/json"}


def nested(levels: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * levels + closing * levels).encode()


def phases(*phases: dict[str, Any]) -> dict[str, Any]:
    usual = {"task": "do it", "checkers": ["true"]}
    return {"kind": "workflow", "name": "w", "phases": [{**usual, **phase} for phase in phases]}


#: The mistake, the request, its status, the named field, and a part of the message.
TABLE: list[tuple[str, str, str, object, dict[str, str], int, str | None, str]] = [
    # Documents
    ("no object", "POST", S, [1], {}, 422, "", "object"),
    ("null", "POST", S, b"null", JSON, 422, "", "object"),
    ("a text", "POST", S, b'"loop"', JSON, 422, "", "object"),
    ("a list for the kind", "POST", S, {"kind": ["loop"]}, {}, 422, "kind", "'loop'"),
    ("task of blanks", "POST", S, {**LOOP, "task": "  "}, {}, 422, "task", "not empty"),
    ("a long task", "POST", S, {**LOOP, "task": "x" * 200_001}, {}, 422, "task", "200000"),
    ("too many checkers", "POST", S, {"kind": "loop", "task": "x", "checkers": ["true"] * 101},
        {}, 422, "checkers", "100"),
    ("a checker that is a number", "POST", S, {**LOOP, "checker": 7}, {}, 422, "checkers.0", ""),
    ("a checker of two kinds", "POST", S,
        {"kind": "loop", "task": "x", "checkers": [{"command": "a", "prompt": "b"}]}, {}, 422,
        "checkers.0", "exactly one"),
    *(
        (f"{quick!r} for quick", "POST", S, {**LOOP, "doer": {"callable": "a:b", "quick": quick}},
            {}, 422, "doer.quick", "true or false")
        for quick in ("true", 1, "yes", None)
    ),
    *(
        (f"{quick!r} for quick of a checker", "POST", S,
            {**LOOP, "checker": {"callable": "a:b", "quick": quick}},
            {}, 422, "checkers.0.quick", "true or false")
        for quick in ("true", 1)
    ),
    *(
        (f"{value!r} for continueOnFailure", "POST", S,
            {"kind": "flow", "steps": [{"type": "llm", "agentType": "a", "identifier": "x",
                "messages": [{"role": "user", "content": ["go"]}], "continueOnFailure": value}]},
            {}, 422, "steps.0.continueOnFailure", "true or false")
        for value in ("true", 1, "false", 0)
    ),
    ("iterations beyond reason", "POST", S, {**LOOP, "max_iterations": 10_001}, {}, 422,
        "max_iterations", "10000"),
    ("iterations of a half", "POST", S, {**LOOP, "max_iterations": 1.5}, {}, 422,
        "max_iterations", "whole number"),
    ("a time-out of nothing", "POST", S, {**LOOP, "timeout_s": 0}, {}, 422, "timeout_s", "0"),
    ("a time-out of a month", "POST", S, {**LOOP, "timeout_s": 30 * 86400}, {}, 422, "timeout_s",
        "604800"),
    ("a priority that is none", "POST", S, {**LOOP, "priority": "urgent"}, {}, 422, "priority",
        "'high'"),
    ("a priority that is a number", "POST", S, {**LOOP, "priority": 9}, {}, 422, "priority",
        "'high'"),
    ("a key with a slash", "POST", S, {**LOOP, "concurrency_key": "a/b"}, {}, 422,
        "concurrency_key", "letters"),
    ("a place with a blank", "POST", S, {**LOOP, "place": "a b"}, {}, 422, "place", "letters"),
    ("a place where nobody is", "POST", S, {**LOOP, "place": "nowhere"}, {}, 422, "place",
        "no worker is at this place"),
    ("a callable without a function", "POST", S, {**LOOP, "doer": {"callable": "os"}}, {}, 422,
        "doer.callable", "module:function"),
    ("a folder that is relative", "POST", S, {**LOOP, "cwd": "here"}, {}, 422, "cwd", "absolute"),
    ("a folder with a zero", "POST", S, {**LOOP, "cwd": "/a\0b"}, {}, 422, "cwd", ""),
    ("a command with a zero", "POST", S, {**LOOP, "doer": {"command": "echo a\0b"}}, {}, 422,
        "doer.command", "zero character"),
    ("a checker with a zero", "POST", S, {**LOOP, "checker": "true \0"}, {}, 422,
        "checkers.0.command", "zero character"),
    ("a rubric with a zero", "POST", S, {**LOOP, "checker": {"rubric": "a\0.md"}}, {}, 422,
        "checkers.0.rubric", "zero character"),
    ("a model with a zero", "POST", S, {**LOOP, "model": "a\0"}, {}, 422, "model", "zero"),
    ("no phases", "POST", S, phases(), {}, 422, "phases", "1"),
    ("more checkers than anybody needs", "POST", S,
        {"kind": "workflow", "name": "w", "phases": [
            {"name": f"p{n}", "task": "x", "checkers": ["true"] * 100} for n in range(101)
        ]}, {}, 422, "phases", "10000"),
    ("files without end", "POST", S, {**LOOP, "file_scope": ["a"] * 1001}, {}, 422, "file_scope",
        "1000"),
    ("two phases of a name", "POST", S, phases({"name": "a"}, {"name": "a"}), {}, 422, "phases",
        "differ"),
    ("a pipe from itself", "POST", S, phases({"name": "a", "pipe_from": ["a"]}), {}, 422, "phases",
        "no phase is before this one"),
    ("retry without a number", "POST", S, phases({"name": "a", "on_fail": "retry"}), {}, 422,
        "phases.0.on_fail", "stop"),
    # Webhooks
    ("a webhook that is a text", "POST", S, {**LOOP, "webhook": "https://x"}, {}, 422, "webhook",
        "object"),
    ("a webhook by ftp", "POST", S, {**LOOP, "webhook": {"url": "ftp://a/b"}}, {}, 422,
        "webhook.url", "https://"),
    ("a webhook with a password", "POST", S, {**LOOP, "webhook": {"url": "https://a:b@c/"}}, {},
        422, "webhook.url", "without user"),
    ("a webhook for nothing", "POST", S, {**LOOP, "webhook": {**HOOK, "events": []}}, {}, 422,
        "webhook.events", "1"),
    ("a webhook for what never is", "POST", S, {**LOOP, "webhook": {**HOOK, "events": ["born"]}},
        {}, 422, "webhook.events.0", "'ended'"),
    ("a secret that is short", "POST", S, {**LOOP, "webhook": {**HOOK, "secret": "short"}}, {},
        422, "webhook.secret", "16"),
    # The envelope
    ("a cut text", "POST", S, b'{"kind": "loop"', JSON, 400, None, "line 1, column 15"),
    ("two texts", "POST", S, b"{} {}", JSON, 400, None, "trailing"),
    ("single quotes", "POST", S, b"{'kind': 'loop'}", JSON, 400, None, "no JSON"),
    ("a comment", "POST", S, b'{"kind": "loop" // it is\n}', JSON, 400, None, "no JSON"),
    ("bytes that are no UTF-8", "POST", S, b'{"task": "\xff\xfe"}', JSON, 400, None, "UTF-8"),
    ("UTF-16", "POST", S, json.dumps(LOOP).encode("utf-16"), JSON, 400, None, "UTF-8"),
    ("half a surrogate", "POST", S, b'{"task": "\\ud800"}', JSON, 400, None, "no JSON"),
    ("NaN", "POST", S, b'{"timeout_s": NaN}', JSON, 400, None, "no JSON"),
    ("infinity", "POST", S, b'{"timeout_s": -Infinity}', JSON, 400, None, "no JSON"),
    ("a number without end", "POST", S, b'{"a": ' + b"9" * 5000 + b"}", JSON, 400, None, "no JSON"),
    ("a name twice", "POST", S, b'{"kind": "loop", "task": "a", "task": "b"}', JSON, 400, "task",
        "twice"),
    ("a name twice, deeper", "POST", S, b'{"doer": {"agent": "a", "agent": "b"}}', JSON, 400,
        "agent", "once"),
    ("65 levels", "POST", S, nested(65), JSON, 400, None, "deeper than 64"),
    ("100 levels", "POST", S, nested(100), JSON, 400, None, "deeper than 64"),
    ("1,000 levels", "POST", S, nested(1000), JSON, 400, None, "deeper than 64"),
    ("100,000 levels", "POST", S, nested(100_000), JSON, 400, None, "deeper than 64"),
    ("100,000 levels of objects", "POST", S, nested(100_000, '{"a":', "}"), JSON, 400, None,
        "deeper than 64"),
    ("100,000 levels left open", "POST", S, b"[" * 100_000, JSON, 400, None, "deeper than 64"),
    ("100 levels elsewhere", "POST", f"{S}/bulk", nested(100), JSON, 400, None, "deeper than 64"),
    ("a body that is huge", "POST", S, b" " * (MAX_BODY_BYTES + 1), JSON, 413, None, ""),
    ("a form", "POST", S, b"kind=loop", {"Content-Type": "application/x-www-form-urlencoded"},
        415, None, "application/json"),
    ("a body of no type", "POST", S, b"{}", {"Content-Type": ""}, 415, None, "application/json"),
    ("a body that is packed", "POST", S, b"{}", {**JSON, "Content-Encoding": "gzip"}, 415, None,
        "gzip"),
    ("no body at all", "POST", S, None, {}, 415, None, "application/json"),
    ("a wrong method", "PUT", S, LOOP, {}, 405, None, "POST"),
    ("a wrong method for a limit", "POST", f"{L}/agent/x", {}, {}, 405, None, "PUT"),
    ("a wrong method for a token", "PUT", f"{T}/0123456789ab", {}, {}, 405, None, "DELETE"),
    ("a method that is none", "BREW", S, None, {}, 405, None, ""),
    # Headers
    ("an empty key", "POST", S, LOOP, {"Idempotency-Key": ""}, 400, "Idempotency-Key", "printable"),
    ("a long key", "POST", S, LOOP, {"Idempotency-Key": "k" * 201}, 400, "Idempotency-Key", "200"),
    ("a key with a tab", "POST", S, LOOP, {"Idempotency-Key": "a\tb"}, 400, "Idempotency-Key", ""),
    ("an empty tag", "POST", f"{A}/stop", None, {"If-Match": ""}, 412, None, "read it again"),
    ("a tag of another time", "POST", f"{A}/stop", None, {"If-Match": 'W/"active-1"'}, 412, None,
        "changed"),
    ("a tag that is no tag", "DELETE", f"{A}?force=true", None, {"If-Match": "active"}, 412, None,
        "changed"),
    ("a tag of a limit for a move", "POST", f"{A}/rehome", {"place": "local"}, {"If-Match": '"2-"'},
        412, None, "changed"),
    ("a tag where no limit is", "PUT", f"{L}/agent/x", {"concurrency": 1}, {"If-Match": '"1-"'},
        412, None, "changed"),
    ("an event id that is none", "GET", f"{A}/events", None, {"Last-Event-ID": "12"}, 400,
        "Last-Event-ID", "1700000000000-0"),
    ("an event id that is long", "GET", f"{A}/events", None, {"Last-Event-ID": "9" * 20 + "-0"},
        400, "Last-Event-ID", ""),
    ("an event id of a stream", "GET", f"{A}/events", None,
        {"Last-Event-ID": "x", "Accept": "text/event-stream"}, 400, "Last-Event-ID", ""),
    ("no token", "GET", S, None, {"Authorization": ""}, 401, None, "Authorization"),
    ("another scheme", "GET", S, None, {"Authorization": "Basic YTpi"}, 401, None, "Bearer"),
    ("a strange token", "GET", S, None, {"Authorization": "Bearer nobody's"}, 401, None, ""),
    ("a forged token", "GET", S, None, {"Authorization": "Bearer lht_0123456789ab_x"}, 401, None,
        "not known"),
    ("a forged body's token", "GET", A, None, {"Authorization": "Bearer lhc1.e30.x"}, 401, None,
        ""),
    # Queries
    ("an unknown parameter", "GET", f"{S}?colour=red", None, {}, 422, "colour", "leave it out"),
    ("a parameter twice", "GET", f"{S}?limit=1&limit=2", None, {}, 422, "limit", "once"),
    ("a limit of nothing", "GET", f"{S}?limit=0", None, {}, 422, "limit", "1"),
    ("a limit that is high", "GET", f"{S}?limit=501", None, {}, 422, "limit", "500"),
    ("a limit in words", "GET", f"{S}?limit=ten", None, {}, 422, "limit", "whole number"),
    ("a status that is none", "GET", f"{S}?status=done", None, {}, 422, "status", "'completed'"),
    ("a kind that is none", "GET", f"{S}?kind=dance", None, {}, 422, "kind", "'loop'"),
    ("a reason that is none", "GET", f"{S}?reason=boredom", None, {}, 422, "reason", "'done'"),
    ("a parent that is no id", "GET", f"{S}?parent=me", None, {}, 422, "parent", "pattern"),
    ("a day for a time", "GET", f"{S}?created_after=2026-11-21", None, {}, 422, "created_after",
        "2026-11-21T12:00:00Z"),
    ("a day that never was", "GET", f"{S}?created_before=2026-02-30T12:00:00Z", None, {}, 422,
        "created_before", ""),
    ("a cursor of words", "GET", f"{S}?cursor=nonsense", None, {}, 422, "cursor", "`next`"),
    ("an empty cursor", "GET", f"{S}?cursor=", None, {}, 422, "cursor", "not empty"),
    ("a long cursor", "GET", f"{S}?cursor={'x' * 501}", None, {}, 422, "cursor", "500"),
    ("an after that is none", "GET", f"{A}/events?after=1", None, {}, 422, "after", "pattern"),
    ("a part that is none", "GET", f"{A}/export?part=half", None, {}, 422, "part", "'ledger'"),
    ("a force that is a number", "DELETE", f"{A}?force=1", None, {}, 422, "force", "true"),
    ("a query where none is", "POST", f"{A}/stop?now=1", None, {}, 422, "now", "leave it out"),
    # Paths
    ("a path that is none", "GET", "/v1/nothing", None, {}, 404, None, ""),
    ("a path into the files", "GET", "/../etc/passwd", None, {}, 404, None, ""),
    ("a session that is not there", "GET", f"{S}/deadbeef", None, {}, 404, None, "leadhand ls"),
    ("an id that is none", "GET", f"{S}/NOTHEX00", None, {}, 404, None, "not found"),
    ("an id with a line's end", "GET", f"{A}%0A", None, {}, 404, None, "not found"),
    ("an id with a zero", "GET", f"{A}%00", None, {}, 404, None, "not found"),
    # Steering
    ("a stop with a word", "POST", f"{A}/stop", {"now": 1}, {}, 422, "now", "leave it out"),
    ("an exit without a reason", "POST", f"{A}/exit", {}, {}, 422, "reason", "add this field"),
    ("an exit with a long one", "POST", f"{A}/exit", {"reason": "x" * 20_001}, {}, 422, "reason",
        "20000"),
    ("a resume by yes", "POST", f"{A}/resume", {"max_iterations": True}, {}, 422, "max_iterations",
        "whole number"),
    ("a point before the first", "POST", f"{A}/resume", {"after": [0, -1]}, {}, 422, "after",
        "positions from 0"),
    ("a point of no positions", "POST", f"{A}/resume", {"after": []}, {}, 422, "after", "[0, 1]"),
    ("a point that is yes", "POST", f"{A}/resume", {"after": True}, {}, 422, "after", "label"),
    ("a point of blanks", "POST", f"{A}/resume", {"after": " "}, {}, 422, "after", "label"),
    ("a move to nowhere", "POST", f"{A}/rehome", {}, {}, 422, "place", "add this field"),
    ("a move up the folders", "POST", f"{A}/rehome", {"place": "../up"}, {}, 422, "place",
        "letters"),
    ("a move by a list", "POST", f"{A}/rehome", {"place": ["a"]}, {}, 422, "place", "text"),
    # Bulk
    ("all sessions at once", "POST", f"{S}/bulk", {"verb": "abort", "filter": {}}, {}, 422,
        "filter", "every session"),
    ("a bulk exit", "POST", f"{S}/bulk", {"verb": "exit", "filter": ANY}, {}, 422, "verb",
        "'stop'"),
    ("a bulk call by word", "POST", f"{S}/bulk", {"verb": "stop", "filter": "all"}, {}, 422,
        "filter", "object"),
    ("a dry run that is no", "POST", f"{S}/bulk", {"verb": "stop", "filter": ANY, "dry_run": "no"},
        {}, 422, "dry_run", "boolean"),
    ("a bulk cursor of words", "POST", f"{S}/bulk",
        {"verb": "stop", "filter": ANY, "cursor": "x", "dry_run": False}, {}, 422, "cursor",
        "`next`"),
    ("a bulk reason without end", "POST", f"{S}/bulk",
        {"verb": "abort", "filter": ANY, "reason": "x" * 20_001}, {}, 422, "reason", "20000"),
    # Limits
    ("a limit of no kind", "PUT", f"{L}/colour/red", {"concurrency": 1}, {}, 404, None, ""),
    ("a limit of no name", "PUT", f"{L}/agent/", {"concurrency": 1}, {}, 404, None, ""),
    ("a limit that limits nothing", "PUT", f"{L}/agent/x", {}, {}, 422, "", "concurrency"),
    ("none at once", "PUT", f"{L}/agent/x", {"concurrency": 0}, {}, 422, "concurrency", "1"),
    ("one and a half at once", "PUT", f"{L}/agent/x", {"concurrency": 1.5}, {}, 422, "concurrency",
        "whole number"),
    ("as many as there are", "PUT", f"{L}/agent/x", {"concurrency": 10**9}, {}, 422, "concurrency",
        "100000"),
    ("fewer than none", "PUT", f"{L}/agent/x", {"per_minute": -1}, {}, 422, "per_minute", "0"),
    ("a rate in words", "PUT", f"{L}/agent/x", {"per_minute": "1"}, {}, 422, "per_minute",
        "number"),
    ("a limit that is not set", "GET", f"{L}/agent/x", None, {}, 404, None, "leadhand limit list"),
    # Tokens
    ("a token without scopes", "POST", T, {"name": "ci", "scopes": []}, {}, 422, "scopes", "1"),
    ("a scope that is none", "POST", T, {"name": "ci", "scopes": ["root"]}, {}, 422, "scopes.0",
        "'read'"),
    ("a token of no name", "POST", T, {"name": "", "scopes": ["read"]}, {}, 422, "name",
        "not empty"),
    ("a token that has expired", "POST", T, {**NEW, "expires_s": 0}, {}, 422, "expires_s", "1"),
    ("a token for ever", "POST", T, {**NEW, "expires_s": 10**10}, {}, 422, "expires_s",
        "315360000"),
    ("a quota below nothing", "POST", T, {**NEW, "quotas": {"max_sessions": -1}}, {}, 422,
        "quotas.max_sessions", "0"),
    ("a quota of what is not counted", "POST", T, {**NEW, "quotas": {"tokens": 1}}, {}, 422,
        "quotas.tokens", "leave it out"),
    ("a token's webhook to us", "POST", T, {**NEW, "webhook": {"url": "http://127.0.0.1/"}}, {},
        422, "webhook.url", ""),
    ("a token's key with a tab", "POST", T, NEW, {"Idempotency-Key": "a\tb"}, 400,
        "Idempotency-Key", "printable"),
    ("a token that is not there", "DELETE", f"{T}/0123456789ab", None, {}, 404, None,
        "leadhand token list"),
    ("a token by no id", "DELETE", f"{T}/x", None, {}, 404, None, ""),
]  # fmt: skip


@pytest.fixture(scope="module")
def engine(module_store_url: str) -> Engine:
    engine = silent_engine(module_store_url, secret="s")
    engine.guard.check()  # writes the id of the store, once
    add_worker(engine, "w1")
    return engine


@pytest.fixture(scope="module")
def active(engine: Engine) -> str:
    return str(engine.submit.document(loop()).session)


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[FlaskClient]:
    app = create_app(Settings(api_token=TOKEN, secret="s"), engine)
    yield app.test_client()
    app.fanout.close()


def contents(url: str) -> dict[bytes, bytes]:
    """All that a Redis holds, by key."""
    with redis.Redis.from_url(url) as store:
        return {key: cast("bytes", store.dump(key)) for key in store.scan_iter()}


@pytest.mark.parametrize("line", TABLE, ids=[line[0] for line in TABLE])
def test_bad_input_is_refused_with_its_field_and_the_way_out(
    client, active, module_store_url, line
):
    _, method, path, body, headers, status, field, said = line
    before = contents(module_store_url)
    sent = {"Authorization": f"Bearer {TOKEN}", **headers}
    if body is not None and not isinstance(body, bytes):
        body, sent = json.dumps(body), {**JSON, **sent}
    answer = client.open(path.replace(ACTIVE, active), method=method, data=body, headers=sent)
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == MEDIA_TYPE
    problem = json.loads(answer.data)
    assert (problem["status"], problem.get("field")) == (status, field)
    assert said in " ".join(str(problem.get(part, "")) for part in ("detail", "hint"))
    assert len(answer.data) < 40_000
    assert contents(module_store_url) == before


def test_the_table_tells_of_each_line_once():
    names = [line[0] for line in TABLE]
    assert len(names) == len(set(names))
