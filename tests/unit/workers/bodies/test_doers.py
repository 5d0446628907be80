"""Doers: commands, agents and functions, and what each outcome says."""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
from pathlib import Path

import pytest

from app.core.environment import SessionEnvironment
from app.core.messages import Message
from app.core.program import Action
from leadhand.functions.runner import as_json
from leadhand.models.verdicts import ReasonCode
from leadhand.stack import find_scope
from tests.unit.workers.bodies.running import code_of, do, scripted
from workers.registry.agent_entry import Agent


def test_a_command_works_in_its_folder_on_the_prompt(body, tmp_path) -> None:
    outcome = body(Action.AGENT, do({"command": "cat; pwd"}))
    assert (outcome.word, outcome.exit_code) == ("succeeded", 0)
    assert outcome.prompt == "Fix it.\n"
    assert outcome.text == f"Fix it.\n{tmp_path / 'work'}"


def test_prompt_of_a_failed_command_is_recorded(body) -> None:
    outcome = body(Action.AGENT, do({"command": "cat; exit 3"}))
    assert (outcome.word, outcome.prompt) == ("failed", "Fix it.\n")


def test_body_gets_its_step_and_no_credentials_of_the_worker(body, monkeypatch, tmp_path) -> None:
    for name in ("REDIS_URL", "BROKER_URL", "SECRET", "API_TOKEN"):
        monkeypatch.setenv(f"LEADHAND_{name}", "hush")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    said = body(Action.AGENT, do({"command": "env | tee told.txt"})).text
    assert "LEADHAND_TOKEN=[redacted]" in said, "what only it may know is not kept"
    told = (tmp_path / "work/told.txt").read_text()
    assert "hush" not in told
    for line in (
        "LEADHAND_URL=http://127.0.0.1:1",
        "LEADHAND_SESSION=ab12cd34",
        "LEADHAND_STEP=green~1[2]/do",
        "LEADHAND_ITERATION=2",
        "LEADHAND_KEY=ab12cd34:green~1[2]/do",
        "LEADHAND_TOKEN=lhc1.x.y",
        f"PATH={os.environ['PATH']}",
    ):
        assert line in told.splitlines()


@pytest.mark.parametrize("place", [None, "build-1"])
def test_body_names_the_stacks_of_its_folder_as_the_worker_does(
    body, monkeypatch, tmp_path, place: str | None
) -> None:
    monkeypatch.delenv("LEADHAND_PLACE", raising=False)
    if place is not None:
        monkeypatch.setenv("LEADHAND_PLACE", place)
    outside = find_scope(tmp_path)
    ask = "from pathlib import Path; from leadhand.stack import find_scope; import sys"
    command = [sys.executable, "-c", f"{ask}; print(find_scope(Path(sys.argv[1])).stack)"]
    said = body(Action.AGENT, do({"command": shlex.join([*command, str(tmp_path)])})).text
    assert said.strip() == outside.stack


def test_only_an_agent_that_names_it_gets_the_token_of_the_session(body) -> None:
    code = "import os; print(os.environ.get('LEADHAND_SESSION_TOKEN', 'none'))"
    agents = {
        "plain": scripted(code),
        "lasting": scripted(code, env=("LEADHAND_SESSION_TOKEN",)),
    }
    given = {"agents": agents, "mint_for_session": lambda: "lhc1.of-the-session.y"}
    assert body(Action.AGENT, do({"agent": "plain"}), **given).text == "none"
    shown = body(Action.AGENT, do({"agent": "lasting"}), **given).text
    assert shown == "[redacted]", "it got it, and it is not kept"


def test_a_doer_reads_the_messages_of_the_inbox_first(body) -> None:
    fields = {"id": 1, "at_ms": 0, "kind": "hint", "from": "ann", "text": "look at the log"}
    messages = (Message.model_validate(fields),)
    command = body(Action.AGENT, do({"command": "cat"}), messages=messages).text
    agent = body(Action.AGENT, do({"agent": "parrot"}), messages=messages)
    assert command.startswith("# Messages\n\nMessages since your last turn:")
    assert command.endswith("look at the log\n\nFix it.")
    assert agent.prompt == f"{command}\n"


def test_a_failed_command_fails_the_step_unless_that_has_attempts_left(body) -> None:
    outcome = body(Action.AGENT, do({"command": "echo half; echo broken >&2; exit 7"}))
    assert (outcome.word, outcome.exit_code, outcome.retryable) == ("failed", 7, True)
    assert code_of(outcome) is ReasonCode.FAILED_STEP
    assert outcome.reason.text == "doer command exited with code 7: broken"
    assert outcome.text == "half"


