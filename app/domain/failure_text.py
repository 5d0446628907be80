"""The error of a failed attempt, as the prompt of the next one quotes it."""

from __future__ import annotations

from app.domain.outcomes import Outcome
from app.redaction import redact
from app.truncate import cut

#: Heading of the quoted error, after the instruction.
AGAIN = (
    "# Previous Error\n\n"
    "The previous attempt at this failed; do it again and avoid that. Its error was:"
)
#: Length of the quoted error in characters.
QUOTED = 240
#: Characters of a doer's end that its next attempt is shown.
ENDING = 4_000


def quote_error(text: str) -> str:
    r"""Quote an error's first line for the next attempt's prompt: redacted, at most 240 characters.

    >>> quote_error("\n  token=abcdef was refused \n at line 3")
    'token=[redacted] was refused'
    """
    # Redact before truncating: half a secret would not be recognised.
    lines = (line.strip() for line in text[:100_000].splitlines())
    first = next((line for line in lines if line), "")
    shown = redact(first[: 20 * QUOTED])
    return shown if len(shown) <= QUOTED else shown[: QUOTED - 1] + "…"


def ending_of(outcome: Outcome) -> str | None:
    r"""Returns a failed attempt's reason and last output, redacted; None if it did not fail.

    >>> from leadhand.models.reasons import Reason, ReasonCode
    >>> reason = Reason(code=ReasonCode.FAILED_STEP, text="doer exited with code 3: no such file")
    >>> print(ending_of(Outcome(word="failed", text="line 1\nline 2", reason=reason)))
    doer exited with code 3: no such file
    <BLANKLINE>
    Its output ended with:
    line 1
    line 2
    """
    if outcome.word != "failed" or outcome.reason is None:
        return None
    how, output = outcome.reason.text, outcome.text.strip()
    if output and output[-200:] not in how:
        how = f"{cut(how, ENDING // 2)}\n\nIts output ended with:\n{output[-ENDING // 2 :]}"
    return redact(cut(how, ENDING))
