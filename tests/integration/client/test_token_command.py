"""`leadhand token` against a real API: a token is made, used, listed and revoked."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from leadhand.client.client import Client
from leadhand.errors import QuotaPassed, TokenRefused, TokenUnknown
from leadhand.models.views.fleet import Quotas
from tests.integration.api.test_api_process import LOOP, TOKEN, running
from tests.redis_users import of_broker
from tests.waiting import wait_until

Leadhand = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def url(folder: Path, module_store_url: str) -> Iterator[str]:
    with running(folder, module_store_url) as url:
        yield url


@pytest.fixture
def leadhand(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Leadhand:
    monkeypatch.setenv("LEADHAND_URL", url)
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)

    def leadhand(*arguments: str) -> tuple[int, str, str]:
        code = run(cli, arguments)
        return (code, *capsys.readouterr())

    return leadhand


def test_a_refused_token_names_its_variable(leadhand, monkeypatch):
    reader = leadhand("token", "create", "reader", "--scope", "read")[1].strip()
    monkeypatch.setenv("LEADHAND_TOKEN", reader)
    code, _, err = leadhand("limit", "set", "agent:a", "--concurrency", "1")
    assert (code, "lacks the scope 'admin'" in err) == (1, True)
    assert err.endswith("; the token is the one in LEADHAND_TOKEN\n")
    for token, why in {
        "": "no bearer token was sent",
        "nonsense": "the token is not known",
    }.items():
        monkeypatch.setenv("LEADHAND_TOKEN", token)
        code, _, err = leadhand("ls")
        assert (code, err.count("\n")) == (1, 1)
        assert err.startswith(f"leadhand: {why}; set LEADHAND_TOKEN to a token of the API")
        assert "Authorization" not in err


def test_a_bad_option_of_a_token_is_named_as_it_was_typed(leadhand):
    code, _, err = leadhand("token", "create", "x", "--scope", "read", "--webhook", "ftp://x")
    assert code == 1
    assert err.startswith("leadhand: --webhook: ")


def test_a_token_is_printed_once_and_then_opens_what_it_says(leadhand, url, monkeypatch):
    code, out, err = leadhand("token", "create", "ci", "--scope", "read", "--expires", "30d",
                              "--max-sessions", "2")  # fmt: skip
    assert code == 0
    token = out.strip()
    assert token.startswith("lht_")
    assert token not in err
    id_ = token.split("_")[1]
    code, out, _ = leadhand("token", "list")
    assert code == 0
    [head, row] = [line for line in out.splitlines() if line.startswith(("ID", id_))]
    assert head.split()[:3] == ["ID", "NAME", "SCOPES"]
    assert row.split()[:6] == [id_, "ci", "read", "0/2", "0", "0"]
    assert row.endswith("never")
    assert token.split("_", 2)[2] not in out
    monkeypatch.setenv("LEADHAND_TOKEN", token)
    assert leadhand("ls")[0] == 0
    code, _, err = leadhand("token", "list")
    assert code == 1
    assert "lacks the scope 'admin'" in err
    code, _, err = leadhand("spawn", "x", "--checker", "true", "--detach")
    assert code == 1
    assert "lacks the scope 'submit'" in err
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
    assert leadhand("token", "revoke", id_)[:2] == (0, f"token {id_} is revoked\n")
    monkeypatch.setenv("LEADHAND_TOKEN", token)
    code, _, err = leadhand("ls")
    assert code == 1
    assert "the token is not known" in err


def test_a_token_can_be_read_by_programs(leadhand):
    code, out, err = leadhand("token", "create", "ci", "--scope", "read", "--scope", "submit",
                              "--scope", "read", "--json")  # fmt: skip
    assert (code, err) == (0, "")
    made = json.loads(out)
    assert made["scopes"] == ["read", "submit"]
    assert made["expires_at"] is None
    listed = json.loads(leadhand("token", "list", "--json")[1])
    assert listed["items"][0]["id"] == made["id"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("token create", "Missing argument 'NAME'"),
        ("token create ci", "Missing option '--scope'"),
        ("token create ci --scope root", "'root' is not one of"),
        ("token create ci --scope read --expires soon", "'soon' is not a span"),
        ("token create ci --scope read --expires 0d", "'0d' is not a span"),
        ("token create ci --scope read --max-sessions -1", "-1 is not in the range"),
        ("token create ci --scope read --expires 9999999999w", "--expires"),
        ("token create ci --scope read --webhook-event ended", "need --webhook URL"),
        ("token create ci --scope read --webhook http://10.0.0.1/", "not https"),
        ("token create ci --scope read --webhook nowhere", "cannot be called"),
        ("token create ci --scope read --webhook-secret-file /missing", "does not exist"),
        ("token revoke", "Missing argument 'ID...'"),
        ("token revoke 000000000000", "token '000000000000' is not found"),
        ("token revoke ../sessions", "'../sessions' is not a token id"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(leadhand, line, said):
    code, _, err = leadhand(*line.split())
    assert code == 1
    assert said in err
    assert "Traceback" not in err


def test_the_client_makes_tokens_and_hears_of_its_quota(url):
    with Client(url, TOKEN) as admin:
        made = admin.create_token("ci", ["submit", "read"], quotas=Quotas(max_sessions=1))
        document = {"kind": "loop", "task": "x", "checker": "agent: look", "doer": {"agent": "a"}}
        with Client(url, made.token, patience_s=0.1) as client:
            client.submit(document)
            with pytest.raises(QuotaPassed, match="1 sessions that have not ended"):
                client.submit(document)
            with pytest.raises(TokenRefused) as caught:
                client.submit(LOOP)
            assert caught.value.problem.field == "checkers.0.command"
            with pytest.raises(TokenRefused):
                client.tokens()
        assert [v.spent.sessions for v in admin.tokens() if v.id == made.id] == [1]
        admin.revoke_token(made.id)
        with pytest.raises(TokenUnknown):
            admin.revoke_token(made.id)


@pytest.mark.slow
def test_a_token_of_another_process_is_revoked_within_seconds(url, tmp_path, module_store_url):
    broker_url = of_broker(module_store_url)
    folder = tmp_path / "second"
    folder.mkdir()
    with running(folder, module_store_url, LEADHAND_BROKER_URL=broker_url) as other:
        with Client(url, TOKEN) as admin:
            made = admin.create_token("ci", ["read"])
            headers = {"Authorization": f"Bearer {made.token}"}
            assert httpx2.get(f"{other}/v1/sessions", headers=headers).is_success
            admin.revoke_token(made.id)

        def refused() -> bool:
            return httpx2.get(f"{other}/v1/sessions", headers=headers).status_code == 401

        wait_until(refused, timeout=6)


def test_no_secret_stands_in_the_log(leadhand, folder):
    token = leadhand("token", "create", "ci", "--scope", "read")[1].strip()
    log = (folder / "log").read_text()
    assert "/v1/tokens" in log
    assert token.split("_", 2)[2] not in log
