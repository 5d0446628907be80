"""Tools that are commands: arguments, results, failures, limits."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from leadhand.models.verdicts import ReasonCode
from tests.unit.workers.declared.tool_world import ToolWorld, why

TOOLS = r"""
[tools.args]
command = [
  "python3", "-c", "import json, sys; print(json.dumps(sys.argv[1:]))",
  "{first}", "--n={n}", "--", "{more}",
]
output = "json"
[tools.args.arguments]
first = "string"
n = {type = "integer", required = false}
more = {type = "array", default = []}

[tools.input]
command = ["python3", "-c", "import json, sys; print(sum(json.load(sys.stdin)['numbers']))"]
arguments = {numbers = {type = "array", items = {type = "integer"}}}
output = "json"

[tools.fails]
command = ["sh", "-c", "echo no ink >&2; exit 4"]
[tools.declines]
command = ["echo", '{{"success": false, "error": "the shop is closed"}}']
output = "json"
[tools.says]
command = ["echo", "hello {name}"]
[tools.hangs]
command = ["sleep", "60"]
timeout_s = 0.3
[tools.large]
command = ["head", "-c", "5000000", "/dev/zero"]
[tools.missing]
command = ["/nowhere/at/all"]
[tools.where]
command = ["sh", "-c", "echo $LEADHAND_KEY; pwd; echo ${{LEADHAND_SECRET:-none}}"]
[tools.safe]
command = ["echo", "again"]
idempotent = true
"""


@pytest.fixture
def world(tmp_path: Path) -> ToolWorld:
    world = ToolWorld(tmp_path)
    world.write(TOOLS)
    return world


def test_placeholders_become_arguments_of_the_program(world: ToolWorld) -> None:
    assert world.call("args", first="a b; rm -rf /", n="3", more=["-x", "y"]).value == [
        "a b; rm -rf /", "--n=3", "--", "-x", "y",
    ]  # fmt: skip
    assert world.call("args", first="$HOME").value == ["$HOME", "--"]


def test_a_value_that_would_be_an_option_is_refused(world: ToolWorld) -> None:
    assert "which the program would take for an option" in why(world.call("args", first="--help"))


def test_arguments_without_placeholders_are_json_on_standard_input(world: ToolWorld) -> None:
    assert world.call("input", numbers=[1, "2"]).value == 3


def test_an_unfit_argument_is_named(world: ToolWorld) -> None:
    assert "argument 'numbers': it is [1, \"x\"]; in [1]" in why(
        world.call("input", numbers=[1, "x"])
    )
    assert "argument 'numbers' is missing" in why(world.call("input"))
    assert "there is no argument 'number'; there are: numbers" in why(
        world.call("input", number=[1])
    )


def test_a_text_is_the_result(world: ToolWorld) -> None:
    done = world.call("says", name="you")
    assert (done.word, done.value, done.text) == ("succeeded", "hello you", "hello you")


def test_a_failure_has_the_exit_code_and_the_last_words(world: ToolWorld) -> None:
    failed = world.call("fails")
    assert why(failed) == "tool 'fails' exited with code 4: no ink"
    assert (failed.exit_code, failed.retryable) == (4, True)
    assert "the program '/nowhere/at/all': it is not found" in why(world.call("missing"))


def test_success_false_fails_only_if_success_is_expected(world: ToolWorld) -> None:
    assert world.call("declines").word == "succeeded"
    failed = world.call("declines", expect="success")
    assert "did not report success: the shop is closed" in why(failed)
    assert isinstance(failed.value, dict)


def test_a_command_has_a_deadline_and_can_be_cancelled(world: ToolWorld) -> None:
    late = world.call("hangs")
    assert late.reason is not None
    assert late.reason.code is ReasonCode.TIMEOUT
    assert "after 0.3 seconds" in late.reason.text
    cancel = threading.Event()
    cancel.set()
    ended = world.call("hangs", cancel=cancel)
    assert ended.reason is not None
    assert ended.reason.code is ReasonCode.CANCELLED


def test_too_much_output_is_no_result(world: ToolWorld) -> None:
    assert "printed 5,000,000 bytes; a result has at most" in why(world.call("large"))


def test_a_command_gets_the_key_and_no_secret(world: ToolWorld, monkeypatch) -> None:
    monkeypatch.setenv("LEADHAND_SECRET", "s" * 40)
    work = world.folder / "work"
    assert world.call("where").value == f"ab12cd34:call\n{work}\nnone"


def test_a_call_that_a_lost_attempt_may_have_made_is_repeated_only_if_that_is_safe(world) -> None:
    lost = world.call("says", attempt=2, name="x")
    assert lost.reason is not None
    assert lost.reason.code is ReasonCode.LOST
    assert "not marked idempotent" in lost.reason.text
    assert world.call("safe", attempt=2).value == "again"
    assert world.call("says", attempt=2, retries=1, name="x").value == "hello x"
