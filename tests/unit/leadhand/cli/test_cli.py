"""The command line: help, bad input, waiting for sessions and listing them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from leadhand.cli.exit_codes import worst
from leadhand.cli.messages import answer_command
from leadhand.cli.render.result_text import flow_summary
from leadhand.cli.stacks import stack_command
from leadhand.local import connect
from leadhand.local.errors import StackNotStarted
from leadhand.models.views.result import ResultView
from tests.scripted_api import Script
from tests.unit.leadhand.cli.conftest import HISTORY, Leadhand

COMMANDS = (
    "spawn", "workflow", "flow", "flows", "graph", "plan", "worktree", "apply", "answer",
    "questions", "hint", "inbox", "notify", "hook", "guard", "ask", "lock", "kv", "stack", "exit",
    "report",
    "ls", "show", "tree", "draw", "explain",
    "watch", "wait", "poll", "logs", "transcript",
    "stop", "resume", "retry", "skip", "fork", "rerun",
    "abort", "rehome",
    "artifacts",
    "rename", "note", "archive",
    "export", "rm",
    "limit", "top", "queues", "workers",
    "stats",
    "agents", "tools",
    "mcp", "ui", "up", "down", "restart", "trust", "status", "worker", "api", "doctor",
)  # fmt: skip


# Help and usage


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(leadhand: Leadhand, command: str) -> None:
    code, out, _ = leadhand(command, "--help")
    assert code == 0
    assert f"leadhand {command}" in out


def test_leadhand_alone_prints_a_short_help(leadhand: Leadhand) -> None:
    code, out, err = leadhand()
    assert (code, err) == (0, "")
    assert "leadhand spawn TASK" in out
    assert len(out.splitlines()) < 20


def test_a_group_of_commands_alone_prints_its_help(leadhand: Leadhand) -> None:
    code, out, err = leadhand("plan")
    assert (code, err) == (0, "")
    assert out.startswith("Usage: leadhand plan")


def test_help_lists_all_commands_whole(leadhand: Leadhand) -> None:
    code, out, _ = leadhand("--help")
    assert code == 0
    listed = [
        line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line.strip()
    ]
    assert listed[:2] == ["spawn", "workflow"]
    assert {*COMMANDS} <= {*listed}
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
        ("spawn x --checker=", "a checker must not be empty"),
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


@pytest.mark.parametrize(("words", "needs_worker"), [
    ("ls", False), ("ls --json", False), ("show s", False), ("show s --diff", False),
    ("show s --output do", False), ("logs s", False), ("explain s", False), ("tree s", False),
    ("draw s", False), ("transcript s", False), ("export s", False), ("stats", False),
    ("wait s", True), ("agents", True), ("spawn t --checker true", True), ("resume s", True),
])  # fmt: skip
def test_command_that_only_reads_does_not_wait_for_the_worker(
    leadhand: Leadhand, monkeypatch: pytest.MonkeyPatch, words: str, needs_worker: bool
) -> None:
    def start(*, needs_worker: bool, **_: object) -> None:
        raise StackNotStarted("s", f"needs_worker={needs_worker}", "")

    monkeypatch.setattr(connect, "ensure", start)
    assert f"needs_worker={needs_worker}" in leadhand(*words.split())[2]


def test_an_answer_may_begin_like_an_option() -> None:
    for text in ("- a bullet", "--force it", "-5", "-"):
        given = answer_command.make_context("answer", ["1a2b3c4d", "ask", text])
        assert given.params["words"] == ("ask", text)


def test_texts_that_begin_with_a_dash_keep_their_order_among_arguments() -> None:
    context = stack_command.make_context("stack", ["start", "- a", "--json", "b", "- c"])
    _, command, words = stack_command.resolve_command(
        context, ["start", "- a", "--json", "b", "- c"]
    )
    assert command is not None
    assert words == ["--json", "--", "- a", "b", "- c"]


def test_flow_summary_names_the_transcript_command() -> None:
    told = {"session_id": "1a2b3c4d", "kind": "flow", "status": "completed", "verdict": "accept"}
    lines = list(flow_summary(ResultView.model_validate({**told, "iterations": 0})))
    assert lines == ["session 1a2b3c4d: completed", "transcript: leadhand transcript 1a2b3c4d"]
    lines = list(flow_summary(ResultView.model_validate({**told, "iterations": 2})))
    assert lines[2:] == ["all iterations: leadhand show 1a2b3c4d"]


def test_invalid_url_is_named(leadhand: Leadhand, monkeypatch) -> None:
    monkeypatch.setenv("LEADHAND_URL", "somewhere")
    code, _, err = leadhand("ls")
    assert (code, "LEADHAND_URL is 'somewhere'" in err) == (1, True)


def test_internal_error_is_one_sentence_and_a_traceback_on_request(
    script: Script, leadhand: Leadhand, monkeypatch
) -> None:
    script.add("1a2b3c4d", "completed", iterations="many")
    code, _, err = leadhand("wait", "1a2b3c4d")
    assert (code, err.count("\n")) == (1, 1)
    monkeypatch.setenv("LEADHAND_DEBUG", "1")
    assert "Traceback" in leadhand("wait", "1a2b3c4d")[2]


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
    assert "continue with: leadhand resume 1a2b3c4d" in told
    assert leadhand("resume", "1a2b3c4d", "--max-iterations", "9")[0] == 0
    assert leadhand("resume", "1a2b3c4d", "--after", "outer[2]/ask")[0] == 0
    assert leadhand("abort", "1a2b3c4d", "--reason", "enough")[1].endswith("is aborted\n")
    assert [(verb, body) for _, verb, body in script.controls] == [
        ("stop", {}), ("resume", {"max_iterations": 9}), ("resume", {"after": "outer[2]/ask"}),
        ("abort", {"reason": "enough"}),
    ]  # fmt: skip
