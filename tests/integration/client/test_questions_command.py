"""Questions to people: listed, and answered inline by a person who waits at a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.program import Action, Program, Step
from app.sessions.submit import About
from leadhand.client.client import Client
from tests.http_world import TOKEN, Served, served
from tests.integration.client.test_inbox_commands import child_of
from tests.waiting import wait_until
from workers.attempt.settle import park

PROGRAM = (sys.executable, "-P", "-c", "from leadhand.cli import main; main()")


@pytest.fixture(scope="module")
def api(module_store_url: str) -> Iterator[Served]:
    with served(module_store_url) as running:
        yield running


def start(api: Served, *questions: str, rules: dict[str, Any] | None = None) -> SessionRef:
    """A session that asks these questions, at the steps q1, q2 and so on; then all is done."""
    more: dict[str, JsonValue] = {} if rules is None else {"rules": json.dumps(rules)}
    body = [
        Step(
            id=f"q{n}", action=Action.HUMAN, needs=(), timeout_s=900,
            inputs={"question": text, **more},
        )
        for n, text in enumerate(questions, 1)
    ]  # fmt: skip
    session = api.engine.submit.program(Program(body=tuple(body)), About("flow", "quiz")).session
    ref = SessionRef(session, session)
    for step in body:
        ask(api, ref, step.id)
    return ref


def ask(api: Served, ref: SessionRef, address: str) -> None:
    [grant] = api.engine.attempts.claim(ref, address, nonce=address, worker="w").grants
    assert park(api.engine, api.engine.attempts.work(ref, grant)) is None


def given(api: Served, ref: SessionRef) -> dict[str, str]:
    outcomes = api.engine.store.outcomes(ref)
    return {address: json.loads(text).get("text") for address, text in outcomes.items()}


def environment(api: Served) -> dict[str, str]:
    outer = {name: text for name, text in os.environ.items() if not name.startswith("LEADHAND_")}
    size = {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    return {**outer, **size, "LEADHAND_URL": api.url, "LEADHAND_TOKEN": TOKEN}


class Terminal:
    """A command at a pseudo-terminal."""

    def __init__(self, near: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.seen = ""
        self._near = near

    def wait_for(self, text: str, *, times: int = 1) -> None:
        def shown() -> bool:
            if self.seen.count(text) < times and select.select([self._near], [], [], 0.2)[0]:
                with suppress(OSError):  # the command has ended
                    self.seen += os.read(self._near, 65536).decode(errors="replace")
            return self.seen.count(text) >= times

        wait_until(shown, timeout=30)

    def type(self, text: str) -> None:
        os.write(self._near, text.encode())


@contextmanager
def at_terminal(
    api: Served, folder: Path, *arguments: str, program: tuple[str, ...] = PROGRAM
) -> Iterator[Terminal]:
    near, far = pty.openpty()
    process = subprocess.Popen(
        [*program, *arguments],
        stdin=far, stdout=far, stderr=far, cwd=folder, env=environment(api),
        start_new_session=True,
    )  # fmt: skip
    os.close(far)
    try:
        yield Terminal(near, process)
    finally:
        process.kill()
        process.wait()
        os.close(near)


def in_pipe(api: Served, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder,
        env=environment(api), timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.timeout(120)
@pytest.mark.parametrize("command", ["wait", "watch"])
def test_a_question_is_answered_at_the_terminal(api: Served, tmp_path: Path, command: str) -> None:
    ref = start(api, "Which title?", "Which \x1b[31mcolour?")
    with at_terminal(api, tmp_path, command, ref.id) as terminal:
        terminal.wait_for("answers later): ")
        assert "Which title?" in terminal.seen
        terminal.type("Moby Dick\n")
        terminal.wait_for("answered\r\n")
        terminal.wait_for("colour?")
        assert "\x1b[31mcolour" not in terminal.seen
        wait_until(lambda: given(api, ref) == {"q1": "Moby Dick"})
        terminal.wait_for("answers later): ", times=2)
        terminal.type("blue\n")
        assert terminal.process.wait(timeout=30) == 0
    assert given(api, ref) == {"q1": "Moby Dick", "q2": "blue"}


@pytest.mark.timeout(120)
def test_an_empty_line_leaves_the_question_open(api: Served, tmp_path: Path) -> None:
    ref = start(api, "Which title?")
    with at_terminal(api, tmp_path, "wait", ref.id) as terminal:
        terminal.wait_for("answers later): ")
        terminal.type("\n")
        terminal.wait_for(f"answer it later with: leadhand answer {ref.id} q1 TEXT")
        assert given(api, ref) == {}
        api.engine.answers.give(ref.id, "Roses")
        assert terminal.process.wait(timeout=30) == 0


@pytest.mark.timeout(120)
def test_a_prompt_closes_when_another_client_answers(api: Served, tmp_path: Path) -> None:
    ref = start(api, "Which title?", "Which colour?")
    with at_terminal(api, tmp_path, "watch", ref.id) as terminal:
        terminal.wait_for("answers later): ")
        api.engine.answers.give(ref.id, "Roses", address="q1")
        terminal.wait_for("the question is closed")
        terminal.wait_for("answers later): ", times=2)
        terminal.type("blue\n")
        assert terminal.process.wait(timeout=30) == 0
    assert given(api, ref) == {"q1": "Roses", "q2": "blue"}


@pytest.mark.timeout(120)
def test_ctrl_c_at_a_prompt_leaves_the_session_running(api: Served, tmp_path: Path) -> None:
    ref = start(api, "Which title?")
    with at_terminal(api, tmp_path, "watch", ref.id) as terminal:
        terminal.wait_for("answers later): ")
        os.kill(terminal.process.pid, 2)
        assert terminal.process.wait(timeout=30) == 2
    assert api.engine.queries.session(ref.id).status == "waiting"
    api.engine.answers.give(ref.id, "Roses")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("command", ["wait", "watch"])
def test_a_pipe_gets_the_command_that_answers(api: Served, tmp_path: Path, command: str) -> None:
    ref = start(api, "Which title?")
    lines = []
    with subprocess.Popen(
        [*PROGRAM, command, ref.id],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        cwd=tmp_path, env=environment(api),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if f"answer with: leadhand answer {ref.id} q1 TEXT" in line:
                api.engine.answers.give(ref.id, "Roses")
        assert process.wait(timeout=30) == 0
    assert any("Which title?" in line for line in lines)
    assert sum("answer with" in line for line in lines) == 1


#: What `leadhand spawn` and `leadhand flow run` do after they have submitted a session.
RUN = """
import sys
from leadhand.cli.render.result_text import flow_summary
from leadhand.cli.running import wait_and_show
from leadhand.client.client import Client
with Client() as client:
    as_json = sys.argv[2:] == ["--json"]
    session = client.session(sys.argv[1])
    sys.exit(wait_and_show(client, session, as_json=as_json, summary=flow_summary))
