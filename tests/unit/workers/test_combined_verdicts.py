"""Several checkers and the rule between them, by example."""

from __future__ import annotations

import pytest

from app.core.outcomes import Outcome
from leadhand.models.verdicts import Reason, ReasonCode
from workers.checkers.combine import combine
from workers.task import Check

ACCEPT = Outcome(word="succeeded", verdict="accept", text="fine")
RETRY = Outcome(word="succeeded", verdict="retry", text="two tests fail", exit_code=1)
TERMINATE = Outcome(
    word="succeeded",
    verdict="terminate",
    text="not found",
    reason=Reason(code=ReasonCode.FAILED_STEP, text="cannot start"),
)
TIMEOUT = Outcome(word="failed", reason=Reason(code=ReasonCode.TIMEOUT, text="took too long"))


@pytest.mark.parametrize(
    ("rule", "outcomes", "verdict", "code"),
    [
        ("all", [ACCEPT, ACCEPT], "accept", None),
        ("all", [ACCEPT, RETRY], "retry", None),
        ("any", [ACCEPT, RETRY], "accept", None),
        ("any", [RETRY, RETRY], "retry", None),
        (2, [ACCEPT, RETRY, ACCEPT], "accept", None),
        (2, [ACCEPT, RETRY, RETRY], "retry", None),
        ("any", [ACCEPT, TERMINATE], "terminate", ReasonCode.TERMINATED),
        ("all", [ACCEPT, TIMEOUT], "retry", None),
        ("all", [ACCEPT, None], "terminate", ReasonCode.CHECKER_DOWN),
        ("any", [ACCEPT, None], "accept", None),
        ("any", [RETRY, None], "retry", None),
        ("any", [None, None], "terminate", ReasonCode.CHECKER_DOWN),
        (2, [ACCEPT, RETRY, None], "retry", None),
        (2, [ACCEPT, None, None], "terminate", ReasonCode.CHECKER_DOWN),
        ("all", [], "accept", None),
    ],
)
def test_the_rule_decides(rule, outcomes, verdict, code) -> None:
    judgement = combine(rule, [Check(name=f"c{i}", outcome=o) for i, o in enumerate(outcomes)])
    assert judgement.verdict == verdict
    assert (judgement.reason.code if judgement.reason else None) == code


def test_a_checker_alone_speaks_for_itself() -> None:
    assert combine("all", [Check(name="tests", outcome=RETRY)]).feedback == "two tests fail"


def test_refusals_are_told_apart_by_name() -> None:
    judgement = combine(
        "all",
        [
            Check(name="tests", outcome=RETRY),
            Check(name="lint", outcome=ACCEPT),
            Check(name="slow", outcome=TIMEOUT),
        ],
    )
    assert judgement.feedback == (
        "## tests (retry)\n\ntwo tests fail\n\n"
        "## slow (timed out: no verdict on the work)\n\ntook too long"
    )
    assert [check.verdict for check in judgement.checks] == ["retry", "accept", "retry"]
    assert judgement.checks[0].exit_code == 1


def test_timeouts_alone_are_no_feedback_on_the_work() -> None:
    said = "The check ended before it judged the work: this is no verdict on the work.\n\n"
    slow = Check(name="slow", outcome=TIMEOUT)
    assert combine("all", [slow]).feedback == f"{said}took too long"
    good = Check(name="lint", outcome=ACCEPT)
    (first, _, third) = combine("all", [slow, good, slow]).feedback.partition("\n\n## slow")
    assert (first + "\n\n", third.count("took too long")) == (said, 2)
    assert not combine("all", [slow, good, slow]).is_on_work
    refused = Check(name="tests", outcome=RETRY)
    assert combine("all", [slow, refused]).is_on_work


def test_the_chain_of_reasons_leads_to_the_checker() -> None:
    judgement = combine("all", [Check(name="tests", outcome=TERMINATE)])
    assert judgement.reason is not None
    assert judgement.reason.root.text == "cannot start"


def test_an_accept_hands_on_what_the_accepting_said() -> None:
    checks = [Check(name="a", outcome=ACCEPT), Check(name="b", outcome=RETRY)]
    assert combine("any", checks).feedback == "## a (accept)\n\nfine"
