"""Signing in: links that work once, cookies bound to a token, and requests of other sites."""

from __future__ import annotations

import logging

import pytest

from api import create_app
from app.security.api_tokens import Scope
from app.security.browser_sessions import IDLE_S, LINK_S, BrowserSessions
from app.settings import Settings
from app.store.tokens import BrowserStore
from tests.integration.api.dashboard.conftest import HTMX, SAME, sign_in
from tests.silent_engine import OPERATOR, SECRET, loop

BEARER = {"Authorization": f"Bearer {OPERATOR}"}


def link_of(client):
    answer = client.post("/v1/sign-in-links", headers=BEARER, json={})
    assert answer.status_code == 201, answer.text
    assert answer.json["expires_s"] == LINK_S
    return answer.get_json()["url"]


def redeem(client, url: str):
    return client.post("/ui/sign-in", data={"link": url.partition("#")[2]}, headers=SAME)


def test_link_signs_in_once(app, stranger):
    url = link_of(stranger)
    assert url.startswith("http://localhost/ui/sign-in#")
    assert redeem(stranger, url).status_code == 303
    assert stranger.get("/ui/inbox").status_code == 200
    other = app.test_client()
    assert redeem(other, url).status_code == 401
    assert other.get("/ui/inbox").status_code == 401


def test_link_is_over_after_a_minute(engine):
    now = [1_000_000.0]
    made = BrowserSessions(
        engine.store.part(BrowserStore),
        engine.tokens,
        secret=SECRET,
        operator=OPERATOR,
        clock=lambda: now[0],
    )
    secret = made.make_link(None)
    [key] = engine.store._redis.keys("*browser-link*")
    assert 0 < engine.store._redis.ttl(key) <= LINK_S
    now[0] += LINK_S + 1
    with pytest.raises(Exception, match="older than a minute"):
        made.redeem(secret)


def test_opening_a_link_does_not_redeem_it_and_no_log_has_it(stranger, caplog):
    caplog.set_level(logging.DEBUG)
    url = link_of(stranger)
    secret = url.partition("#")[2]
    for _ in range(2):  # such as a mail scanner
        assert stranger.get("/ui/sign-in").status_code == 200
    assert redeem(stranger, url).status_code == 303
    assert secret not in caplog.text
    assert not [r for r in caplog.records if secret in str(r.__dict__)]


def test_cookie_is_hidden_from_scripts_and_other_sites(stranger):
    answer = redeem(stranger, link_of(stranger))
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Path=/" in cookie
    assert "Secure" not in cookie


def test_cookie_over_https_is_secure_and_bound_to_the_host(engine):
    settings = Settings(
        api_token=OPERATOR, secret=SECRET, public_url="https://lead.example", api_bind="0.0.0.0:80"
    )
    app = create_app(settings, engine)
    client = app.test_client()
    url = client.post(
        "/v1/sign-in-links", headers=BEARER | {"Host": "lead.example"}, json={}
    ).get_json()["url"]
    assert url.startswith("https://lead.example/ui/sign-in#")
    answer = client.post(
        "/ui/sign-in",
        data={"link": url.partition("#")[2]},
        headers={"Host": "lead.example", "Origin": "https://lead.example"},
    )
    assert answer.status_code == 303
    assert answer.headers["Set-Cookie"].startswith("__Host-leadhand=")
    assert "Secure" in answer.headers["Set-Cookie"]
    app.fanout.close()


def test_ports_of_one_host_have_their_own_cookies(app):
    client = app.test_client()
    host = {"Host": "127.0.0.1:9123"}
    answer = client.post("/ui/sign-in", data={"token": OPERATOR}, headers=SAME | host)
    assert answer.headers["Set-Cookie"].startswith("leadhand-9123=")


def test_cookie_is_opaque_and_the_store_has_only_its_hash(engine, browser):
    [cookie] = [c.value for c in browser._cookies.values()]
    stored = [engine.store._redis.get(k) for k in engine.store._redis.keys("*:browser:*")]
    assert stored
    assert not [text for text in stored if cookie in text or OPERATOR in text]
    assert not [k for k in engine.store._redis.keys("*") if cookie in k]


def test_revoking_the_token_ends_the_browser_session(app, engine):
    made = engine.tokens.create("ann", frozenset({Scope.READ}))
    client = sign_in(app, made.token)
    assert client.get("/ui/sessions").status_code == 200
    engine.tokens.revoke(made.id)
    answer = client.get("/ui/sessions")
    assert answer.status_code == 401
    assert "revoked" in answer.text


def test_signing_out_ends_the_session_at_the_server(engine, browser):
    [cookie] = [c.value for c in browser._cookies.values()]
    assert browser.post("/ui/sign-out", headers=SAME).status_code == 303
    browser.set_cookie("leadhand", cookie)
    assert browser.get("/ui/inbox").status_code == 401
    assert engine.store._redis.keys("*:browser:*") == []


def test_written_record_without_signature_signs_nobody_in(engine, browser):
    key, *_ = engine.store._redis.keys("*:browser:*")
    text = engine.store._redis.get(key)
    engine.store._redis.set(key, text.replace('"created_ms":', '"created_ms":1'), ex=IDLE_S)
    assert browser.get("/ui/inbox").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
    ],
)
def test_form_of_another_site_is_refused(browser, engine, headers):
    session = engine.submit.document(loop()).session
    assert browser.post(f"/ui/sessions/{session}/stop", headers=headers).status_code == 403
    assert browser.post("/ui/sign-in", data={"token": OPERATOR}, headers=headers).status_code == 403
    assert engine.queries.session(session).status == "active"


def test_own_origin_is_accepted(browser, engine):
    session = engine.submit.document(loop()).session
    own = {"Origin": "http://localhost"}
    assert browser.post(f"/ui/sessions/{session}/stop", headers=own).status_code == 303
    assert engine.queries.session(session).status == "stopped"


@pytest.mark.parametrize("path", ["/ui/inbox", "/ui/sign-in", "/v1/sessions", "/healthz", "/docs"])
def test_name_of_another_site_is_refused_on_loopback(browser, path):
    answer = browser.get(path, headers=BEARER | {"Host": "evil.example:8765"})
    assert answer.status_code == 421, (path, answer.text)


def test_forwarded_headers_do_not_count(browser):
    forged = {"X-Forwarded-Host": "localhost", "Host": "evil.example"}
    assert browser.get("/ui/inbox", headers=forged).status_code == 421


def test_fleet_serves_programs_by_any_name_and_browsers_by_known_ones(engine):
    settings = Settings(
        api_token=OPERATOR, secret=SECRET, api_bind="0.0.0.0:8765", allowed_hosts=("lead.example",)
    )
    app = create_app(settings, engine)
    client = app.test_client()
    assert client.get("/v1/sessions", headers=BEARER | {"Host": "api:8765"}).status_code == 200
    assert client.get("/ui/sign-in", headers={"Host": "api:8765"}).status_code == 421
    assert client.get("/ui/sign-in", headers={"Host": "lead.example:8765"}).status_code == 200
    app.fanout.close()


def test_cookie_opens_no_route_of_the_api(browser):
    assert browser.get("/v1/sessions").status_code == 401


def test_token_of_a_step_signs_in_nowhere(stranger):
    answer = stranger.post("/ui/sign-in", data={"token": "lhs_anything"}, headers=SAME)
    assert answer.status_code == 401


def test_htmx_is_sent_to_the_sign_in(stranger):
    answer = stranger.get("/ui/panels/inbox", headers=HTMX)
    assert answer.status_code == 401
    assert answer.headers["HX-Redirect"] == "/ui/sign-in"
