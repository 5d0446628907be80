"""Which texts are credentials by their form, and which are not."""

from __future__ import annotations

import json
import re
import time
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.outcomes import Outcome
from app.core.program import Loop, Program, Step
from app.core.routing import routes
from app.history.transcript import records_of
from app.redaction import redact, without_keys
from leadhand.models.secret_forms import FORMS, SHORTEST, in_lower_case, without_forms

# Put together here, so that no scanner of repositories takes this file for a leak.
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789"
PEM = "-----BEGIN {0}PRIVATE KEY-----\n" + f"{LETTERS}+/=\n" * 3 + "-----END {0}PRIVATE KEY-----"
SECRETS = {
    "Google": ("AI" + "za" + LETTERS[:35], "AI" + "za"),
    "GitLab": ("gl" + "pat-" + LETTERS[:20], "gl" + "pat"),
    "npm": ("npm" + "_" + LETTERS[:36], LETTERS[:36]),
    "Hugging Face": ("hf" + "_" + LETTERS[:34], LETTERS[:34]),
    "Stripe": ("sk" + "_live_" + LETTERS[:24], LETTERS[:24]),
    "Stripe, restricted": ("rk" + "_live_" + LETTERS[:24], LETTERS[:24]),
    "PEM": (PEM.format(""), LETTERS),
    "PEM of RSA": (PEM.format("RSA "), LETTERS),
    "PEM of OpenSSH": (PEM.format("OPENSSH "), LETTERS),
    "PEM, encrypted": (PEM.format("ENCRYPTED "), LETTERS),
    "PEM in JSON": (PEM.format("EC ").replace("\n", "\\n"), LETTERS),
    "Slack webhook": (
        "https://hooks.slack.com/services/T0ABCDEF/B0ABCDEF/" + LETTERS[:24],
        "T0ABC",
    ),
    "token in a URL": ("https://abcdef1234567890@github.com/a/b.git", "abcdef1234567890"),
    "short token in a URL": ("https://TOKEN@host/a", "TOKEN"),
    "@ in a password": ("postgres://me:p@ss@word@db:5432/x", "ss@word"),
    "/ in a password": ("redis://:pa/ss/word@host:6379/0", "pa/ss"),
    "@ and / in a password": ("amqp://u:a/b@c/d@host//", "b@c"),
    "password in a URL": ("redis://user:pa55@host:6379/0", "pa55"),
    "basic": ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpw"),
    "basic alone": ("curl sent Basic dXNlcjpwYXNzd29yZA== twice", "dXNlcjpw"),
    "basic, not base64": ("authorization: basic hunter2hunter2!", "hunter2"),
    "bearer": ("Bearer abcdefgh12345678", "abcdefgh"),
    "letters only": ("sk" + "-" + "abcdefgh" * 4, "abcdefgh"),
    "letters only, of a project": ("sk" + "-proj-" + "AbcdEfgh" * 4, "AbcdEfgh"),
    "DigitalOcean": ("dop" + "_v1_" + "0123abcd" * 8, "0123abcd"),
    "PyPI": ("py" + "pi-" + LETTERS[:40], LETTERS[:40]),
    "SendGrid": ("S" + "G." + LETTERS[:22] + "." + LETTERS[:40], LETTERS[:22]),
    "Vault": ("hv" + "s." + LETTERS[:30], LETTERS[:30]),
    "Google, of a session": ("ya" + "29." + LETTERS[:40], LETTERS[:40]),
    "Linear": ("lin" + "_api_" + LETTERS[:40], LETTERS[:40]),
    "Doppler": ("dp" + ".pt." + LETTERS[:40], LETTERS[:40]),
    "age": ("AGE-" + "SECRET-KEY-1" + "Q0Z9" * 14, "Q0Z9Q0Z9"),
    "Discord": ("MT" + LETTERS[:22] + ".GhIjKl." + LETTERS[:38], LETTERS[:22]),
    "Telegram": ("123456789:" + "AA" + LETTERS[:33], LETTERS[:33]),
    "Telegram in a URL": ("https://api.telegram.org/bot123456789:AA" + LETTERS[:33], LETTERS[:33]),
    "Azure storage": ("AccountName=a;AccountKey=" + LETTERS + "==;End", LETTERS),
    "curl": ("curl -sS -u me:hunter2hunter2 https://host", "hunter2"),
    "curl, long": ("curl https://host --user 'me:hunter2hunter2'", "hunter2"),
    "Leadhand, of an attempt": ("lhc" + "1." + LETTERS + ".0123abcd", LETTERS),
    "Leadhand, of a person": ("lh" + "t_0123abcd_" + LETTERS, LETTERS),
    "Leadhand, a link": ("http://127.0.0.1:8765/ui/sign-in#" + LETTERS, LETTERS),
    "Leadhand, the proof key": ('"proof_key": "' + "0123abcd" * 8 + '"', "0123abcd"),
    "JWT": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJzdWIi"),
}
HARMLESS = [
    "9c1418fa0b3c4d5e6f708192a3b4c5d6e7f80912",
    "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
    "npm_config_registry=https://registry.example/ npm_config_x npm_lifecycle_event",
    "/usr/lib/python3.11/site-packages/hf_transfer/__init__.py",
    "src/task-runner/risk-assessment.py and desk-lamp",
    "write to someone.else+tag@example.com",
    "Basic training, basic authentication, BASIC JavaScript, basic arithmetic1",
    "http://host:8080/path?mail=me@example.com",
    "http://127.0.0.1:80/a@b",
    "ssh://git@github.com/a/b.git and git@github.com:a/b.git",
    "https://example.com/@scope/package@1.2.3",
    "https://example.com?user=me@example.com",
    "redis://a:6379,redis://b:6379",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "https://hooks.slack.com/",
    "sk_live is the prefix of a key, hf_ that of another",
    "the bearer of this letter",
    "dop_v1_ and pypi- and lin_api_ are prefixes; pip install pypi-simple-index",
    "SG.txt, Paris SG. won, hvs.py, dp.pt.py, ya29.md, dp.pt.",
    "AGE-SECRET-KEY- begins a key of age",
    "sk-abcdefgh and pk-foreign-key-constraint and sk-internationalisation",
    "Monday.report.txt, Module.method.attribute, NotImplementedErrorExplained.module.name",
    "10:30:AAPL, 12345678:AA, 127.0.0.1:80AA",
    "AccountKey=$KEY, accountkey: see below",
    "curl -u https://host:80/path, curl --user-agent=a:b, curl -u me https://host",
    "open /ui/sign-in#top, the proof_key: of this start",
    "AIzawa is a name",
    "sha256:" + "0123456789abcdef" * 4,
    "docker://alpine:3.18@sha256:" + "0123456789abcdef" * 4,
    "http://[::1]:8080/u@x",
    "[a](http://localhost:3000),mail@example.com",
    "sk-learn-contrib, sk-learn-upgrade and pk-constraint-users",
    "[a](http://localhost),mail@example.com",
]


