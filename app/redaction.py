"""Keeps secrets out of what people and agents are shown: anything that looks like a credential."""

from __future__ import annotations

import re

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
#: What is a secret by its form, whatever stands before it.
_FORMS = re.compile(
    r"""(?x)
    \b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}           # OpenAI, Anthropic, Stripe
    | \bgh[pousr]_[A-Za-z0-9]{16,} | \bgithub_pat_[A-Za-z0-9_]{16,}
    | \bxox[abprs]-[A-Za-z0-9-]{8,}
    | \b(?:AKIA|ASIA)[A-Z0-9]{12,}
    | \beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]*
    """
)
_BEARER = re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{8,}")
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]{0,30}://[^\s/:@]*:)[^\s/@]+(@)")


def redacted(text: str) -> str:
    """The text with what looks like a credential replaced.

    >>> redacted("401 for key sk-abcdefgh12345678")
    '401 for key [redacted]'
    >>> redacted('OPENAI_API_KEY="abcd1234" redis://me:pw@host')
    'OPENAI_API_KEY="[redacted]" redis://me:[redacted]@host'
    """
    text = _USERINFO.sub(rf"\1{_MARK}\2", text)
    text = _BEARER.sub(rf"\1{_MARK}", text)
    text = _FORMS.sub(_MARK, text)
    return _NAMED.sub(rf"\1{_MARK}", text)
