"""The command line against a scripted API: what is printed, and the exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leadhand.cli import cli
from leadhand.cli.commands.answer import answer_command
from leadhand.cli.entrypoint import run
from leadhand.cli.exit_codes import worst
from leadhand.cli.render.result_text import flow_summary
from leadhand.models.views import ResultView
from tests.scripted_api import TOKEN, Script, scripted_api
from tests.waiting import wait_until

COMMANDS = (
    "spawn", "workflow", "flow", "flows", "plan", "answer", "questions", "hint", "inbox", "notify",
    "hook", "exit", "report", "ls", "show", "tree", "explain", "watch", "wait", "poll", "logs",
    "transcript", "stop", "resume",
    "abort", "rehome", "export", "rm", "limit", "top", "queues", "workers", "agents", "tools",
    "mcp", "import", "up", "worker", "api", "doctor",
)  # fmt: skip
REFUSED = {"ok": False, "name": "ruff", "verdict": "retry", "feedback": "E501 Line too long"}
HISTORY = {
    "loop": "loop~1", "run": 1, "iteration": 1, "verdict": "retry", "work": "tried",
    "checks": [REFUSED],
}  # fmt: skip

Leadhand = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, that holds what others have called `app` and so on."""
    for name in ("app", "api", "tasks", "workers", "leadhand"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one was imported')\n")
    for name in [name for name in os.environ if name.startswith("LEADHAND_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    with scripted_api() as (url, script):
        monkeypatch.setenv("LEADHAND_URL", url)
        monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
        yield script


@pytest.fixture
def leadhand(capsys: pytest.CaptureFixture[str]) -> Leadhand:
    """Run a command in this process: its exit code, standard output and standard error."""

    def leadhand(*arguments: str) -> tuple[int, str, str]:
        code = run(cli, arguments)
        return (code, *capsys.readouterr())

    return leadhand


# Help and usage


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(leadhand: Leadhand, command: str) -> None:
    code, out, _ = leadhand(command, "--help")
    assert code == 0
    assert f"leadhand {command}" in out


def test_help_lists_all_commands_whole(leadhand: Leadhand) -> None:
    code, out, _ = leadhand("--help")
    assert code == 0
    listed = [
        line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line.strip()
    ]
    assert listed[: len(COMMANDS)] == list(COMMANDS)
    assert not [line for line in out.splitlines()[1:] if line.endswith("...")]


def test_help_needs_nothing_that_is_slow_to_import() -> None:
    program = (
        "import sys; from leadhand.cli import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: print({'httpx2', 'rich', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    assert done.stdout.endswith("set()\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("frobnicate", "No such command 'frobnicate'"),
        ("spawn --checker true", "Missing argument 'TASK'"),
        ("spawn x --checker true --task-file missing", "File 'missing' does not exist"),
        ("spawn x --checker true --task-file app.py", "give TASK or --task-file, not both"),
        ("spawn x", "Missing option '--checker'"),
        ("spawn x --checker=", "a checker may not be empty"),
        ("spawn x --checker true --rule most", "'most' is not a rule; use all, any or a number"),
        ("spawn x --checker true --rule 2", "rule asks for 2 checkers to accept"),
        (
            "spawn x --checker true --max-iterations -1",
            "--max-iterations is -1: use a whole number",
        ),
        ("spawn x --checker true --max-iterations few", "'few' is not a valid integer"),
        ("spawn x --checker true --doer a --agent b", "give doer or agent, not both"),
        ("spawn x --checker true --timeout 0", "--doer-timeout is 0"),
        ("spawn x --checker true --checker-timeout 0", "--checker-timeout is 0"),
        ("spawn x --checker true --doer-attempts 0", "--doer-attempts is 0"),
        ("spawn x --checker a=true --checker a=false", "2 are named 'a'; names must differ"),
        ("spawn x --checker true --doer d --conversation continue", "but the doer is a command"),
        ("spawn x --checker callable:nothing", "--checker is 'nothing'"),
        (
            "spawn x --checker true --cwd /etc/passwd",
            "--cwd is '/etc/passwd': it is a file; name a folder",
        ),
        ("spawn x --checker true --cwd /no/such", "--cwd is '/no/such': there is no such folder"),
        ("workflow", "Missing argument 'FILE'"),
        ("workflow missing.py", "File 'missing.py' does not exist"),
        ("workflow .", "is a directory"),
        ("workflow app.py --max-cost 0", "--max-cost is 0"),
        ("workflow app.py --cwd nowhere", "--cwd is 'nowhere': there is no such folder"),
        ("workflow app.py --label=", "--label is ''"),
        ("wait", "Missing argument 'ID...'"),
        ("resume 1 --max-iterations x", "'x' is not a valid integer"),
        ("exit why", "LEADHAND_SESSION not set"),
        ("worker", "LEADHAND_REDIS_URL is not set"),
        ("api", "LEADHAND_REDIS_URL is not set"),
        ("ls --limit 0", "0 is not in the range"),
        ("flow run ../x", "no flow is called '../x': a name is 1 to 64 letters"),
        ("flow run x --input a=1 --input a=2", "--input is given twice for 'a'; leave one out"),
        ("flow run x --agent a --agent b", "--agent is given twice for all; leave one out"),
        ("answer 1 a b - c", "at most a STEP before it"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_1(
    leadhand: Leadhand, line: str, said: str
) -> None:
    code, out, err = leadhand(*line.split(" "))
    assert code == 1
    assert said in err
    assert out == ""
    assert err.startswith("leadhand: ")
    assert err.count("\n") == 1


def test_an_answer_may_begin_like_an_option() -> None:
    for text in ("- a bullet", "--force it", "-5", "-"):
        given = answer_command.make_context("answer", ["1a2b3c4d", "ask", text])
        assert given.params["words"] == ("ask", text)


def test_a_flow_leads_to_what_was_said_in_it() -> None:
    told = {"session_id": "1a2b3c4d", "kind": "flow", "status": "completed", "verdict": "accept"}
    lines = list(flow_summary(ResultView.model_validate({**told, "iterations": 0})))
    assert lines == ["session 1a2b3c4d: completed", "transcript: leadhand transcript 1a2b3c4d"]
    lines = list(flow_summary(ResultView.model_validate({**told, "iterations": 2})))
    assert lines[2:] == ["all iterations: leadhand show 1a2b3c4d"]


def test_a_url_that_is_none_is_named(leadhand: Leadhand, monkeypatch) -> None:
    monkeypatch.setenv("LEADHAND_URL", "somewhere")
    code, _, err = leadhand("ls")
    assert (code, "LEADHAND_URL is 'somewhere'" in err) == (1, True)


def test_a_fault_of_ours_is_a_sentence_and_a_traceback_where_wanted(
    script: Script, leadhand: Leadhand, monkeypatch
) -> None:
    script.add("1a2b3c4d", "completed", iterations="many")
    code, _, err = leadhand("wait", "1a2b3c4d")
    assert (code, err.count("\n")) == (1, 1)
    monkeypatch.setenv("LEADHAND_DEBUG", "1")
    assert "Traceback" in leadhand("wait", "1a2b3c4d")[2]


# Spawn


def test_spawn_prints_exactly_one_object(script: Script, leadhand: Leadhand) -> None:
    script.result = {"iterations": 2, "history": [HISTORY]}
    code, out, _ = leadhand("spawn", "make it pass", "--checker", "pytest -q", "--json")
    result = json.loads(out)
    assert code == 0
    assert {
        name: result[name] for name in ("verdict", "iterations", "result_text", "exit_reason")
    } == {"verdict": "accept", "iterations": 2, "result_text": "the work", "exit_reason": ""}
    assert result["history"][0]["checks"] == [REFUSED]
    assert result["session_id"] == "00000000"


def test_spawn_sends_what_it_was_given(script: Script, leadhand: Leadhand, elsewhere: Path) -> None:
    given = "--doer doer --max-iterations 5 --rule 1 --model m --checker-model c --label l"
    leadhand("spawn", "t", "--checker", "a", "--checker", "agent: b", *given.split(), "--json")
    [document] = script.submitted
    assert document["kind"] == "loop"
    assert [c["command"] or c["prompt"] for c in document["checkers"]] == ["a", "b"]
    assert (document["doer"]["command"], document["rule"]) == ("doer", 1)
    assert (document["max_iterations"], document["label"]) == (5, "l")
    assert (document["model"], document["checker_model"]) == ("m", "c")
    assert document["cwd"] == str(elsewhere)


def test_spawn_reads_checkers_as_they_are_written(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "My Rubric.md").write_text("## Criteria\nNo hacks.")
    written = (
        *("lint=ruff check .", "agent(critic): Good?", "look=agent(critic): Fine?", "RUBRIC.md"),
        *("My Rubric.md", "CI=1 make test", "http_proxy=x make", "cat notes.md"),
    )
    checkers = [part for one in written for part in ("--checker", one)]
    code, _, err = leadhand("spawn", "t", *checkers, "--json")
    assert code == 0, err
    [document] = script.submitted
    fields = ("name", "command", "prompt", "agent", "rubric")
    assert [{f: c[f] for f in fields if c[f] is not None} for c in document["checkers"]] == [
        {"name": "lint", "command": "ruff check ."},
        {"prompt": "Good?", "agent": "critic"},
        {"name": "look", "prompt": "Fine?", "agent": "critic"},
        {"rubric": "RUBRIC.md"},
        {"rubric": "My Rubric.md"},
        {"command": "CI=1 make test"},
        {"command": "http_proxy=x make"},
        {"command": "cat notes.md"},
    ]


def test_spawn_finds_a_rubric_beside_itself_where_the_folder_is_another(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "sub").mkdir()
    (elsewhere / "RUBRIC.md").write_text("## Criteria\nNo hacks.")
    leadhand("spawn", "t", "--checker", "good=RUBRIC.md", "--cwd", "sub", "--json")
    [document] = script.submitted
    [checker] = document["checkers"]
    assert (checker["name"], checker["rubric"]) == ("good", str(elsewhere / "RUBRIC.md"))


def test_spawn_says_how_doer_and_checkers_are_run(script: Script, leadhand: Leadhand) -> None:
    given = "--doer-timeout 60 --doer-attempts 3 --checker-timeout 5 --conversation continue"
    leadhand("spawn", "t", "--checker", "a", "--agent", "x", *given.split(), "--json")
    [document] = script.submitted
    assert (document["timeout_s"], document["doer_attempts"]) == (60, 3)
    assert (document["checker_timeout_s"], document["checkers"][0]["timeout_s"]) == (5, 5)
    assert document["conversation"] == "continue"


def test_a_workflow_says_how_its_phases_are_run(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(THREE_PHASES)
    given = "--doer-timeout 60 --doer-attempts 3 --checker-timeout 5 --conversation continue"
    code, _, err = leadhand("workflow", "tdd.py", "--agent", "x", *given.split())
    assert code == 0, err
    [document] = script.submitted
    for phase in document["phases"]:
        assert (phase["timeout_s"], phase["doer_attempts"]) == (60, 3)
        assert [checker["timeout_s"] for checker in phase["checkers"]] == [5]
        assert phase["conversation"] == "continue"


def test_a_task_comes_from_standard_input_or_a_file(
    script: Script, leadhand: Leadhand, elsewhere: Path, monkeypatch
) -> None:
    (elsewhere / "task.md").write_text("# From a file\n")
    (elsewhere / "empty.md").write_text(" \n")
    (elsewhere / "binary.md").write_bytes(b"\xff\xfe\x00")
    with (elsewhere / "task.md").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert leadhand("spawn", "-", "--checker", "true")[0] == 0
    assert leadhand("spawn", "--task-file", "task.md", "--checker", "true")[0] == 0
    assert [document["task"] for document in script.submitted] == ["# From a file"] * 2
    code, _, err = leadhand("spawn", "--task-file", "empty.md", "--checker", "true")
    assert (code, err) == (1, "leadhand: empty.md is empty; write the task\n")
    code, _, err = leadhand("spawn", "--task-file", "binary.md", "--checker", "true")
    assert (code, "binary.md is not UTF-8 text" in err) == (1, True)


def test_spawn_tells_how_it_goes_in_plain_lines(script: Script, leadhand: Leadhand) -> None:
    script.events = [
        ("loop.opened", "loop~1", {"iteration": 1, "max": 3}),
        ("step.settled", "loop~1[1]/check.ruff", {"verdict": "retry", "text": "\x1b[31mE501"}),
    ]
    code, out, _ = leadhand("spawn", "t", "--checker", "ruff check")
    assert code == 0
    assert "loop 1/3 ruff: retry: [31mE501" in out
    assert "session 00000000: accept after 1 iteration" in out
    assert out.replace("\n", "").isprintable()


def test_a_detached_spawn_prints_the_id_and_leaves(script: Script, leadhand: Leadhand) -> None:
    script.ends = False
    assert leadhand("spawn", "t", "--checker", "a", "--detach")[:2] == (0, "00000000\n")
    out = leadhand("spawn", "t", "--checker", "a", "--detach", "--json")[1]
    assert json.loads(out)["session_id"] == "00000001"


@pytest.mark.parametrize(
    ("status", "verdict", "code"),
    [
        ("completed", "accept", 0),
        ("failed", "max_iterations", 3),
        ("failed", "terminate", 3),
        ("exited", "exit", 2),
        ("stopped", None, 2),
        ("aborted", None, 2),
    ],
)
def test_the_exit_code_says_how_it_ended(
    script: Script, leadhand: Leadhand, status: str, verdict: str | None, code: int
) -> None:
    script.result = {"status": status, "verdict": verdict}
    assert leadhand("spawn", "t", "--checker", "a")[0] == code
    assert leadhand("watch", "00000000")[0] == code
    assert leadhand("wait", "00000000")[0] == code


def test_a_failed_session_outweighs_a_halted_one() -> None:
    assert worst(["completed"]) == 0
    assert worst(["completed", "exited", "aborted"]) == 2
    assert worst(["exited", "failed", "completed"]) == 3


# Sessions


def test_exit_ends_the_session_around_it(script: Script, leadhand: Leadhand, monkeypatch) -> None:
    script.add("1a2b3c4d", "active")
    monkeypatch.setenv("LEADHAND_SESSION", "1a2b3c4d")
    assert leadhand("exit", "it is event-driven")[0] == 0
    assert script.controls == [("1a2b3c4d", "exit", {"reason": "it is event-driven"})]
    assert leadhand("exit", " ")[0] == 1


def test_exit_of_an_unknown_session_says_so(
    script: Script, leadhand: Leadhand, monkeypatch
) -> None:
    monkeypatch.setenv("LEADHAND_SESSION", "deadbeef")
    code, _, err = leadhand("exit", "why")
    assert (code, "not found" in err) == (1, True)


def test_wait_heads_each_of_several_results(script: Script, leadhand: Leadhand) -> None:
    script.add("1a2b3c4d", "completed", name="first", result_text="the work")
    script.add("2a2b3c4d", "exited", name="second", verdict="exit", exit_reason="no way")
    code, out, _ = leadhand("wait", "1a2b3c4d", "2a2b3c4d")
    assert code == 2
    assert out.splitlines() == [
        "[first (1a2b3c4d)] completed: accept after 1 iteration", "the work",
        "[second (2a2b3c4d)] exited: exit after 1 iteration: no way", "the work",
    ]  # fmt: skip
    assert leadhand("wait", "--summary", "2a2b3c4d", "1a2b3c4d")[1].splitlines() == [
        "[second (2a2b3c4d)] exited: exit after 1 iteration: no way",
        "[first (1a2b3c4d)] completed: accept after 1 iteration",
    ]
    assert leadhand("wait", "1a2b3c4d")[1].splitlines() == [
        "[first (1a2b3c4d)] completed: accept after 1 iteration", "the work",
    ]  # fmt: skip


def test_wait_knows_all_of_its_sessions_before_it_waits(script: Script, leadhand: Leadhand) -> None:
    script.add("1a2b3c4d", "active")
    code, out, err = leadhand("wait", "1a2b3c4d", "deadbeef")
    assert (code, out) == (1, "")
    assert "'deadbeef' is not found" in err


def test_wait_gives_up_in_time(script: Script, leadhand: Leadhand) -> None:
    script.add("1a2b3c4d", "active")
    code, _, err = leadhand("wait", "1a2b3c4d", "--timeout", "0.1")
    assert (code, "still active" in err) == (1, True)


def test_sessions_are_listed_shown_and_forgotten(script: Script, leadhand: Leadhand) -> None:
    assert "no sessions" in leadhand("ls")[1]
    script.add("1a2b3c4d", "completed", name="tdd", history=[HISTORY])
    head, line = leadhand("ls")[1].splitlines()
    assert head.split()[:4] == ["ID", "KIND", "NAME", "STATUS"]
    assert line.split()[:4] == ["1a2b3c4d", "loop", "tdd", "completed"]
    assert json.loads(leadhand("ls", "--json")[1])["items"][0]["id"] == "1a2b3c4d"
    script.add("2b2b3c4d", "completed", warnings=["b was passed over"])
    script.add("3c2b3c4d", "completed", warnings=["b was passed over", "c too"])
    _, *lines = leadhand("ls")[1].splitlines()
    told = {line.split()[0]: line for line in lines}
    assert "completed (1 warning) " in told["2b2b3c4d"]
    assert "completed (2 warnings) " in told["3c2b3c4d"]
    shown = leadhand("show", "1a2b3c4d")[1]
    assert "loop, iteration 1: retry" in shown
    assert "  ruff: retry\n    E501 Line too long" in shown
    told = json.loads(leadhand("show", "1a2b3c4d", "--json")[1])
    assert (told["session"]["id"], len(told["ledger"])) == ("1a2b3c4d", 1)
    assert leadhand("rm", "1a2b3c4d")[:2] == (0, "session 1a2b3c4d is deleted\n")
    assert leadhand("show", "1a2b3c4d")[0] == 1


def test_stop_resume_and_abort_say_what_comes_of_it(script: Script, leadhand: Leadhand) -> None:
    script.add("1a2b3c4d", "active")
    told = leadhand("stop", "1a2b3c4d")[1]
    assert "1a2b3c4d loop~1[1]/do on one/7: handed back\n" in told
    assert "go on with: leadhand resume 1a2b3c4d" in told
    assert leadhand("resume", "1a2b3c4d", "--max-iterations", "9")[0] == 0
    assert leadhand("resume", "1a2b3c4d", "--after", "outer[2]/ask")[0] == 0
    assert leadhand("abort", "1a2b3c4d", "--reason", "enough")[1].endswith("is aborted\n")
    assert [(verb, body) for _, verb, body in script.controls] == [
        ("stop", {}), ("resume", {"max_iterations": 9}), ("resume", {"after": "outer[2]/ask"}),
        ("abort", {"reason": "enough"}),
    ]  # fmt: skip


# Workflow files

THREE_PHASES = """
from leadhand import Workflow

wf = Workflow("tdd")
wf.phase("red", task="t", checker="true")
wf.phase("green", task="t", checker="true", agent="claude")
results = wf.run()
for name, r in results.items():
    if r.verdict == "exit":
        print(f"Workflow stopped at {name}: {r.exit_reason}")
"""


def phase(name: str, verdict: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "passed": False, "verdict": verdict, "iterations": 1, **more}


def test_a_workflow_file_runs_and_its_results_are_summed_up(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(THREE_PHASES)
    exited = phase("red", "exit", exit_reason="no way")
    script.result = {"status": "exited", "verdict": "exit", "exit_reason": "no way",
                     "phases": [exited]}  # fmt: skip
    code, out, _ = leadhand("workflow", "tdd.py")
    assert code == 2
    assert "session 00000000: exit after 1 iteration: no way" in out
    assert "red    exit     1           1     no way" in out
    assert out.endswith("Workflow stopped at red: no way\n")


def test_a_workflow_file_may_guard_its_run_as_programs_do(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "steps.py").write_text("TASK = 'from beside'\n")
    (elsewhere / "flow").mkdir()
    (elsewhere / "flow" / "beside.py").write_text("TASK = 'from beside'\n")
    (elsewhere / "flow" / "tdd.py").write_text(
        "from leadhand import Workflow\nfrom beside import TASK\nwf = Workflow('w')\n"
        "wf.phase('p', task=TASK, checker='true')\n"
        "if __name__ == '__main__':\n    wf.run()\n"
    )
    assert leadhand("workflow", "flow/tdd.py")[0] == 0
    assert script.submitted[0]["phases"][0]["task"] == "from beside"


def test_the_command_line_may_name_another_doer(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(THREE_PHASES)
    leadhand("workflow", "tdd.py", "--doer", "mine")
    [document] = script.submitted
    assert document["doer"]["command"] == "mine"
    assert [phase["doer"] for phase in document["phases"]] == [None, None]


def test_the_command_line_may_name_folder_label_and_budget(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    text = THREE_PHASES.replace('"tdd")', '"tdd", budget={"steps": 9, "tokens": 5})')
    (elsewhere / "tdd.py").write_text(text)
    (elsewhere / "there").mkdir()
    options = "--cwd there --label mine --max-cost 1.5 --max-steps 3 --max-total-iterations 4"
    code, _, err = leadhand("workflow", "tdd.py", *options.split())
    assert code == 0, err
    [document] = script.submitted
    assert (document["cwd"], document["label"]) == (str(elsewhere / "there"), "mine")
    limits = {name: limit for name, limit in document["budget"].items() if limit is not None}
    assert limits == {"cost_usd": 1.5, "steps": 3, "iterations": 4, "tokens": 5}


def test_a_detached_workflow_prints_the_id_and_leaves_its_file(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(f"print('chatter')\n{THREE_PHASES}\nprint('too far')\n")
    script.ends = False
    code, out, err = leadhand("workflow", "tdd.py", "--detach")
    assert (code, out) == (0, "00000000\n")
    assert "chatter" in err
    assert "too far" not in err
    code, out, _ = leadhand("workflow", "tdd.py", "--detach", "--json")
    assert (code, json.loads(out)["id"]) == (0, "00000001")


def test_a_workflow_with_json_keeps_standard_output_clean(
    script: Script, leadhand: Leadhand, elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(THREE_PHASES + "print('chatter')\n")
    code, out, err = leadhand("workflow", "tdd.py", "--json")
    assert (code, json.loads(out)["kind"]) == (0, "workflow")
    assert "chatter" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wf = (\n", "tdd.py:1: SyntaxError: '(' was never closed"),
        ("x = 1\n\ny = nothing\n", "tdd.py:3: NameError: name 'nothing' is not defined"),
        ("import leadhand.nothing\n", "tdd.py:1: ModuleNotFoundError"),
        (
            "from leadhand import Workflow\nwf = Workflow('w')\n"
            "wf.phase('p', task='t', checker='true', on_fail='maybe')\n",
            "tdd.py:3: phase 'p': on_fail is 'maybe'; use 'stop', 'continue' or 'retry:N'",
        ),
        ("x = 1\n", "tdd.py ran no workflow; call run() on one in it"),
        ("raise SystemExit('not today')\n", "not today"),
    ],
)
def test_a_broken_workflow_file_is_named_with_its_line(
    script: Script, leadhand: Leadhand, elsewhere: Path, text: str, said: str
) -> None:
    (elsewhere / "tdd.py").write_text(text)
    code, out, err = leadhand("workflow", "tdd.py")
    assert (code, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1
    assert script.submitted == []


# Ctrl-C


@pytest.fixture
def started(script: Script) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command in a process of its own, with an interpreter that obeys Ctrl-C."""
    processes = []

    def started(*arguments: str) -> subprocess.Popen[str]:
        program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        program += "from leadhand.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    return process.returncode, first + out, err


def test_ctrl_c_stops_the_session_and_says_how_to_resume_it(
    script: Script, started: Callable[..., subprocess.Popen[str]]
) -> None:
    script.ends = False
    code, _, err = interrupted(started("spawn", "t", "--checker", "a"))
    assert code == 2
    assert [verb for _, verb, _ in script.controls] == ["stop"]
    assert "session 00000000 is stopped; go on with: leadhand resume 00000000" in err
    assert "Traceback" not in err


def test_ctrl_c_in_a_workflow_file_stops_its_session(
    script: Script, started: Callable[..., subprocess.Popen[str]], elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(THREE_PHASES)
    script.ends = False
    code, _, err = interrupted(started("workflow", "tdd.py"))
    assert code == 2
    assert [verb for _, verb, _ in script.controls] == ["stop"]
    assert "Traceback" not in err


def test_a_second_ctrl_c_aborts(
    script: Script, started: Callable[..., subprocess.Popen[str]]
) -> None:
    script.ends = False
    script.stops = False
    process = started("spawn", "t", "--checker", "a")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    wait_until(lambda: script.controls)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert [verb for _, verb, _ in script.controls] == ["stop", "abort"]
    assert "session 00000000 is aborted" in err


def test_ctrl_c_in_watch_leaves_the_session_running(
    script: Script, started: Callable[..., subprocess.Popen[str]]
) -> None:
    script.add("1a2b3c4d", "active")
    code, _, err = interrupted(started("watch", "1a2b3c4d"))
    assert (code, script.controls) == (2, [])
    assert "continues; stop it with: leadhand stop 1a2b3c4d" in err


def test_a_reader_that_has_seen_enough_is_no_fault(
    script: Script, started: Callable[..., subprocess.Popen[str]]
) -> None:
    for n in range(3000):
        script.add(f"{n:08x}", "completed", name="a name of some length")
    process = started("ls")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=20)[1] == ""
