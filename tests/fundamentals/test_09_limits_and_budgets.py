"""Lesson 9: limits and budgets.

`max_iterations` bounds one loop. A *budget* bounds what the whole session uses: iterations, steps,
seconds, dollars, tokens. A *limit* bounds how many doers with the same key run at once, over all
sessions. A session that failed at a limit continues when a resume raises it.
"""

from __future__ import annotations

from pathlib import Path

from leadhand import Client
from leadhand.loop import spawn_and_run, spawn_session

#: Accepts the third try.
THIRD_TIME = "test $(wc -l < tries) -eq 3"
TRY = "echo x >> tries"


def test_a_resume_raises_the_iterations_of_a_loop(client: Client, folder: Path) -> None:
    result = spawn_and_run("Try", THIRD_TIME, doer=TRY, max_iterations=2, cwd=folder, client=client)
    assert (result.verdict, result.iterations) == ("max_iterations", 2)

    client.resume(result.session_id, max_iterations=1)
    assert client.wait(result.session_id).verdict == "accept"


def test_a_budget_bounds_the_whole_session(client: Client, folder: Path) -> None:
    result = spawn_and_run(
        "Try", THIRD_TIME, doer=TRY, budget={"iterations": 2}, cwd=folder, client=client
    )
    session = client.session(result.session_id)
    assert (session.status, session.reason and session.reason.code) == ("failed", "budget")

    client.resume(session.id, budget={"iterations": 3})
    assert client.wait(session.id).verdict == "accept"


def test_a_limit_holds_for_all_sessions_with_a_key(client: Client, folder: Path) -> None:
    """`mkdir` fails if the folder exists: the doers would fail if two of them ran at once."""
    client.set_limit("key:printer", concurrency=1)
    sessions = []
    for name in ("one", "two", "three"):
        (folder / name).mkdir()
        sessions.append(
            spawn_session(
                "Print",
                "true",
                doer="mkdir ../printing && sleep 0.05 && rmdir ../printing",
                concurrency_key="printer",
                cwd=folder / name,
                client=client,
            )
        )

    assert {client.wait(session).verdict for session in sessions} == {"accept"}
