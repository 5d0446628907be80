"""Lesson 6: stop and resume.

`stop` ends what runs and starts nothing new. `resume` continues from there: finished steps keep
their results, and the interrupted step runs again. The interrupted attempt does not count.
"""

from __future__ import annotations

from pathlib import Path

from leadhand import Client, Workflow
from leadhand.loop import spawn_session
from tests.fundamentals.conftest import Terminal
from tests.waiting import wait_until

#: Works until the file `go` exists, and leaves a line for each of its starts.
SLOW = "echo start >> starts; until test -e go; do sleep 0.05; done"


def starts(folder: Path) -> int:
    file = folder / "starts"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_a_stopped_session_continues_where_it_was(client: Client, folder: Path) -> None:
    session = spawn_session("Take your time", "true", doer=SLOW, cwd=folder, client=client)
    wait_until(lambda: starts(folder) == 1)

    client.stop(session)
    assert client.wait(session).status == "stopped"

    (folder / "go").touch()
    client.resume(session)
    result = client.wait(session)
    assert (result.verdict, result.iterations) == ("accept", 1)
    assert starts(folder) == 2


def test_finished_work_is_not_repeated(client: Client, folder: Path) -> None:
    workflow = Workflow("two", doer=SLOW, cwd=folder)
    workflow.phase("plan", task="Plan", checker="true", doer="echo planned >> plans")
    workflow.phase("write", task="Write", checker="true")
    session = client.submit(workflow.document())
    wait_until(lambda: starts(folder) == 1)

    client.stop(session.id)
    client.wait(session.id)
    (folder / "go").touch()
    client.resume(session.id)

    assert client.wait(session.id).status == "completed"
    assert (folder / "plans").read_text() == "planned\n"


def test_the_command_line_stops_and_resumes(terminal: Terminal, folder: Path) -> None:
    spawned = terminal(f"leadhand spawn 'Take your time' --detach --doer '{SLOW}' --checker true")
    session = spawned.out.strip()
    wait_until(lambda: starts(folder) == 1)

    assert terminal(f"leadhand stop {session}").code == 0
    assert terminal(f"leadhand wait {session}").code == 2
    (folder / "go").touch()
    assert terminal(f"leadhand resume {session} && leadhand wait {session}").code == 0
