"""Decides whether an agent may stop, and words the guidance of Stop guards (pure).

A failure counts at its gate until a stop passes all gates. A gate with `limit` failures has one
more block, which tells the agent to give up; then the agent may stop.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from app.redaction import without_keys
from leadhand.models.guards import MAX_GATES, OUTPUT, OUTPUT_WHEN_STUCK, GateResult, StopReport
from leadhand.models.text import without_controls
from leadhand.models.views.shared import StopDecision

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
#: The name of the limit over all gates among those at which the agent was to give up.
_ALL = "*"
_MOVES_ON = "The agent may stop now, although this has not passed."
_HEADS = {
    "global": "Global stop limit reached ({})",
    "stage": "Stage limit reached ({})",
    "row": "Limit of blocks in a row reached ({})",
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


class GuardState(BaseModel):
    """What a guard remembers of an agent session. A new one has failed at nothing."""

    model_config = ConfigDict(frozen=True)

    stops: int = 0
    #: Stops at which a gate failed, since the last reset.
    failed_stops: int = 0
    blocks: int = 0
    #: Blocks in a row of one prompt.
    row: int = 0
    #: Failures in a row, by gate.
    retries: dict[str, int] = {}
    #: The gates, or `*` for all, at which the agent was to give up.
    given_up: tuple[str, ...] = ()
    stage: str = "build"
    #: The last result of each gate.
    last: dict[str, str] = {}
    #: Failing stops since the last one that passed all gates.
    failing: int = 0
    prompt_id: str | None = None
    overridden: int = 0
    #: The decision about the last stop, if no other event came since.
    decision: Literal["allow", "block"] | None = None
    last_stop_ms: int | None = None


class Turn(NamedTuple):
    """What became of a stop or an event: the new state, and what is recorded."""

    state: GuardState
    decision: StopDecision | None = None
    #: Problems to record: a block that the agent did not obey.
    warnings: tuple[str, ...] = ()


def attempt_of(state: GuardState) -> tuple[int, str]:
    """Returns the number of the next check since all gates passed, and its purpose as text.

    >>> attempt_of(GuardState())
    (1, 'the first check')
    >>> attempt_of(GuardState(failing=4, stage="test"))
    (5, 'verifying a fix of test')
    """
    why = f"verifying a fix of {state.stage}" if state.failing else "the first check"
    return state.failing + 1, why


def begin_prompt(state: GuardState, prompt_id: str | None, *, event: str = "prompt") -> Turn:
    """Returns the state with consecutive blocks reset to 0, and a warning if one was ignored."""
    warnings = (_overridden(event),) if state.decision == "block" else ()
    new = {
        "row": 0,
        "decision": None,
        "prompt_id": prompt_id or state.prompt_id,
        "overridden": state.overridden + len(warnings),
    }
    return Turn(state.model_copy(update=new), None, warnings)


def reset(state: GuardState) -> GuardState:
    """Returns the state with the counters of limits set to 0; the totals are kept."""
    return state.model_copy(
        update={"failed_stops": 0, "retries": {}, "given_up": (), "row": 0, "failing": 0}
    )


def decide_early(state: GuardState, report: StopReport, now_ms: int) -> Turn | None:
    """Decides on a stop without running gates if the limit of failed stops is reached; else None.

    The first such stop is blocked with the text to give up; the next one is allowed.
    """
    turn = _at_prompt(state, report)
    if turn.state.failed_stops < report.limits.stops:
        return None
    stopped = _count_stop(turn.state, now_ms)
    limit = report.limits.stops
    fields = {"limit": limit, "head": _HEADS["global"].format(limit), "total": stopped.stops}
    text = render("max-loops", report.templates, fields)
    decision = StopDecision(
        decision="block", template="max-loops", text=text, attempt=stopped.failed_stops,
        limit=limit, limit_reached="global",
    )  # fmt: skip
    return _at_limit(stopped, report, decision, _ALL, turn.warnings)


def decide(state: GuardState, report: StopReport, now_ms: int) -> Turn:
    """Decides whether an agent may stop, by its gates' results; returns the decision and new state.

    The first gate that failed blocks the stop, until its limit is reached.
    """
    turn = _decide(state, report, now_ms)
    return turn._replace(state=_without_old_names(turn.state, report))


def _decide(state: GuardState, report: StopReport, now_ms: int) -> Turn:
    early = None if report.unchecked is not None else decide_early(state, report, now_ms)
    if early is not None:
        return early
    turn = _at_prompt(state, report)
    gates = report.gates or ()
    ran = {gate.name: gate.outcome for gate in gates if gate.outcome != "skipped"}
    state = _count_stop(turn.state, now_ms).model_copy(update={"last": {**state.last, **ran}})
    if report.unchecked is not None:
        return _allow(
            state, "unchecked", f"Not checked: {without_controls(report.unchecked)}", turn.warnings
        )
    for gate in gates:
        if gate.outcome == "unfinished":
            text = f"The gate {gate.name} did not end within the hook's time."
            return _allow(state, "unfinished", text, turn.warnings, gate=gate.name)
        if gate.outcome == "failed":
            return _fail(state, report, gate, turn.warnings)
    return _pass(state, report, gates, turn.warnings)


def _at_prompt(state: GuardState, report: StopReport) -> Turn:
    """The state at this stop: a stop of another prompt begins a new row of blocks."""
    is_new = report.is_first if report.prompt_id is None else report.prompt_id != state.prompt_id
    return begin_prompt(state, report.prompt_id) if is_new else Turn(state)


def _count_stop(state: GuardState, now_ms: int) -> GuardState:
    return state.model_copy(update={"stops": state.stops + 1, "last_stop_ms": now_ms})


def _pass(
    state: GuardState,
    report: StopReport,
    gates: tuple[GateResult, ...],
    warnings: tuple[str, ...],
) -> Turn:
    """All gates have passed: their counters begin again."""
    passed = ", ".join(gate.name for gate in gates if gate.outcome == "passed") or "none ran"
    text = render("complete", report.templates, {"passed": passed, "attempt": state.failing + 1})
    names = {gate.name for gate in gates}
    last = {name: outcome for name, outcome in state.last.items() if name in names}
    new = {"retries": {}, "given_up": (), "failing": 0, "stage": "complete", "last": last}
    return _allow(state.model_copy(update=new), "complete", text, warnings)


def _fail(
    state: GuardState, report: StopReport, gate: GateResult, warnings: tuple[str, ...]
) -> Turn:
    """A gate has failed: guidance, or at its limit the text that ends the attempts."""
    failed = state.retries.get(gate.name, 0)
    is_stuck = gate.limit is not None and failed >= gate.limit
    attempt = failed if is_stuck else failed + 1
    state = state.model_copy(
        update={
            "retries": {**state.retries, gate.name: attempt},
            "failed_stops": state.failed_stops + (1 if gate.blocks else 0),
            "failing": state.failing + 1,
            "stage": gate.name,
        }
    )
    decision = _guidance(report, gate, attempt, is_stuck=is_stuck)
    if not gate.blocks:
        allowed = decision.model_copy(update={"decision": "allow"})
        return Turn(_allowed(_forget_passed(state, report)), allowed, warnings)
    if is_stuck:
        return _at_limit(state, report, decision, gate.name, warnings)
    if state.row >= report.limits.blocks_in_a_row:
        stuck = _guidance(report, gate, attempt, is_stuck=True, reached="row")
        return _give_up(state, stuck, warnings)
    return _block(state, decision, warnings)


def _forget_passed(state: GuardState, report: StopReport) -> GuardState:
    """Begin the counters of the gates that passed again: what failed refuses no stop."""
    passed = {gate.name for gate in report.gates or () if gate.outcome == "passed"}
    retries = {name: count for name, count in state.retries.items() if name not in passed}
    given_up = tuple(name for name in state.given_up if name not in passed)
    return state.model_copy(update={"retries": retries, "given_up": given_up, "failing": 0})


def _without_old_names(state: GuardState, report: StopReport) -> GuardState:
    """Remember no more gates than one stop may have; those of this report stay."""
    names = {gate.name for gate in report.gates or ()}

    def latest(known: Collection[str]) -> set[str]:
        others = [name for name in known if name not in names]
        return {*others[max(0, len(known) - MAX_GATES) :], *names}

    last, retries, given_up = latest(state.last), latest(state.retries), latest(state.given_up)
    return state.model_copy(
        update={
            "last": {name: one for name, one in state.last.items() if name in last},
            "retries": {name: count for name, count in state.retries.items() if name in retries},
            "given_up": tuple(name for name in state.given_up if name in given_up),
        }
    )


def _guidance(
    report: StopReport,
    gate: GateResult,
    attempt: int,
    *,
    is_stuck: bool,
    reached: Literal["stage", "row"] = "stage",
) -> StopDecision:
    """The block with which a gate answers a failure."""
    by_default = OF_GATES.get(gate.name, ("fix-gate", "gate-stuck"))
    name = (gate.template, gate.stuck_template)[is_stuck] or by_default[is_stuck]
    output = _end_of(without_keys(gate.output), OUTPUT_WHEN_STUCK if is_stuck else OUTPUT)
    fields = {
        "gate": gate.name,
        "head": _HEADS[reached].format(
            report.limits.blocks_in_a_row if reached == "row" else gate.limit
        ),
        "attempt": attempt,
        "limit": gate.limit if gate.limit is not None else "any number",
        "output": output,
        "pr_output": f" ({output})" if output else "",
        "warning": warning_of(attempt, gate.limit) if gate.limit is not None else "",
    }
    return StopDecision(
        decision="block",
        template=name,
        text=render(name, report.templates, fields),
        gate=gate.name,
        attempt=attempt,
        limit=gate.limit,
        limit_reached=reached if is_stuck else None,
    )


def _at_limit(
    state: GuardState,
    report: StopReport,
    decision: StopDecision,
    about: str,
    warnings: tuple[str, ...],
) -> Turn:
    """A limit is reached: one block says to give up, then the agent may stop."""
    in_a_row = state.row >= report.limits.blocks_in_a_row
    if about in state.given_up or in_a_row:
        return _give_up(state, decision, warnings)
    return _block(
        state.model_copy(update={"given_up": (*state.given_up, about)}), decision, warnings
    )


def _give_up(state: GuardState, decision: StopDecision, warnings: tuple[str, ...]) -> Turn:
    """Allow a stop that has not passed: a limit is reached, and the text says which."""
    new = {"decision": "allow", "text": f"{decision.text}\n\n{_MOVES_ON}"}
    return Turn(_allowed(state), decision.model_copy(update=new), warnings)


def _block(state: GuardState, decision: StopDecision, warnings: tuple[str, ...]) -> Turn:
    new = {"row": state.row + 1, "blocks": state.blocks + 1, "decision": "block"}
    return Turn(state.model_copy(update=new), decision, warnings)


def _allow(
    state: GuardState, template: str, text: str, warnings: tuple[str, ...], gate: str | None = None
) -> Turn:
    decision = StopDecision(decision="allow", template=template, text=text, gate=gate)
    return Turn(_allowed(state), decision, warnings)


def _allowed(state: GuardState) -> GuardState:
    return state.model_copy(update={"row": 0, "decision": "allow"})


def _end_of(text: str, limit: int) -> str:
    """The end of an output, which has a program's errors."""
    text = text.strip()
    if len(text) <= limit:
        return text
    mark = "[... the beginning is left out ...]\n"
    return mark + text[-(limit - len(mark)) :]


def _overridden(event: str) -> str:
    then = {"prompt": "a new prompt came", "idle": "the agent waits for its user"}
    what = then.get(event, "its session ended")
    return (
        f"a stop was refused, but the agent did not continue: {what}. Either the user interrupted"
        " it, or the agent's own limit of blocks overrode the guard"
    )
