"""Sessions that a doer starts: `leadhand spawn` in a body, and what its end means there."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import psutil
import pytest

from tests.acceptance.project import Project, outcomes
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240), pytest.mark.slow]

#: Seconds for what takes a few commands one after the other, on a busy machine.
LONG = 90
#: A child that waits for the file `go`.
SLOW = "echo $LEADHAND_SESSION >> children; until test -e go; do sleep 0.05; done; touch made"


def child(project: Project, *arguments: str, doer: str = "touch made") -> str:
    """The shell command of a doer that starts a child session, whose id it prints if detached."""
    project.write("child.sh", doer)
    options = " ".join(arguments)
    return f"leadhand spawn child --doer 'sh child.sh' --checker 'test -f made' {options}"


def node(tree: dict[str, Any], title: str) -> dict[str, Any]:
    (found,) = [one for one in tree["items"] if one["title"] == title]
    return dict(found)


def working_in(project: Project) -> list[psutil.Process]:
    """The processes whose working folder is the project's."""
    folder = str(project.folder)
    return [one for one in psutil.process_iter(["cwd"]) if one.info["cwd"] == folder]


def tree(project: Project, session: str) -> dict[str, Any]:
    found: dict[str, Any] = project.leadhand("tree", session, "--json", timeout=LONG).json()
    return found


def spawn(project: Project, doer: str, *arguments: str) -> str:
    """A session whose doer runs this script, left running; its id."""
    project.write("parent.sh", doer)
    started = project.leadhand(
        "spawn", "parent", "--doer", "sh parent.sh", "--checker", "true", "--detach", *arguments,
        timeout=LONG,
    )  # fmt: skip
    assert started.code == 0, started.err
    return started.out.strip()


def test_a_doer_starts_a_child_in_its_folder_and_reads_its_end(project: Project):
    session = spawn(project, child(project, "--json") + " > child.json; echo $? > code")
    assert project.leadhand("wait", session, timeout=LONG).code == 0
    assert project.lines("code") == ["0"]
    found = tree(project, session)
    kid = node(found, "child")
    assert [one["id"] for one in found["items"]] == [session, kid["id"]]
    assert (kid["parent"], kid["depth"], kid["status"]) == (session, 1, "completed")
    assert kid["started_by"] == "loop~1[1]/do"
    shown = project.leadhand("tree", session, timeout=LONG).out.splitlines()
    assert shown[1].startswith(f"  [child ({kid['id']})] completed")
    # No second set of services started in the doer's folder.
    assert not (project.folder / ".leadhand").exists()


def test_a_child_that_failed_is_the_doer_s_to_read(project: Project):
    fails = child(project, "--max-iterations 1", doer="true")
    session = spawn(project, f"{fails}; echo $? > code; exit 0")
    assert project.leadhand("wait", session, timeout=LONG).code == 0
    assert project.lines("code") == ["3"]
    kid = node(tree(project, session), "child")
    assert (kid["status"], kid["reason"]["code"]) == ("failed", "max_iterations")


def test_an_exit_of_a_child_ends_the_whole_tree_with_its_reason(project: Project):
    gives_up = child(project, doer="leadhand exit 'the API is gone'")
    session = spawn(project, f"{gives_up}; echo $? > code")
    assert project.leadhand("wait", session, timeout=LONG).code == 2
    found = tree(project, session)
    assert {one["status"] for one in found["items"]} == {"exited"}
    assert found["causes"][0]["text"] == "the API is gone"
    assert "exited" in found["causes"][-1]["text"]


def test_a_detached_child_is_waited_for_and_shown_by_its_doer(project: Project):
    doer = f"""
id=$({child(project, "--detach", doer=SLOW)})
test "$id" = "$({child(project, "--detach", doer=SLOW)})" || exit 1
leadhand show $id --json > shown.json && touch go
leadhand wait $id --json > waited.json
leadhand tree $LEADHAND_SESSION > tree.txt
leadhand stop {"0" * 8} || echo refused > stranger
"""
    session = spawn(project, doer)
    assert project.leadhand("wait", session, timeout=LONG).code == 0
    kid = node(tree(project, session), "child")
    assert project.lines("children") == [kid["id"]]
    assert kid["id"] in (project.folder / "tree.txt").read_text()
    assert project.lines("stranger") == ["refused"]


def test_python_in_a_doer_starts_children(project: Project):
    project.write(
        "doer.py",
        "from leadhand import Client, Workflow\n"
        "import os\n"
        "loop = {'kind': 'loop', 'task': 't', 'checkers': ['true'], 'cwd': os.getcwd(),\n"
        "        'doer': {'command': 'true'}}\n"
        "wf = Workflow('inner', doer='true')\n"
        "wf.phase('one', task='t', checker='true')\n"
        "assert wf.run()['one'].verdict == 'accept'\n"
        "with Client() as client:\n"
        "    for key in (None, None, 'second'):\n"
        "        view = client.submit(loop, key)\n"
        "        print(view.id, view.parent, view.depth)\n"
        "        client.wait(view.id)\n",
    )
    session = spawn(project, f"{sys.executable} doer.py > printed")
    assert project.leadhand("wait", session, timeout=LONG).code == 0
    first, again, second = (line.split() for line in project.lines("printed"))
    assert first == again
    assert first[1:] == second[1:] == [session, "1"]
    assert len(tree(project, session)["items"]) == 4


