"""Redacts credentials in texts that people and agents see."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from pydantic import JsonValue

from leadhand.models.secret_forms import MARK, escaped_forms, without_forms

#: `name=value` and `name: value` with a name such as `password`.
_NAMED = re.compile(
    r"""(?ix)
    ((?:api[_-]?key|access[_-]?key|secret|token|password|passwd|pwd|credentials?|authorization)
     (?:[_-][a-z0-9]{1,32}){0,4}
     ["']?\s{0,4}[:=]\s{0,4}["']?(?:(?:bearer|basic)\s{1,4})?)
    [^\s"',;&]{4,}
    """
)
#: `--name value`, for command lines only: in a sentence the value may be the next word.
_FLAGGED = re.compile(
    r"""(?ix)
    (--?(?:[a-z0-9]{1,32}[_-]){0,4}
     (?:(?:api|access|secret)[_-]?key|secret|token|password|passwd|credentials?)
     \s{1,4}["']?)
    (?!-)[^\s"'{}]{4,}
    """
)

#: Maximum characters of a value.
SHOWN = 80
#: The characters of a value in which secrets are looked for.
_LOOKED_AT = 4 * SHOWN
#: Replaces a secret.
HIDDEN = "(not shown)"

_SECRET_NAME = re.compile(
    r"^(shell_)?env\.|token|secret|passw|api_?key|authorization|credential", re.IGNORECASE
)


def without_keys(text: str, secrets: Iterable[str] = ()) -> str:
    """Redacts the given secrets, also escaped, and everything that has the form of a credential.

    A value after a word like `password` is kept: in a doer's work it is mostly no secret.

    >>> without_keys("hush-hush and ghp_abcdefgh12345678, password: 8 letters", ["hush-hush"])
    '[redacted] and [redacted], password: 8 letters'
    """
    for secret in sorted(secrets, key=len, reverse=True):
        for form in escaped_forms(secret):
            text = text.replace(form, MARK)
    return without_forms(text)


def redact(text: str) -> str:
    """Redacts everything that looks like a credential, also values after names such as `API_KEY=`.

    >>> redact("401 for key sk-abcdefgh12345678")
    '401 for key [redacted]'
    >>> redact('OPENAI_API_KEY="abcd1234" redis://me:pw@host')
    'OPENAI_API_KEY="[redacted]" redis://me:[redacted]@host'
    """
    return _NAMED.sub(rf"\1{MARK}", without_keys(text))


def redact_command(text: str) -> str:
    """Redacts a command line, including the values of options such as `--api-key`.

    >>> redact_command("agent --max-tokens 4000 --api-key hunter2hunter2 {prompt}")
    'agent --max-tokens 4000 --api-key [redacted] {prompt}'
    """
    return _FLAGGED.sub(rf"\1{MARK}", redact(text))


def without_secrets(value: JsonValue, secrets: Iterable[str] = ()) -> JsonValue:
    """Returns a copy of a JSON value, with secrets redacted in all of its texts and keys.

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


def shortened(value: object, *, field: str = "") -> str | None:
    """Formats a value for display: truncated, without secrets, containers by size.

    >>> shortened(["a", "b"]), shortened(True), shortened("x" * 100)[-4:]
    ('a list of 2', 'true', 'xx…"')
    >>> shortened("postgres://me:pw@host/db"), shortened("hunter2", field="db.password")
    ('(not shown)', '(not shown)')
    """
    match value:
        case dict():
            return f"an object of {len(value)}"
        case list() | tuple():
            return f"a list of {len(value)}"
        case str() | int() | float() | None:
            return _format_scalar(value, field)
        case _:
            return None


def _format_scalar(value: str | float | None, field: str) -> str:
    # A secret that only begins in the shown part is found by what follows.
    start = value[:_LOOKED_AT] if isinstance(value, str) else ""
    if _SECRET_NAME.search(field) or redact(start) != start:
        return HIDDEN
    if isinstance(value, str) and len(value) > SHOWN:
        value = value[:SHOWN] + "…"
    return json.dumps(value, ensure_ascii=False)