def test_a_slow_doer_fails_with_timeout(body) -> None:
    outcome = body(Action.AGENT, do({"command": "sleep 60"}), timeout_s=0.3)
    assert code_of(outcome) is ReasonCode.TIMEOUT
    assert outcome.reason.text == "doer command timed out after 0.3 seconds"


def test_a_cancelled_doer_says_so(body) -> None:
    cancel = threading.Event()
    cancel.set()
    outcome = body(Action.AGENT, do({"command": "sleep 60"}), cancel=cancel)
    assert (outcome.word, code_of(outcome)) == ("failed", ReasonCode.CANCELLED)


def test_long_output_is_cut_and_its_file_named(body) -> None:
    outcome = body(Action.AGENT, do({"command": "yes | head -c 500000"}))
    assert len(outcome.text) <= 64_000
    assert Path(outcome.spill).stat().st_size == 500_000


def test_a_missing_folder_is_named(body, tmp_path) -> None:
    outcome = body(Action.AGENT, do({"command": "true"}), cwd=tmp_path / "gone")
    assert f"cannot work in {str(tmp_path / 'gone')!r}" in outcome.reason.text


def test_a_step_without_a_folder_works_in_the_attempt_s_own(body, tmp_path) -> None:
    outcome = body(Action.AGENT, do({"command": "pwd"}), cwd=None)
    assert outcome.text == str(tmp_path / "spill")


def test_agent_reads_the_prompt_on_standard_input(body) -> None:
    outcome = body(Action.AGENT, do({"agent": "parrot"}, model="m9"))
    assert outcome.text == "heard 'Fix it.\\n' ['-c', '--model', 'm9']"


def test_agent_gets_the_variables_that_its_entry_names(body, monkeypatch) -> None:
    monkeypatch.setenv("MY_HOME", "for the agent")
    agents = {"x": scripted("import os; print(os.environ['MY_HOME'])", env=("MY_HOME",))}
    assert body(Action.AGENT, do({"agent": "x"}), agents=agents).text == "for the agent"


def test_default_agent_is_used_if_no_agent_is_named(body) -> None:
    assert body(Action.AGENT, do(None), default_agent="parrot").word == "succeeded"
    outcome = body(Action.AGENT, do(None))
    assert "set LEADHAND_DEFAULT_AGENT" in outcome.reason.text


def test_a_json_answer_is_read(body) -> None:
    reply = json.dumps({"result": "all good"})
    agents = {"x": scripted(f"print({reply!r})", output="json", answer="result")}
    assert body(Action.AGENT, do({"agent": "x"}), agents=agents).text == "all good"


@pytest.mark.parametrize(
    ("agent", "code", "why"),
    [
        (Agent(command=("no-such-agent",)), ReasonCode.FAILED_STEP, "set its command in agents"),
        (Agent(command=(__file__,)), ReasonCode.FAILED_STEP, "Permission denied; make it exec"),
        (
            scripted("print('{}')", output="json", answer="x"),
            ReasonCode.INVALID_ANSWER,
            "no field 'x'",
        ),
        (scripted("raise SystemExit('no key')"), ReasonCode.FAILED_STEP, "with code 1: no key"),
        (scripted("import time; time.sleep(60)", timeout_s=0.3), ReasonCode.TIMEOUT, "0.3 sec"),
    ],
)
def test_an_agent_that_does_not_answer_fails_with_its_reason(body, agent, code, why) -> None:
    outcome = body(Action.AGENT, do({"agent": "x"}), agents={"x": agent})
    assert (outcome.word, code_of(outcome)) == ("failed", code)
    assert why in outcome.reason.text


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("./plain", "'./plain': it is not executable; run `chmod +x plain`"),
        ("./sub", "'./sub': it is a folder; name a program in it"),
        ("./gone x", "'./gone': it is not found"),
        ("no-such-program", "not found"),
    ],
)
def test_a_doer_command_that_cannot_start_names_its_program(body, tmp_path, line, why) -> None:
    (tmp_path / "work" / "plain").touch()
    (tmp_path / "work" / "sub").mkdir()
    outcome = body(Action.AGENT, do({"command": line}))
    assert outcome.reason.text.startswith("doer command could not start: ")
    assert why in outcome.reason.text


def test_a_prompt_that_is_too_long_for_an_argument_says_what_helps(body) -> None:
    agents = {"x": Agent(command=("echo", "{prompt}"))}
    outcome = body(Action.AGENT, do({"agent": "x"}, task="x" * 150_000), agents=agents)
    assert outcome.reason.text == (
        "agent 'x' could not start: cannot run 'echo': its arguments are too long; use standard"
        " input: leave {prompt} out of its command to get the prompt there"
    )


