"""Keeps secrets out of what people and agents are shown: anything that looks like a credential."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import JsonValue

_MARK = "[redacted]"
#: `name=value` and `name: value` where the name says that the value is a secret.
_NAMED = re.compile(
    r"""(?ix)
    ((?:api[_-]?key|access[_-]?key|secret|token|password|passwd|pwd|credentials?|authorization)
     (?:[_-][a-z0-9]{1,32}){0,4}
     ["']?\s{0,4}[:=]\s{0,4}["']?(?:(?:bearer|basic)\s{1,4})?)
    [^\s"',;&]{4,}
    """
)
#: `--name value` on a command line; in a sentence, what follows may be the next word.
_FLAGGED = re.compile(
    r"""(?ix)
    (--?(?:[a-z0-9]{1,32}[_-]){0,4}
     (?:(?:api|access|secret)[_-]?key|secret|token|password|passwd|credentials?)
     \s{1,4}["']?)
    (?!-)[^\s"'{}]{4,}
    """
)
#: What is a secret by its form, whatever stands before it.
_FORMS = re.compile(
    r"""(?x)
    \b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}           # OpenAI, Anthropic, Stripe
    | \bgh[pousr]_[A-Za-z0-9]{16,} | \bgithub_pat_[A-Za-z0-9_]{16,}
    | \bxox[abprs]-[A-Za-z0-9-]{8,}
    | \blhc1\.[A-Za-z0-9_-]{8,4096}(?:\.[0-9a-f]{1,64})?   # a running attempt's, of ours
    | \blht_[0-9a-f]{8,64}_[A-Za-z0-9_-]{8,}               # a person's, of ours
    | \b(?:AKIA|ASIA)[A-Z0-9]{12,}
    | \beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]*
    """
)
_BEARER = re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]*:)[^\s/@]+(@)")


def without_keys(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets, and without what is one by its form.

    What only stands beside a word like `password` stays: in work, that is mostly no secret.

    >>> without_keys("hush-hush and ghp_abcdefgh12345678, password: 8 letters", ["hush-hush"])
    '[redacted] and [redacted], password: 8 letters'
    """
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _MARK)
    if "://" in text:
        text = _USERINFO.sub(rf"\1{_MARK}\2", text)
    if "earer" in text.lower():
        text = _BEARER.sub(rf"\1{_MARK}", text)
    return _FORMS.sub(_MARK, text)


def redacted(text: str) -> str:
    """The text with what looks like a credential replaced.

    >>> redacted("401 for key sk-abcdefgh12345678")
    '401 for key [redacted]'
    >>> redacted('OPENAI_API_KEY="abcd1234" redis://me:pw@host')
    'OPENAI_API_KEY="[redacted]" redis://me:[redacted]@host'
    """
    return _NAMED.sub(rf"\1{_MARK}", without_keys(text))


def redacted_command(text: str) -> str:
    """A command line in which the values of options that name a credential are replaced, too.

    >>> redacted_command("agent --max-tokens 4000 --api-key hunter2hunter2 {prompt}")
    'agent --max-tokens 4000 --api-key [redacted] {prompt}'
    """
    return _FLAGGED.sub(rf"\1{_MARK}", redacted(text))


def without_secrets(value: JsonValue, secrets: Iterable[str] = ()) -> JsonValue:
    """The value as `without_keys` leaves each text in it, wherever that stands.

    >>> without_secrets({"ask": ["sk-abcdefgh12345678", 7]})
    {'ask': ['[redacted]', 7]}
    """
    if isinstance(value, str):
        return without_keys(value, secrets)
    if isinstance(value, list):
        return [without_secrets(item, secrets) for item in value]
    if isinstance(value, dict):
        return {
            without_keys(name, secrets): without_secrets(item, secrets)
            for name, item in value.items()
        }
    return value
