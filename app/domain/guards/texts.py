"""The guidance of Stop guards: templates with `{name}` fields, which a team can replace (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from leadhand.models.text import without_controls

_FIELD = re.compile(r"\{([a-z_]+)\}")

_FIX = """{what} (attempt {attempt} of {limit}).{warning}

{output}

{do}"""

#: The gate that each guard inside a session has: no session that it has started is at work.
CHILDREN = "children"

#: The built-in templates by name.
TEMPLATES: Mapping[str, str] = {
    "max-loops": """{head}: the gates failed at {limit} stops of this \
session. Do not try again. Tell the user what you changed, which gate fails, and what you need.""",
    "fix-build-errors": _FIX.replace("{what}", "The build fails").replace(
        "{do}", "Fix these errors, run the build yourself, then stop again."
    ),
    "build-stuck": """{head}: the build still fails after {attempt} \
attempts. Do not try again. Tell the user what you tried and what the error is.

{output}""",
    "fix-test-failures": _FIX.replace("{what}", "Tests fail").replace(
        "{do}", "Fix the cause, not the test, run the tests yourself, then stop again."
    ),
    "test-stuck": """{head}: tests still fail after {attempt} attempts. \
Do not try again. Tell the user which tests fail and what you tried.

{output}""",
    "update-docs": """Code changed, but no documentation did. If users notice the change, update \
the documentation.

{output}""",
    "file-pr": """The work has no pull request. Open one when it is ready for review.{pr_output}""",
    "address-review": """The pull request has open review comments. Address them, or answer why \
not.

{output}""",
    "pr-stuck": """{head}: the gate {gate} has not passed at {attempt} \
stops. Ask the user what is to become of the pull request.""",
    "wait-for-children": """Sessions that you have started are still at work; they may end with \
you.

{output}

Wait for them (`leadhand wait ID`), read what they reported (`leadhand inbox`), or stop those \
that you need no more (`leadhand stop ID`), then stop again.""",
    "children-stuck": """{head}: sessions that you have started are still at work. Tell the user \
which, and what you wait for.

{output}""",
    "complete": """All gates passed: {passed}.""",
    "fix-gate": _FIX.replace("{what}", "The gate {gate} fails").replace(
        "{do}", "Fix this, then stop again."
    ),
    "gate-stuck": """{head}: the gate {gate} still fails after {attempt} \
attempts. Do not try again. Tell the user what you tried and what the error is.

{output}""",
}

#: The templates of the default gates: of a failure, and of one at the limit.
OF_GATES: Mapping[str, tuple[str, str]] = {
    "build": ("fix-build-errors", "build-stuck"),
    "test": ("fix-test-failures", "test-stuck"),
    "docs": ("update-docs", "gate-stuck"),
    "pr": ("file-pr", "pr-stuck"),
    "review": ("address-review", "pr-stuck"),
    CHILDREN: ("wait-for-children", "children-stuck"),
}


def render(name: str, own: Mapping[str, str], fields: Mapping[str, object]) -> str:
    """Fills in the guidance template of that name; the team's version takes precedence.

    >>> render("complete", {}, {"passed": "build, test"})
    'All gates passed: build, test.'
    >>> render("complete", {"complete": "{passed} is fine, {who}"}, {"passed": "build"})
    'build is fine, {who}'
    """
    text = own.get(name) or TEMPLATES.get(name) or TEMPLATES["fix-gate"]
    filled = _FIELD.sub(lambda found: str(fields.get(found[1], found[0])), text)
    return without_controls(re.sub(r"\n{3,}", "\n\n", filled)).strip()


def warning_of(attempt: int, limit: int) -> str:
    """Returns a warning if an attempt is close to the limit of retries, else an empty text.

    `attempt` is the number of this failure; with a limit of 5 the fourth warns, since three
    retries have failed.

    >>> warning_of(3, 5), warning_of(4, 5)
    ('', ' Warning: 3 attempts have failed.')
    >>> warning_of(5, 5)
    ' Warning: 4 attempts have failed. If this one fails too, the problem goes to the user.'
    """
    failed = attempt - 1
    if failed < 1 or failed < limit - 2:
        return ""
    text = f" Warning: {failed} attempt{' has' if failed == 1 else 's have'} failed."
    if failed < limit - 1:
        return text
    return f"{text} If this one fails too, the problem goes to the user."
