"""The patterns by which credentials are recognised in texts."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, quote_plus

MARK = "[redacted]"


#: A text with fewer characters is no credential, nor does it have one in it.
SHORTEST = 7
#: An escaped character of a URL.
_ESCAPED = re.compile("%[0-9A-F]{2}")
#: What a pattern that ignores case takes for an ASCII letter, and `str.lower` does not.
_LETTERS_ALIKE = (("\u0131", "i"), ("i\u0307", "i"), ("\u017f", "s"))


class SecretForm(NamedTuple):
    """A pattern, and its replacement."""

    name: str
    pattern: re.Pattern[str]
    #: Each match has one of these in it, in lower case if the pattern ignores case. Most texts
    #: have none, and to look for them takes a fraction of the time that the pattern takes.
    signs: tuple[str, ...]
    replacement: str | Callable[[re.Match[str]], str] = MARK
    ignores_case: bool = False


def without_forms(text: str) -> str:
    """Redacts everything that has the form of a credential."""
    if len(text) < SHORTEST:
        return text
    lower = in_lower_case(text)
    for form in FORMS:
        searched = lower if form.ignores_case else text
        for sign in form.signs:
            if sign in searched:
                text = form.pattern.sub(form.replacement, text)
                break
    return text


@lru_cache(maxsize=512)
def escaped_forms(secret: str) -> tuple[str, ...]:
    r"""Returns a secret with its forms in JSON, in JSON within JSON, and in URLs, longest first.

    >>> escaped_forms("pass word")
    ('pass%20word', 'pass word', 'pass+word')
    """
    once = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    twice = {json.dumps(one)[1:-1] for one in once}
    urls = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    urls |= {_ESCAPED.sub(lambda found: found[0].lower(), one) for one in urls}
    slashes = {one.replace("/", r"\/") for one in once}
    forms = {secret} | once | twice | urls | slashes
    return tuple(sorted(forms, key=lambda one: (-len(one), one)))


def in_lower_case(text: str) -> str:
    """Converts a text to lower case, also letters that regular expressions match as ASCII ones."""
    lower = text.lower()
    if not text.isascii():
        for letter, plain in _LETTERS_ALIKE:
            lower = lower.replace(letter, plain)
    return lower


def _without_basic(found: re.Match[str]) -> str:
    """Redacts `Basic` credentials: a word that decodes to user and password in base64."""
    word = found[2].rstrip("=")
    try:
        decoded = base64.b64decode(word + "=" * (-len(word) % 4)).decode()
    except ValueError:
        return found[0]
    is_pair = ":" in decoded and decoded.isprintable()
    return f"{found[1]}{MARK}" if is_pair else found[0]


#: The first and the last line of a private key in PEM.
KEY_BEGINS = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
KEY_ENDS = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")


# Each repetition is bounded or possessive, so that no text takes more than linear time.
#: In the order in which they are applied: those that span others come first.
FORMS = (
    SecretForm(
        "private key in PEM",
        # Up to the end of the text, where a key has no last line: it may be cut.
        re.compile(rf"(?s:{KEY_BEGINS.pattern}.*?(?:{KEY_ENDS.pattern}|\Z))"),
        ("-----BEGIN ",),
    ),
    SecretForm(
        "Slack webhook",
        re.compile(r"(\bhooks\.slack(?:-gov)?\.com/[a-z]{1,20}/)[A-Za-z0-9/_-]{8,200}"),
        ("hooks.slack",),
        rf"\1{MARK}",
    ),
    SecretForm(  # A port and a path are no password: `http://host:80/a@b`.
        "password in a URL",
        re.compile(
            r"(\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@\"'<>?#\[]{0,200}:)"
            r"(?!\d{1,5}(?:[/?#,;)}\]]|$))[^\s\"'<>]{1,200}(@)(?!sha(?:256|512):[0-9a-f]{32})"
        ),
        ("://",),
        rf"\1{MARK}\2",
    ),
    SecretForm(  # The user of an SSH address is no secret: `ssh://git@host`.
        "token in a URL",
        re.compile(r"(\b(?:git\+)?https?://)[^\s/:@\"'<>?#()\[\],]{5,500}(@)"),
        ("://",),
        rf"\1{MARK}\2",
    ),
    SecretForm(
        "Discord token",
        re.compile(r"\b[MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,60}"),
        (".",),
    ),
    SecretForm(  # The number of the bot is before the colon, and a port is no such number.
        "Telegram bot",
        re.compile(r"((?<![A-Za-z0-9])(?:bot)?[0-9]{8,10}:)AA[A-Za-z0-9_-]{32,}"),
        (":AA",),
        rf"\1{MARK}",
    ),
    SecretForm(
        "Azure account key",
        re.compile(
            r"(?i)(\b(?:account|sharedaccess)key[\"']?\s{0,4}[=:]\s{0,4}[\"']?)"
            r"[A-Za-z0-9+/]{20,200}={0,2}"
        ),
        ("accountkey", "sharedaccesskey"),
        rf"\1{MARK}",
        ignores_case=True,
    ),
    SecretForm(
        "user and password of curl",
        re.compile(
            r"(\bcurl\b[^\n;|&]{0,300}?\s(?:-[A-Za-z]{0,8}u ?|--(?:proxy-)?user[ =])[\"']?"
            r"[^\s:\"']{1,100}:)(?!//)[^\s\"']{1,200}"
        ),
        ("curl",),
        rf"\1{MARK}",
    ),
    SecretForm(  # Of the dashboard; the part behind the # is valid for a minute.
        "sign-in link",
        re.compile(r"(/ui/sign-in#)[A-Za-z0-9_-]{16,}"),
        ("/ui/sign-in#",),
        rf"\1{MARK}",
    ),
    SecretForm(
        "proof key of the services",
        re.compile(r"(?i)(proof_key[\"']?\s{0,4}[=:]\s{0,4}[\"']?)[0-9a-f]{16,128}"),
        ("proof_key",),
        rf"\1{MARK}",
        ignores_case=True,
    ),
    SecretForm(
        "authorization header",
        re.compile(
            r"(?i)(\bauthorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?(?:basic|bearer|token)\s{1,4})"
            r"[^\s\"',;]{4,4096}"
        ),
        ("authorization",),
        rf"\1{MARK}",
        ignores_case=True,
    ),
    SecretForm(
        "bearer",
        re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}"),
        ("bearer",),
        rf"\1{MARK}",
        ignores_case=True,
    ),
    SecretForm(
        "basic",
        re.compile(r"(?i)\b(basic\s{1,4})([A-Za-z0-9+/]{6,2000}={0,2})"),
        ("basic",),
        _without_basic,
        ignores_case=True,
    ),
    SecretForm(
        "token with a prefix",
        re.compile(
            r"""(?x)
            \b(?:sk|pk|rk)-(?=[A-Za-z_-]{0,100}[0-9])[A-Za-z0-9_-]{16,}  # OpenAI, Anthropic
            | \b(?:sk|pk|rk)-(?:[a-z0-9]{1,12}-){0,3}[A-Za-z]{24,}       # letters only
            | \b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{8,} | \bwhsec_[A-Za-z0-9+/=]{16,}  # Stripe
            | \bgh[pousr]_[A-Za-z0-9]{16,} | \bgithub_pat_[A-Za-z0-9_]{16,}
            | \bgl(?:pat|dt|ptt|rt|oas|cbt|ft|soat|agent|imt)-[A-Za-z0-9_.-]{16,}         # GitLab
            | \bxox[abeprs]-[A-Za-z0-9-]{8,} | \bxapp-[A-Za-z0-9-]{8,}                    # Slack
            | \bAIza[A-Za-z0-9_-]{30,} | \bya29\.[A-Za-z0-9_-]{20,}            # Google
            | \bdop_v1_[0-9a-f]{32,} | \bpypi-[A-Za-z0-9_-]{32,}               # DigitalOcean, PyPI
            | \bSG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}                   # SendGrid
            | \bhv[sbr]\.[A-Za-z0-9_-]{20,}                     # HashiCorp Vault
            | \bdp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9._-]{20,}             # Doppler
            | \blin_(?:api|oauth)_[A-Za-z0-9]{20,}                # Linear
            | \bAGE-SECRET-KEY-(?:1|PQ-1)[A-Z0-9]{40,}
            | \bnpm_[A-Za-z0-9]{30,} | \bhf_[A-Za-z0-9]{20,}
            | \blhc1\.[A-Za-z0-9_-]{8,4096}(?:\.[0-9a-f]{1,64})?   # Leadhand, of a running attempt
            | \blht_[0-9a-f]{8,64}_[A-Za-z0-9_-]{8,}               # Leadhand, of a person
            | \b(?:AKIA|ASIA)[A-Z0-9]{12,}                      # AWS
            | \beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]*   # JWT
            """
        ),
        (
            "sk-", "pk-", "rk-", "k_live_", "k_test_", "whsec_",
            "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_",
            "ya29.", "dop_v1_", "pypi-", "SG.", "hvs.", "hvb.", "hvr.", "dp.", "lin_api_",
            "lin_oauth_", "AGE-SECRET-KEY-",
            "glpat-", "gldt-", "glptt-", "glrt-", "glsoat-", "gloas-", "glcbt-", "glft-",
            "glagent-", "glimt-", "xox", "xapp-", "AIza", "npm_", "hf_", "lhc1.", "lht_",
            "AKIA", "ASIA", "eyJ",
        ),
    ),
)  # fmt: skip