"""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_command_that_runs_a_session_asks_in_place(
    api: Served, tmp_path: Path, arguments: list[str]
) -> None:
    ref = start(api, "Which title?")
    program = (sys.executable, "-P", "-c", RUN)
    with at_terminal(api, tmp_path, ref.id, *arguments, program=program) as terminal:
        terminal.wait_for("answers later): ")
        terminal.type("Moby Dick\n")
        assert terminal.process.wait(timeout=30) == 0
    assert given(api, ref) == {"q1": "Moby Dick"}


def test_all_open_questions_are_listed(api: Served, tmp_path: Path) -> None:
    first, second = start(api, "Which title?"), start(api, "One\nor two?")
    text = in_pipe(api, tmp_path, "questions").stdout
    assert text.index("Which title?") < text.index("  One\n  or two?\n")
    assert f"  answer with: leadhand answer {second.id} q1 TEXT\n" in text
    listed = json.loads(in_pipe(api, tmp_path, "questions", "--json").stdout)["items"]
    found = {view["session"]: view for view in listed}
    assert found[first.id]["address"] == "q1"
    assert found[first.id]["until"] > found[first.id]["since"]
    with Client(api.url, TOKEN) as client:
        assert [view.question for view in client.questions(session=first.id).items] == [
            "Which title?"
        ]
    for ref in (first, second):
        api.engine.answers.give(ref.id, "2")
    text = in_pipe(api, tmp_path, "questions").stdout
    assert first.id not in text
    assert second.id not in text


RULES: dict[str, Any] = {
    "choices": ["ship", "wait"],
    "form": {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": 1},
            "title": {"type": "string", "default": "7"},
            "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}},
            "owner": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
        "required": ["count"],
    },
    "default": {"choice": "wait", "fields": {"count": 1}},
}


def value(api: Served, ref: SessionRef) -> Any:
    return json.loads(api.engine.store.outcomes(ref)["q1"])["value"]


def test_a_form_is_listed_and_answered_by_fields(api: Served, tmp_path: Path) -> None:
    ref = start(api, "Ship it?", rules=RULES)
    text = in_pipe(api, tmp_path, "questions").stdout
    assert "  choices: ship, wait\n  field count: a whole number from 1 (required)\n" in text
    assert "field title: a text (default: 7)\n" in text
    assert 'without an answer: wait, {"count": 1}\n' in text
    assert f"answer with: leadhand answer {ref.id} q1 --choice CHOICE --field count=VALUE" in text
    refused = in_pipe(api, tmp_path, "answer", ref.id, "--choice", "no", "--field", "count=none")
    assert refused.returncode != 0
    assert "it is none of the choices" in refused.stderr
    assert "fields.count" in refused.stderr
    fields = ["count=3", "tags=a", "tags=c", "owner.name=42"]
    given = [part for field in fields for part in ("--field", field)]
    done = in_pipe(api, tmp_path, "answer", ref.id, "q1", "--choice", "ship", *given)
    assert done.returncode == 0, done.stderr
    assert value(api, ref) == {
        "choice": "ship",
        "fields": {"count": 3, "title": "7", "tags": ["a", "c"], "owner": {"name": "42"}},
    }


@pytest.mark.timeout(120)
def test_a_form_is_filled_in_at_the_terminal(api: Served, tmp_path: Path) -> None:
    ref = start(api, "Ship it?", rules=RULES)
    with at_terminal(api, tmp_path, "wait", ref.id) as terminal:
        terminal.wait_for("choice (an empty line answers later): ")
        terminal.type("ship\n")
        terminal.wait_for("count, a whole number from 1 (required): ")
        terminal.type("0\n")
        terminal.wait_for("it should be greater than or equal to 1; give a whole number from 1")
        terminal.type("2\n")
        terminal.wait_for("title, a text (default: 7): ")
        terminal.type("\n")
        terminal.wait_for("tags, ")
        terminal.type("a, b\n")
        terminal.wait_for("owner.name, ")
        terminal.type("\n")
        terminal.wait_for("answered\r\n")
        assert terminal.process.wait(timeout=30) == 0
    assert value(api, ref) == {
        "choice": "ship",
        "fields": {"count": 2, "title": "7", "tags": ["a", "b"]},
    }


@pytest.mark.timeout(120)
def test_a_body_asks_a_person_and_prints_the_answer(api: Served, tmp_path: Path) -> None:
    child, token = child_of(api, api.submit())
    env = environment(api) | {"LEADHAND_TOKEN": token, "LEADHAND_SESSION": child.id}
    with subprocess.Popen(
        [*PROGRAM, "ask", "Ship it?", "--choice", "yes", "--choice", "no"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=env,
    ) as process:  # fmt: skip
        [asked] = wait_until(lambda: api.engine.store.children(child), timeout=60)
        ref = SessionRef(asked, child.root)
        ask(api, ref, "ask")
        api.engine.answers.give(asked, "no")
        assert process.stdout is not None
        assert process.stdout.read() == "no\n"
        assert process.wait(timeout=60) == 0