@pytest.mark.parametrize("name", SECRETS)
def test_a_credential_is_replaced_and_the_text_around_it_stays(name):
    secret, part = SECRETS[name]
    for text in (secret, f"refused: {secret} ended", f'{{"a": "{secret}"}}', f"KEY={secret}\nend"):
        shown = without_keys(text)
        assert part not in shown, shown
        assert "[redacted]" in shown
    assert without_keys(f"refused: {secret} ended").startswith("refused: ")
    assert without_keys(f"refused: {secret}\n(ended)").endswith("ended)")


@pytest.mark.parametrize("text", HARMLESS)
def test_a_text_without_a_credential_stays_as_it_is(text):
    assert without_keys(text) == text
    assert redact(text) == text


PROSE = "All 120 tests passed. Next: merge...\nverdict: accept\n"


@pytest.mark.parametrize("end", ["CERTIFICATE", "PUBLIC KEY", "RSA PUBLIC KEY", ""])
def test_a_key_goes_on_behind_the_end_of_something_else(end: str) -> None:
    lines = PEM.format("RSA ").splitlines()
    shown = without_keys("\n".join([*lines[:2], f"-----END {end}-----", *lines[2:], "after it"]))
    assert shown == "[redacted]\nafter it"


BEGIN = "-----BEGIN PRIVATE KEY-----"


@pytest.mark.parametrize("prefix", ["", "2026-11-22 10:00:01 api[7]: ", "   12\t", "> "])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\\n", "\n    "])
def test_a_key_is_redacted_from_its_first_line_to_its_last(prefix, newline):
    headers = ["Proc-Type: 4,ENCRYPTED", f"DEK-Info: AES-128-CBC,{'0A' * 16}", ""]
    lines = [BEGIN, *headers, f"{LETTERS}+/", "Ab3=", "-----END PRIVATE KEY-----"]
    key = newline.join(f"{prefix}{line}" for line in lines)
    assert without_keys(f"a {key} b {key} c") == f"a {prefix}[redacted] b {prefix}[redacted] c"


def test_a_key_without_its_last_line_is_redacted_to_the_end_of_the_text():
    cut = PEM.format("").partition("-----END")[0]
    assert without_keys(f"a {cut}{PROSE}") == "a [redacted]"