def test_a_killed_worker_s_doer_waits_for_a_child_of_its_own(alone: Project):
    session = spawn(alone, f"echo x >> starts; {child(alone, doer=SLOW)}")
    wait_until(lambda: alone.lines("children"), timeout=LONG)
    with alone.api() as client:
        (worker,) = client.get("/v1/workers").json()["items"]
    os.kill(worker["pid"], signal.SIGKILL)
    wait_until(lambda: len(alone.lines("starts")) == 2, timeout=LONG)
    wait_until(lambda: len(set(alone.lines("children"))) == 2, timeout=LONG)
    (alone.folder / "go").touch()
    assert alone.leadhand("wait", session, timeout=LONG).code == 0
    first, *_, last = alone.lines("children")
    statuses = {one["id"]: one["status"] for one in tree(alone, session)["items"]}
    assert statuses == {session: "completed", first: "aborted", last: "completed"}
    with alone.api() as client:
        assert set(outcomes(client, session).values()) == {1}


def test_a_killed_worker_s_doer_finds_the_child_that_it_let_go_on(alone: Project):
    keeps = child(alone, "--key docs --on-parent-end let-go-on --json", doer=SLOW)
    session = spawn(alone, f"echo x >> starts; {keeps} > child-$(wc -l < starts).json")
    wait_until(lambda: alone.lines("children"), timeout=LONG)
    with alone.api() as client:
        (worker,) = client.get("/v1/workers").json()["items"]
    os.kill(worker["pid"], signal.SIGKILL)
    wait_until(lambda: len(alone.lines("starts")) == 2, timeout=LONG)
    (alone.folder / "go").touch()
    assert alone.leadhand("wait", session, timeout=LONG).code == 0
    assert len(set(alone.lines("children"))) == 1
    kid = node(tree(alone, session), "child")
    assert (kid["status"], kid["parent"]) == ("completed", session)


@pytest.mark.parametrize("verb", ["stop", "abort"])
def test_a_parent_takes_its_child_along(project: Project, verb: str):
    session = spawn(project, f"echo x >> starts; {child(project, doer=SLOW)}")
    (kid,) = wait_until(lambda: project.lines("children"), timeout=LONG)
    assert project.leadhand(verb, session, timeout=LONG).code == 0
    project.leadhand("wait", session, timeout=LONG)
    statuses = {one["id"]: one["status"] for one in tree(project, session)["items"]}
    assert statuses[kid] == "aborted"
    with project.api() as client:
        receipt = client.get(f"/v1/sessions/{session}/receipt").json()
    ended = {(one["session"], one["address"]) for one in receipt["items"]}
    assert ended == {(session, "loop~1[1]/do"), (kid, "loop~1[1]/do")}
    assert receipt["done"]
    wait_until(lambda: not working_in(project), timeout=LONG)
    if verb == "stop":
        (project.folder / "go").touch()
        assert project.leadhand("resume", session, timeout=LONG).code == 0
        assert project.leadhand("wait", session, timeout=LONG).code == 0
        assert len(set(project.lines("children"))) == 2


def test_a_child_that_is_let_go_on_outlives_its_parent(project: Project):
    leaves = child(project, "--on-parent-end let-go-on --detach", doer=SLOW)
    session = spawn(project, f"{leaves}; until test -e children; do sleep 0.05; done")
    assert project.leadhand("wait", session, timeout=LONG).code == 0
    kid = node(tree(project, session), "child")
    assert (kid["status"], kid["parent"], kid["detached_from"]) == ("active", None, session)
    (project.folder / "go").touch()
    assert project.leadhand("wait", kid["id"], timeout=LONG).code == 0
    assert "detached from" in project.leadhand("tree", session, timeout=LONG).out


def test_racing_children_keep_to_the_limit(make_project):
    project = make_project(LEADHAND_TREE_CHILDREN="3")
    race = "for n in 1 2 3 4 5 6 7 8; do (%s 2> err-$n; echo $? >> codes) & done; wait"
    session = spawn(project, race % child(project, "--key k$n --detach"))
    assert project.leadhand("wait", session, timeout=LONG).code == 0
    assert sorted(project.lines("codes")) == ["0"] * 3 + ["1"] * 5
    refused = [text for n in range(1, 9) for text in project.lines(f"err-{n}")]
    assert len(refused) == 5
    assert all("LEADHAND_TREE_CHILDREN" in text and "3 child sessions" in text for text in refused)
    assert len(tree(project, session)["items"]) == 4


def test_doers_that_wait_leave_a_slot_for_their_children(make_project):
    """Two processes, and a chain of four sessions: each doer but the last waits for the next."""
    project = make_project(LEADHAND_CONCURRENCY="2", LEADHAND_LEASE_S="3")
    project.write(
        "next.sh",
        "echo x >> depth; test $(wc -l < depth) -ge 4 ||"
        " leadhand spawn child --doer 'sh next.sh' --checker true",
    )
    session = spawn(project, "sh next.sh")
    assert project.leadhand("wait", session, timeout=LONG).code == 0
    found = tree(project, session)
    assert [one["depth"] for one in found["items"]] == [0, 1, 2, 3]
    assert {one["status"] for one in found["items"]} == {"completed"}
    # The pool is as small as before once nobody waits.
    log = project.state / "log/worker.log"
    wait_until(lambda: "pool has 2 processes" in log.read_text(), timeout=LONG)
