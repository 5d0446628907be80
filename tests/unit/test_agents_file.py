"""agents.toml: what it may say, and how it is told what it may not."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from workers.agents.book import AgentBook
from workers.agents.entries import Agent
from workers.agents.errors import (
    AgentsFileInvalid,
    AgentUnknown,
    AgentUnnamed,
    AnswerUnreadable,
    ModelUnwanted,
)
from workers.agents.usable import agents_here


def loaded(tmp_path: Path, text: str) -> AgentBook:
    file = tmp_path / "agents.toml"
    file.write_text(text)
    return AgentBook.load([file])


def test_an_entry_is_read_with_all_its_keys(tmp_path) -> None:
    book = loaded(
        tmp_path,
        """
        [agents.mine]
        command = ["agent", "--say", "{prompt}"]
        env = ["MY_KEY"]
        timeout_s = 60
        model_args = ["--model={model}"]
        doer_args = ["--edit"]
        checker_args = ["--look"]
        resume_args = ["--on={thread}"]
        needs_env = ["MY_OTHER"]
        output = "lines"
        answer = "[type=end].message.text"
        thread = "session"
        failed = "error"
        usage = {cost_usd = "cost", input_tokens = ["a", "b"], of = "conversation"}
        running = {input_tokens = "[type=part].tokens", each = "[type=part].id"}
        prices = {input_usd = 3, output_usd = 15}
        """,
    )
    mine = book.agent("mine")
    told = ("agent", "--say", "hi")
    assert mine.argv(prompt="hi", model="m1") == (*told, "--edit", "--model=m1")
    assert mine.argv(prompt="hi", role="checker") == (*told, "--look")
    assert mine.argv(prompt="hi", thread="t9") == (*told, "--edit", "--on=t9")
    assert (mine.timeout_s, mine.variables) == (60, ("MY_KEY", "MY_OTHER"))
    assert (mine.usage.input_tokens, mine.usage.cost_usd) == (("a", "b"), ("cost",))


def test_claude_and_codex_are_ready_made_and_can_be_replaced(tmp_path) -> None:
    book = loaded(tmp_path, '[agents.claude]\ncommand = ["my-claude"]\n')
    assert book.agent("claude").command == ("my-claude",)
    assert book.agent("codex").argv(prompt="go", thread="t1") == (
        *("codex", "exec", "--skip-git-repo-check", "--json"),
        *("--sandbox", "workspace-write", "fork", "t1", "-"),
    )
    assert AgentBook().agent("claude").argv(prompt="go", model="opus", role="checker") == (
        *("claude", "-p", "--output-format", "stream-json", "--verbose"),
        *("--allowedTools", "Bash", "--disallowedTools", "Edit,Write,NotebookEdit"),
        *("--model", "opus"),
    )


def test_the_later_file_wins(tmp_path) -> None:
    files = []
    for name in ("one", "two"):
        files.append(tmp_path / f"{name}.toml")
        files[-1].write_text(f'[agents.x]\ncommand = ["{name}"]\n')
    assert AgentBook.load(files).agent("x").command == ("two",)


def test_a_prompt_is_never_taken_for_an_option() -> None:
    alone = Agent(command=("agent", "{prompt}"))
    assert alone.argv(prompt="--help") == ("agent", "\n--help")


LINES = '[agents.x]\ncommand = ["a"]\noutput = "lines"\n'


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        ("[agents.x]\n", "agents.x", 'it is nothing; write one of command = ["program"'),
        (
            '[agents.x]\ncommand = ["a"]\ncallable = "m:f"\n',
            "agents.x",
            "it is command and callable; write one of",
        ),
        (
            '[agents.x]\ncallable = "m:f"\nmodel_args = ["-m", "{model}"]\n',
            "agents.x",
            "model_args goes with a command, and this is a callable; drop it",
        ),
        ('[agents.x]\ncallable = "m.f"\n', "agents.x.callable", '"module:function"'),
        ('[agents.x]\nmodel = "gpt"\n', "agents.x.model", 'model = {name = "..."}'),
        (
            '[agents.x]\nmodel = {base_url = "https://m.example/v1"}\n',
            "agents.x.model.name",
            "is missing in [agents.x.model]",
        ),
        (
            '[agents.x]\nmodel = {name = "m", base_url = "m.example"}\n',
            "agents.x.model.base_url",
            "https://models.example/v1",
        ),
        ('[agents.x]\nmodel = {name = "m", key = "k"}\n', "agents.x.model.key", "use name, base_"),
        (
            '[agents.x]\nmodel = {name = "m", key_env = "sk-AbCdEf0123456789abcdef"}\n',
            "agents.x.model.key_env",
            "the name of a variable",
        ),
        ('[agents.x]\ncommand = "ls"\n', "agents.x.command", "write a list"),
        ("[agents.x]\ncommand = []\n", "agents.x.command", "a program and its arguments"),
        ('[agents.x]\ncommand = ["a", 1]\n', "agents.x.command.1", "valid string"),
        ('[agents.x]\ncommand = ["a", ""]\n', "agents.x.command.1", "at least 1 character"),
        ('[agents.x]\ncommand = ["a"]\ntimeout = 1\n', "agents.x.timeout", "is not a key here"),
        ('[agents.x]\ncommand = ["a"]\ntimeout_s = 0\n', "agents.x.timeout_s", "greater than 0"),
        ('[agents.x]\ncommand = ["a"]\ntimeout_s = "9"\n', "agents.x.timeout_s", "valid number"),
        ('[agents.x]\ncommand = ["a"]\noutput = "xml"\n', "agents.x.output", "'text', 'json' or"),
        (f"{LINES}answer = 'a..b'\n", "agents.x.answer", "FIELD.FIELD, or [FIELD=VALUE]"),
        (f"{LINES}answer = 'a'\nusage = {{each = 'a['}}\n", "agents.x.usage.each", "FIELD.FIELD"),
        (f"{LINES}", "agents.x", 'answer = "FIELD"'),
        ('[agents.x]\ncommand = ["a"]\nanswer = "b"\n', "agents.x", 'output = "json"'),
        (f"{LINES}answer = 'a'\nthread = 't'\n", "agents.x", "belong together"),
        (
            f"{LINES}answer = 'a'\nthread = 't'\nresume_args = ['-c']\n",
            "agents.x.resume_args",
            "write {thread}",
        ),
        (
            f"{LINES}answer = 'a'\nprices = {{input_usd = 1}}\n",
            "agents.x.prices.output_usd",
            "is missing in [agents.x.prices]",
        ),
        (
            f"{LINES}answer = 'a'\nusage = {{cost = 'c'}}\n",
            "agents.x.usage.cost",
            "use cost_usd, input_tokens",
        ),
        (
            '[agents.x]\ncommand = ["a"]\nenv = ["A B"]\n',
            "agents.x.env.0",
            "write letters, digits",
        ),
        (
            '[agents.x]\ncommand = ["a"]\nenv = ["LEADHAND_SECRET"]\n',
            "agents.x.env",
            "begins with LEADHAND_",
        ),
        (
            '[agents.x]\ncommand = ["a"]\nmodel_args = ["-m"]\n',
            "agents.x.model_args",
            "write {model}",
        ),
        ('[agents."a b"]\ncommand = ["a"]\n', "agents.a b", "write 1 to 64 letters, digits"),
        ('[claude]\ncommand = ["a"]\n', "claude", "[agents.NAME]"),
        ("agents = 3\n", "agents", "valid dictionary"),
        ("[agents.x\n", "", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named_with_file_key_and_way_out(tmp_path, text, key, hint) -> None:
    with pytest.raises(AgentsFileInvalid) as raised:
        loaded(tmp_path, text)
    assert raised.value.key == key
    assert hint in raised.value.hint
    assert str(tmp_path / "agents.toml") in str(raised.value)


def test_a_missing_file_is_named(tmp_path) -> None:
    with pytest.raises(AgentsFileInvalid, match=r"gone\.toml: cannot be read: No such file"):
        AgentBook.load([tmp_path / "gone.toml"])


def test_an_unknown_agent_names_those_that_are_known() -> None:
    with pytest.raises(AgentUnknown, match=r"'gpt' is not known.* 'claude', 'codex'"):
        AgentBook().agent("gpt")


@pytest.mark.parametrize(
    "error",
    [
        AgentsFileInvalid("f", "k", 3, "h"),
        AgentUnknown("a", ("b",)),
        AgentUnnamed(),
        ModelUnwanted("a", "m"),
        AnswerUnreadable("why"),
    ],
)
def test_every_error_survives_a_pickle(error) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


def test_others_are_shown_no_key_of_a_command(tmp_path: Path) -> None:
    book = loaded(tmp_path, '[agents.x]\ncommand = ["./x", "--api-key", "hunter2hunter2", "-v"]\n')
    shown = {agent.name: agent.command for agent in agents_here(book)}
    assert shown["x"] == "./x --api-key [redacted] -v"