def test_unknown_agent_and_unsupported_model_are_reported(body) -> None:
    assert "'gpt' is not known here" in body(Action.AGENT, do({"agent": "gpt"})).reason.text
    agents = {"x": scripted("pass")}
    outcome = body(Action.AGENT, do({"agent": "x"}, model="m"), agents=agents)
    assert "cannot be given model 'm'" in outcome.reason.text


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder in which the names of our own packages are somebody else's."""
    work = tmp_path / "work"
    for name in ("app", "api", "tasks", "workers", "celery"):
        (work / f"{name}.py").write_text(f"WHO = 'the user {name}'\n")
    (work / "redis.py").write_text("raise RuntimeError('never import me')\n")
    return work


def test_module_app_of_a_user_is_not_shadowed(body, tmp_path, hostile) -> None:
    (hostile / "doing.py").write_text(
        "import app, api, tasks, workers, celery\n"
        "def work(context):\n"
        "    return ' '.join(m.WHO for m in (app, api, tasks, workers, celery))\n"
    )
    outcome = body(Action.AGENT, do({"callable": "doing:work"}))
    assert outcome.text == (
        "the user app the user api the user tasks the user workers the user celery"
    )
    (hostile / "tasks.py").write_text("def work(context): return 'mine'\n")
    assert body(Action.AGENT, do({"callable": "tasks:work"})).text == "mine"


def test_our_own_packages_are_not_found_by_a_user_s_module(body, tmp_path) -> None:
    (tmp_path / "work" / "doing.py").write_text("def work(context):\n    import workers.body\n")
    outcome = body(Action.AGENT, do({"callable": "doing:work"}))
    assert "No module named 'workers'" in outcome.reason.text


DOING = """
import sys

def whole(context): return f"{context['task']} {context['iteration']} {context['feedback']}"
def by_name(task, session, cwd, missing="default"): return f"{task} {session} {missing}"
def nothing(): print("said instead")
def value(context): return {"text": "t", "value": [1, 2]}
def number(context): return 42
def hopeless(context): return {"verdict": "terminate", "text": "not possible"}
def raises(context): raise KeyError("what was it")
def leaves(context): sys.exit(3)
def quits(context):
    import os
    os._exit(0)
def object_(context): return object()
async def later(task): return f"later {task}"
class Nested:
    @staticmethod
    def inner(context): return "inner"
"""


@pytest.fixture
def doing(tmp_path: Path) -> None:
    (tmp_path / "work" / "doing.py").write_text(DOING)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("whole", "Fix it. 2 tests fail", None),
        ("by_name", "Fix it. ab12cd34 default", None),
        ("nothing", "said instead", None),
        ("value", "t", [1, 2]),
        ("number", "42", 42),
        ("later", "later Fix it.", None),
        ("Nested.inner", "inner", None),
    ],
)
def test_what_a_function_returns_is_the_outcome(body, doing, name, text, value) -> None:
    previous = {"work": "w", "feedback": "tests fail"}
    inputs = do({"callable": f"doing:{name}"}, iteration=2, previous=previous)
    outcome = body(Action.AGENT, inputs)
    assert (outcome.word, outcome.text, outcome.value) == ("succeeded", text, value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("doing:raises", "KeyError: 'what was it'"),
        ("doing:leaves", "exited with code 3"),
        ("doing:quits", "ended its process before it returned"),
        ("doing:object_", "returned what JSON cannot hold"),
        ("doing:gone", "has no attribute 'gone'"),
        ("doing:sys.path", "is not a function but list"),
        ("nowhere:work", "No module named 'nowhere'"),
    ],
)
def test_a_function_that_fails_fails_the_step(body, doing, name, why) -> None:
    outcome = body(Action.AGENT, do({"callable": name}))
    assert (outcome.word, code_of(outcome)) == ("failed", ReasonCode.FAILED_STEP)
    assert why in outcome.reason.text


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": [0.5, float("nan")]}, "result.a[1]: it has no nan"),
        ([1e400], "result[0]: it has no inf"),
        ({float("inf"): 1}, "result, a key: it has no inf"),
        ({"a": {1: "x", "1": "y"}}, "result.a: its keys 1 and '1' are both '1'"),
        ({True: "x", "true": "y"}, "result: its keys True and 'true' are both 'true'"),
        ({"a": "\ud800"}, "result.a: its text has a lone surrogate"),
    ],
)
def test_value_that_json_would_change_is_refused_with_its_path(value: object, why: str) -> None:
    word, details = json.loads(as_json("returned", value))
    assert (word, details["story"]) == ("raised", f"it returned what JSON cannot hold: {why}")


def test_value_that_json_keeps_is_returned() -> None:
    value = {1: [None, True, 0.5, "\u00e9"], "2": {}}
    assert json.loads(as_json("returned", value)) == ["returned", {"1": value[1], "2": {}}]
    assert json.loads(as_json("raised", {"story": "\udcff"}))[0] == "raised"


