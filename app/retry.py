"""What a repeated instruction is told of the attempt before it, and how often it is given."""

from __future__ import annotations

from app.program import RetryPolicy
from app.redaction import redacted

#: What stands before that error, after the instruction itself.
AGAIN = (
    "# Previous Error\n\n"
    "The previous attempt at this failed; do it again and avoid that. Its error was:"
)
#: Characters of an error that the next attempt is shown.
QUOTED = 240
#: How long it waits before the second attempt, doubled up to a minute.
BACKOFF_S = 1.0


def policy(attempts: int) -> RetryPolicy:
    """So many attempts in all, the first one counted."""
    return RetryPolicy(retries=attempts - 1, backoff_s=BACKOFF_S)


def quoted_error(text: str) -> str:
    r"""The first line of an error that says something, without secrets, cut to 240 characters.

    >>> quoted_error("\n  token=abcdef was refused \n at line 3")
    'token=[redacted] was refused'
    """
    # Redacted before it is cut: half a secret has no form to be known by.
    said = (line.strip() for line in text[:100_000].splitlines())
    first = next((line for line in said if line), "")
    shown = redacted(first[: 20 * QUOTED])
    return shown if len(shown) <= QUOTED else shown[: QUOTED - 1] + "…"