@pytest.mark.parametrize("escape", [
    str, lambda secret: json.dumps(secret)[1:-1], lambda secret: json.dumps(json.dumps(secret)),
    lambda secret: json.dumps(secret, ensure_ascii=False), quote, quote_plus,
    lambda secret: quote(secret, safe=""), lambda secret: quote(secret, safe="").lower(),
])  # fmt: skip
def test_a_known_secret_is_redacted_as_json_and_urls_escape_it(escape):
    secret = 'p\u00e4ss/w"rd & co'
    shown = without_keys(f"a {escape(secret)} b", [secret])
    assert shown.replace('"', "").replace("\\", "") == "a [redacted] b"


HOSTILE = [
    "x://a:", "https://", "https://a", "x://a:b", "a.", "a-", "a+", "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN ", "-----BEGIN A ", "-----END", "Basic ", "basic aaaaaaaa ", "bearer ",
    "authorization:", "authorization: basic ", "hooks.slack.com/a/", "eyJaaaaaaaa.", "gl", "sk-",
    "glpat-", "AIza", "lhc1.", "token=", "a:@", "@", "\\n", " ", "bearer\t",
    f"{BEGIN}\na: b", f"{BEGIN}\nabcdefghijklmnopqr\nab", f"{BEGIN}\n", "sk-a", "x://a@sha256:",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_time_grows_no_faster_than_the_text(piece):
    """Compares two lengths in one process, so that a slow machine changes nothing."""

    def seconds(length: int) -> float:
        text = piece * (length // len(piece)) + "!"
        best = float("inf")
        for _ in range(2):
            begin = time.process_time()
            without_keys(text)
            best = min(best, time.process_time() - begin)
        return best

    assert seconds(200_000) < 40 * max(seconds(20_000), 0.001)


def test_a_text_of_a_megabyte_takes_seconds_at_most():
    for piece in ("x://a:", "https://", "-----BEGIN PRIVATE KEY-----", "a.", "basic aaaaaaaa "):
        begin = time.process_time()
        without_keys(piece * (1_000_000 // len(piece)))
        assert time.process_time() - begin < 5, piece


def every_pattern(text: str) -> str:
    for form in FORMS:
        text = form.pattern.sub(form.replacement, text)
    return text


#: Keys take Hypothesis minutes; they have one sign, which is the beginning of their pattern.
GENERATED = [form for form in FORMS if "PEM" not in form.name]


@pytest.mark.parametrize("form", GENERATED, ids=lambda form: form.name)
@settings(max_examples=15)  # a form with one sign is refuted by the first that lacks it
@given(data=st.data())
def test_each_match_of_a_form_has_one_of_its_signs(form, data):
    for _ in range(1 + len(form.signs) // 6):
        match = data.draw(st.from_regex(form.pattern, fullmatch=True))
        searched = in_lower_case(match) if form.ignores_case else match
        assert any(sign in searched for sign in form.signs)
        assert len(match) >= SHORTEST
        assert without_forms(match) == every_pattern(match)


SIGNS = [sign for form in FORMS for sign in (*form.signs, *map(str.upper, form.signs))]
PIECES = [
    *SIGNS, "dXNlcjpwYXNzd29yZA==", LETTERS, "bearer ", "basic ", "authorization: token ",
    "https://", "hooks.slack.com/services/", "@host", "a:b", "\n", ".", " ", "é",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join))
def test_to_look_for_signs_first_changes_no_text(text):
    assert without_forms(text) == every_pattern(text)


@pytest.mark.parametrize(
    "letter", ["I", "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}", "\N{LATIN SMALL LETTER DOTLESS I}"]
)
@pytest.mark.parametrize("other", ["S", "\N{LATIN SMALL LETTER LONG S}"])
def test_letters_that_a_pattern_takes_for_others_are_found(letter, other):
    text = f"BA{other}{letter}C dXNlcjpwYXNzd29yZA=="
    assert without_forms(text) == every_pattern(text) == f"BA{other}{letter}C [redacted]"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_signs_of_a_form_that_ignores_case_are_in_lower_case(form):
    assert form.ignores_case == bool(form.pattern.flags & re.IGNORECASE)
    assert not form.ignores_case or all(sign == sign.lower() for sign in form.signs)


def test_each_form_has_a_name_of_its_own():
    assert len({form.name for form in FORMS}) == len(FORMS)


def test_labels_are_shown_without_credentials():
    secret, part = SECRETS["GitLab"]
    step = Step.model_validate({"id": "ask", "action": "agent", "label": f"use {secret}"})
    loop = Loop.model_validate({"id": "main", "label": secret, "max_iterations": 1, "body": [step]})
    program = Program(name="p", body=(loop,))
    told = json.dumps(routes(program))
    assert part not in told
    assert "use [redacted]" in told
    (record,) = records_of(step, "main~1[1]/ask", Outcome(word="succeeded", text="done"))
    assert part not in record