def test_a_doer_that_says_terminate_ends_its_loop(body, doing) -> None:
    outcome = body(Action.AGENT, do({"callable": "doing:hopeless"}))
    assert (outcome.word, outcome.verdict, outcome.text) == ("failed", "terminate", "not possible")
    assert code_of(outcome) is ReasonCode.TERMINATED


def test_tools_answer_by_name(body) -> None:
    echo = body(Action.TOOL, {"tool": "echo", "arguments": {"a": [1]}})
    assert (echo.word, echo.value, echo.text) == ("succeeded", {"a": [1]}, '{"a": [1]}')
    noop = body(Action.TOOL, {"tool": "noop"})
    assert (noop.word, noop.value, noop.text) == ("succeeded", None, "")
    unknown = body(Action.TOOL, {"tool": "hammer"})
    assert (unknown.word, unknown.retryable) == ("failed", False)
    assert unknown.reason.text.startswith("ToolNotFound: tool 'hammer'")


@pytest.mark.parametrize("action", [Action.HUMAN, Action.WAIT, Action.CHILD])
def test_parking_steps_have_no_body(body, action) -> None:
    assert body(action, {}).reason.text == f"a {action.value} step parks; it has no body"


def test_input_of_the_wrong_form_is_an_outcome(body) -> None:
    outcome = body(Action.AGENT, {"doer": {"command": "true"}})
    assert outcome.reason.text == "the step's input 'task' cannot be used: Field required"


def test_internal_error_is_an_outcome(body, tmp_path) -> None:
    (tmp_path / "spill").write_text("a file where a folder should be")
    outcome = body(Action.AGENT, do({"command": "true"}))
    assert (outcome.word, code_of(outcome)) == ("failed", ReasonCode.FAILED_STEP)
    assert outcome.started_ms is not None
    refused = body(Action.AGENT, do({"command": "true"}), cwd=None)
    assert refused.reason.text.startswith(f"the folder '{tmp_path / 'spill'}' is not a folder")
    long = tmp_path / ("x" * 300)
    fault = body(Action.AGENT, do({"command": "true"}), cwd=None, spill=long)
    assert "internal error: OSError" in fault.reason.text


def test_doer_whose_git_waits_for_a_signer_is_named(body, tmp_path) -> None:
    signer = tmp_path / "gpg"
    signer.write_text("#!/bin/sh\nsleep 60\n")
    signer.chmod(0o755)
    make = f"git init -q . && git config gpg.program '{signer}'"
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -S -m x"
    outcome = body(Action.AGENT, do({"command": f"{make} && {commit}"}), timeout_s=4.0)
    assert outcome.reason is not None
    assert "timed out after 4 seconds; it waited for gpg, which signs" in outcome.reason.text


def test_a_daemon_that_a_signature_left_is_not_what_a_doer_waited_for(body, tmp_path) -> None:
    daemon = tmp_path / "gpg-agent"
    daemon.write_text("#!/bin/sh\nsleep 60\n")
    daemon.chmod(0o755)
    outcome = body(Action.AGENT, do({"command": f"'{daemon}' & sleep 60"}), timeout_s=2.0)
    assert outcome.reason is not None
    assert "timed out after 2 seconds" in outcome.reason.text
    assert "gpg" not in outcome.reason.text


SHADOWED = "def ask(prompt):\n    return 'the file of the folder'\n"


@pytest.mark.parametrize("is_free", [True, False])
def test_operators_function_is_not_looked_up_in_the_folder_of_a_limited_session(
    body, tmp_path, is_free: bool
) -> None:
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator/mine.py").write_text(SHADOWED.replace("folder", "operator"))
    (tmp_path / "work/mine.py").write_text(SHADOWED)
    (tmp_path / "work/other.py").write_text(SHADOWED)
    installed = SessionEnvironment(passed={"PYTHONPATH": str(tmp_path / "operator")})
    where = "folder" if is_free else "operator"
    called = {"is_free": is_free, "session_environment": installed}
    for doer in ({"callable": "mine:ask"}, {"agent": "asked"}):
        agents = {"asked": Agent(callable="mine:ask")}
        outcome = body(Action.AGENT, do(doer), agents=agents, **called)
        assert outcome.text == f"the file of the {where}", outcome
    only_there = {"asked": Agent(callable="other:ask")}
    outcome = body(Action.AGENT, do({"agent": "asked"}), agents=only_there, **called)
    assert (outcome.word == "succeeded") is is_free
    if not is_free:
        assert "not in the working folder" in outcome.reason.text
    # An operator's flow may name a function of the project, as it may name a command.
    assert body(Action.AGENT, do({"callable": "other:ask"}), **called).word == "succeeded"
