"""A loop whose judge has a stale verdict: its checks run once more, which does not count."""

from __future__ import annotations

from typing import Any

from app.core.program import Loop
from app.history.records import Snapshot
from app.sessions.resume import rewind_to
from tests.engine.driving import Bench, Drive, loop, program, step


def checked(**more: object) -> Loop:
    body = (step("do", "agent"), step("check", "check"), step("judge", "judge"))
    return loop("l", *body, **more)  # type: ignore[arg-type]


def iterate(drive: Drive, at: str, verdict: str = "retry", *, stale: bool = False) -> None:
    """Carry one iteration out."""
    drive.do(f"{at}/do")
    drive.do(f"{at}/check", verdict="accept")
    drive.do(f"{at}/judge", verdict=verdict, recheck=stale or None)


def is_recheck(drive: Drive, address: str) -> bool:
    """Whether each attempt at the step learns that, also after one that was handed back."""
    first = drive.take(address)
    drive.release(first)
    second = drive.take(address)
    drive.release(second)
    assert first.is_recheck == second.is_recheck
    return first.is_recheck


def resume_after(drive: Drive, point: str) -> None:
    known = Snapshot(drive.bench.store, drive.ref)
    found = rewind_to(drive.program, point, known, failed=False)
    assert found is not None
    more: dict[str, Any] = found.arguments()
    drive.control("resume", nonce="again", **more)


def test_stale_verdict_opens_one_iteration_that_does_not_count(bench: Bench) -> None:
    drive = bench.start(program(checked(turns=1)))
    assert not is_recheck(drive, "l~1[1]/do")
    iterate(drive, "l~1[1]", stale=True)
    assert is_recheck(drive, "l~1[2]/do")
    assert is_recheck(drive, "l~1[2]/do")
    iterate(drive, "l~1[2]", stale=True)  # there is no second one
    assert (drive.status, drive.field("iterations")) == ("failed", "1")
    assert drive.reason["text"] == "not accepted within 1 iteration"


def test_recheck_uses_no_budget_of_iterations(bench: Bench) -> None:
    drive = bench.start(program(checked(turns=5)), budget={"iterations": 2})
    iterate(drive, "l~1[1]")
    iterate(drive, "l~1[2]", stale=True)
    assert drive.status == "active"
    iterate(drive, "l~1[3]")
    assert (drive.status, drive.reason["code"]) == ("failed", "budget")


def test_next_run_of_a_loop_has_its_own_recheck(bench: Bench) -> None:
    drive = bench.start(program(checked(turns=1, on_fail="retry", retries=1)))
    for run in (1, 2):
        iterate(drive, f"l~{run}[1]", stale=True)
        iterate(drive, f"l~{run}[2]")
    assert (drive.status, drive.field("iterations")) == ("failed", "2")


def test_recheck_stays_one_in_a_resume_from_before_it(bench: Bench) -> None:
    """The next iteration after a stale verdict starts no doer, and has its own allowance."""
    drive = bench.start(program(checked(turns=2)))
    iterate(drive, "l~1[1]", stale=True)
    drive.do("l~1[2]/do")
    drive.control("stop")
    resume_after(drive, "l~1[1]/judge")
    assert is_recheck(drive, "l~2[2]/do")
    iterate(drive, "l~2[2]")
    iterate(drive, "l~2[3]", "accept")
    assert drive.status == "completed"


def test_resume_before_a_stale_verdict_may_be_rechecked_again(bench: Bench) -> None:
    drive = bench.start(program(checked(turns=1)))
    iterate(drive, "l~1[1]", stale=True)
    drive.do("l~1[2]/do")
    drive.control("stop")
    resume_after(drive, "l~1[1]/check")
    drive.do("l~2[1]/judge", verdict="retry", recheck=True)
    assert is_recheck(drive, "l~2[2]/do")


def test_stop_and_resume_keep_a_recheck(bench: Bench) -> None:
    drive = bench.start(program(checked(turns=1)))
    iterate(drive, "l~1[1]", stale=True)
    drive.control("stop")
    drive.control("resume", nonce="go on", max_iterations=2)
    assert is_recheck(drive, "l~1[2]/do")
    iterate(drive, "l~1[2]")
    iterate(drive, "l~1[3]", "accept")
    assert (drive.status, drive.field("iterations")) == ("completed", "2")


def test_doer_of_a_recheck_gets_no_messages(bench: Bench) -> None:
    """They wait for the next doer that is started."""
    drive = bench.start(program(checked(turns=2)))
    iterate(drive, "l~1[1]", stale=True)
    drive.run("inbox_add", {"kind": "hint", "from": "ann", "text": "mind the gap"})
    grant = drive.take("l~1[2]/do")
    assert grant.messages == ()
    drive.settle(grant)
    drive.do("l~1[2]/check")
    drive.do("l~1[2]/judge", verdict="retry")
    assert [one.text for one in drive.take("l~1[3]/do").messages] == ["mind the gap"]
