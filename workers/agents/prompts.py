"""The contracts that agents are given as prompts: the doer's and the checker's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.retry import AGAIN
from app.texts import cut
from workers.inputs import CheckInputs, DoerInputs, PastIteration, Prior

#: Characters of any one text that is quoted in a prompt.
QUOTE_LIMIT = 8_000
#: Characters of the doer's output that a checker is shown.
WORK_LIMIT = 32_000
#: Characters of an earlier iteration's feedback that a checker is shown.
PAST_LIMIT = 200


def doer_prompt(given: DoerInputs) -> str:
    """The task and all that the doer must know to carry it out."""
    return _joined([given.task.strip(), *_doer_sections(given)])


def checker_prompt(given: CheckInputs) -> str:
    """What to judge, by what criteria, and how to say the verdict."""
    sections = [
        f"# Role\n\n{_ROLE}",
        f"# Criteria\n\n{given.checker.prompt or ''}",
        f"# Task\n\n{cut(given.task.strip(), QUOTE_LIMIT)}" if given.task.strip() else "",
        f"# Doer Output\n\n{cut(given.work.strip(), WORK_LIMIT) or '(none)'}",
        f"# Iteration\n\n{given.iteration}",
        _past(given.history),
        f"# Verdict\n\n{_VERDICT}",
    ]
    return _joined(sections)


def again_prompt(prompt: str, failure: str | None) -> str:
    """A prompt as the next attempt gives it: with what the one before it failed with."""
    if not failure:
        return prompt
    return _joined([prompt.rstrip(), f"{AGAIN} {failure}"])


def decision_prompt(question: str) -> str:
    """A question that is answered with yes or no, in JSON that can be read for sure."""
    return f"{_DECIDE}\nQuestion: {question.strip()}\n"


_DECIDE = (
    'Answer with JSON only: {"answer": "yes"} or {"answer": "no"}. No other text, no other key.'
)
_ROLE = (
    "You are the checker. Another agent, the doer, has worked on a task in this folder."
    " Judge the result by the criteria; look at the files, run what helps, change nothing."
)
_VERDICT = """Say briefly what you found; the doer reads it. Then end with a line of one word:

ACCEPT - the criteria are met
RETRY - they are not, and another try may meet them
TERMINATE - they cannot be met, and another try would be in vain"""


_STILL = (
    "Nothing has changed: the last {times} iterations left the same work, and it was refused in the"
    " same way each time. The same once more ends the loop. Do something else, or say plainly what"
    " stands in the way."
)


def _doer_sections(given: DoerInputs) -> Iterator[str]:
    told = [_prior(prior) for prior in given.prior if prior.text.strip()]
    if told:
        yield "# Prior Phase Results\n\n" + "\n\n---\n\n".join(told)
    if given.file_scope:
        yield "# File Scope\n\n" + _list(f"`{path}`" for path in given.file_scope)
    if given.verify:
        yield "# Verification\n\n" + _list(given.verify)
    previous = given.previous
    if previous is not None and (previous.work.strip() or previous.feedback.strip()):
        yield (
            "# Previous Attempt\n\n"
            f"Iteration {given.iteration - 1}{_of(given)} was not accepted. Mend what the checker"
            " names, and keep what was good."
        )
        if 0 < given.no_progress <= given.unchanged:
            yield f"## No Progress\n\n{_STILL.format(times=given.unchanged)}"
        yield _titled("## Previous Summary", previous.work)
        yield _titled("## Checker Feedback", previous.feedback)


def _prior(prior: Prior) -> str:
    label = "" if prior.verdict in (None, "accept") else f" ({prior.verdict})"
    return f"**{prior.name}**{label}: {cut(prior.text.strip(), QUOTE_LIMIT)}"


def _past(history: Iterable[PastIteration]) -> str:
    lines = [
        f"Iteration {past.iteration}: {past.verdict or 'none'}:"
        f" {past.feedback.strip()[:PAST_LIMIT] or '(no feedback)'}"
        for past in history
    ]
    return f"# Prior Iterations\n\n{_list(lines)}" if lines else ""


def _of(given: DoerInputs) -> str:
    return f" of {given.max_iterations}" if given.max_iterations is not None else ""


def _titled(title: str, text: str) -> str:
    return f"{title}\n\n{cut(text.strip(), QUOTE_LIMIT)}" if text.strip() else ""


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _joined(sections: Iterable[str]) -> str:
    return "\n\n".join(section for section in sections if section) + "\n"
