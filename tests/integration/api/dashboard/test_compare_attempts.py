"""Two attempts at a step side by side."""

from __future__ import annotations

import re
import time

import pytest

from app.core.outcomes import Outcome, Usage
from app.engine import Engine
from leadhand.models.verdicts import Reason, ReasonCode
from tests.integration.api.dashboard.test_compare import rows
from tests.session_driving import claim, ref_of, settle
from tests.silent_engine import SECRET, loop, silent_engine


@pytest.fixture
def now() -> list[int]:
    return [int(time.time() * 1000)]


@pytest.fixture
def engine(store_url: str, now: list[int]) -> Engine:
    return silent_engine(store_url, clock=lambda: now[0], secret=SECRET)


@pytest.fixture
def tried_twice(engine: Engine, now: list[int]) -> tuple[str, str]:
    """A loop whose doer fails once and then succeeds; its id, and the address of the doer."""
    session = str(engine.submit.document(loop(doer_attempts=2)).session)
    first = claim(engine, session)
    work = engine.attempts.work(ref_of(engine, session), first)
    failed = Outcome(
        word="failed", text="<b>no disk</b>", retryable=True, prompt="Mend it.",
        usage=Usage(cost_usd=0.5),
        reason=Reason(code=ReasonCode.FAILED_STEP, text="the disk is full"),
    )  # fmt: skip
    engine.attempts.settle(work, failed, take=(), worker="w1/1")
    now[0] += 60_000  # the retry waits
    settle(engine, session, claim(engine, session, worker="w2/1"))
    return session, first.address


def test_attempts_at_a_step_are_compared_with_their_ends(browser, tried_twice):
    session, address = tried_twice
    steps = browser.get(f"/ui/sessions/{session}?tab=steps").text
    [url] = re.findall(r'href="(/ui/compare\?[^"]*step=[^"]+)"', steps)
    text = browser.get(url.replace("&amp;", "&")).text
    assert "Compare two attempts" in text
    found = rows(text)
    assert (found["Worker"], found["End"], found["Reason"], found["Cost"]) == (True,) * 4
    assert "the disk is full" in text
    assert "&lt;b&gt;no disk" in text
    assert address in text


def test_attempt_that_does_not_exist_is_named(browser, tried_twice):
    session, address = tried_twice
    both = f"/ui/compare?left={session}&right={session}"
    for asked in (f"{address}&left_attempt=1&right_attempt=7", "nothing&left_attempt=1"):
        answer = browser.get(f"{both}&step={asked}")
        assert answer.status_code == 404
        assert "has no such attempt" in answer.text
