"""agents.toml: valid entries, and the messages for invalid ones."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from workers.registry.agent_entry import BUILTIN_AGENTS, Agent
from workers.registry.agents import AgentBook, agents_here, faults_of
from workers.registry.errors import (
    AgentsFileInvalid,
    AgentUnknown,
    AgentUnnamed,
    ModelUnwanted,
    OutputUnreadable,
)
from workers.registry.registries import AgentFiles


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
    codex = book.agent("codex")
    assert codex.argv(prompt="go", thread="t1", mcp_args=("-c", "a=1")) == (
        *("codex", "exec", "--skip-git-repo-check", "--json", "-c", "a=1"),
        *("--sandbox", "workspace-write", "fork", "t1", "-"),
    )
    assert "{mcp_args}" not in codex.argv(prompt="go")
    judges = codex.argv(prompt="go", role="checker")
    assert judges[judges.index("--sandbox") + 1] == "read-only"
    claude = AgentBook().agent("claude")
    assert claude.argv(prompt="go", model="opus", role="checker", mcp_config="/s/mcp.json") == (
        *("claude", "-p", "--output-format", "stream-json", "--verbose"),
        *("--mcp-config", "/s/mcp.json"),
        *("--tools", "Read,Grep,Glob"),
        *("--allowedTools", "Read,Grep,Glob,mcp__leadhand__*"),
        *("--model", "opus"),
    )


def test_placeholders_of_the_mcp_server_are_filled_in_and_not_in_the_prompt() -> None:
    mine = Agent(
        command=("agent", "{mcp_args}", "{prompt}"),
        doer_args=("--servers={mcp_config}",),
    )
    prompt = "say {mcp_config} and {mcp_args}"
    assert mine.argv(prompt=prompt, mcp_config="/s/mcp.json", mcp_args=("-c", "x")) == (
        *("agent", "-c", "x", prompt, "--servers=/s/mcp.json"),
    )
    assert (mine.takes_mcp_config, mine.takes_mcp_args) == (True, True)
    plain = Agent(command=("agent", "{prompt}"))
    assert (plain.takes_mcp_config, plain.takes_mcp_args) == (False, False)


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
            "model_args needs a command, and this is a callable; remove it",
        ),
        (
            '[agents.x]\ncommand = ["a", "--x={mcp_args}"]\n',
            "agents.x.command",
            'write "{mcp_args}" alone',
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
        (
            '[agents.x]\ncommand = ["a"]\ntimeout = 1\n',
            "agents.x.timeout",
            "did you mean 'timeout_s'?",
        ),
        (
            '[agents.x]\ncommand = ["a"]\nprices = {input_usd = 9999999, output_usd = 1}\n',
            "agents.x.prices.input_usd",
            "it should be less than",
        ),
        ('[agents.x]\ncommand = ["a"]\ntimeout_s = 0\n', "agents.x.timeout_s", "greater than 0"),
        ('[agents.x]\ncommand = ["a"]\ntimeout_s = "9"\n', "agents.x.timeout_s", "valid number"),
        ('[agents.x]\ncommand = ["a"]\noutput = "xml"\n', "agents.x.output", "'text', 'json' or"),
        (f"{LINES}answer = 'a..b'\n", "agents.x.answer", "FIELD.FIELD, or [FIELD=VALUE]"),
        (f"{LINES}answer = 'a'\nusage = {{each = 'a['}}\n", "agents.x.usage.each", "FIELD.FIELD"),
        (f"{LINES}", "agents.x", 'answer = "FIELD"'),
        ('[agents.x]\ncommand = ["a"]\nanswer = "b"\n', "agents.x", 'output = "json"'),
        (
            f"{LINES}answer = 'a'\nactivity = {{tool = 'a['}}\n",
            "agents.x.activity.tool.0",
            "FIELD.FIELD",
        ),
        (
            f"{LINES}answer = 'a'\nactivity = {{call = 'a'}}\n",
            "agents.x.activity.call",
            "use text, ",
        ),
        (
            '[agents.x]\ncommand = ["a"]\nactivity = {tool = "a"}\n',
            "agents.x",
            'activity is read from JSON lines; write output = "lines"',
        ),
        (
            '[agents.x]\ncallable = "m:f"\nactivity = {tool = "a"}\n',
            "agents.x",
            "activity needs a command",
        ),
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
            "begin with LEADHAND_",
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
    [fault] = loaded(tmp_path, text).faults
    assert fault.key == key
    assert hint in fault.hint
    assert fault.line is not None
    named = key.rpartition(".")[2]
    line = text.split("\n")[fault.line - 1]
    assert named in line or named in ("0", "1", "name", "output_usd", "x", "agents"), line
    assert str(fault).startswith(f"{tmp_path / 'agents.toml'}, line {fault.line}: {key}")


BROKEN_ENTRIES = """
[agents.good]
command = ["good"]

[agents.bad]
# an agent with two faults
command = [
    "bad",
]
timeout = 1  # not a key

[agents.claude]
command = "claude --token hunter2hunter2"
"""


def test_a_broken_entry_costs_only_its_agent(tmp_path) -> None:
    book = loaded(tmp_path, BROKEN_ENTRIES)
    file = tmp_path / "agents.toml"
    assert book.agent("good").command == ("good",)
    assert book.agent("codex") == BUILTIN_AGENTS["codex"]
    for name, line, key in (("bad", 10, "timeout"), ("claude", 13, "command")):
        with pytest.raises(AgentsFileInvalid) as raised:
            book.agent(name)
        assert str(raised.value).startswith(f"{file}, line {line}: agents.{name}.{key}: ")
        assert "hunter2" not in str(raised.value)
    why = {agent.name: agent.why_not for agent in agents_here(book)}
    assert str(why["bad"]).startswith(f"{file}, line 10: agents.bad.timeout: is not a key here")
    assert "hunter2" not in "".join(map(str, why.values()))
    assert [(one.agent, one.text) for one in faults_of(book)] == [
        ("bad", why["bad"]), ("claude", why["claude"]),
    ]  # fmt: skip


def test_a_broken_entry_does_not_fall_back_to_one_of_an_earlier_file(tmp_path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    first.write_text('[agents.x]\ncommand = ["any"]\n[agents.y]\ncommand = 1\n')
    second.write_text('[agents.x]\ncommand = 1\n[agents.y]\ncommand = ["any"]\n')
    book = AgentBook.load([first, second])
    assert set(book.broken) == {"x"}
    assert book.agent("y").command == ("any",)


def hostile_files(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Files that cannot be read, each with the beginning of what is reported of it."""
    contents: dict[str, tuple[bytes, str]] = {
        "latin": (b'[agents.x]\ncommand = ["\xe9\xff"]\n', ", line 2: is not UTF-8; save"),
        "twice": (b'[agents.x]\ncommand = ["a"]\ncommand = ["b"]\n', ", line 3: is not TOML: "),
        "table": (b"[agents.x]\nenv=[]\n[agents.x]\n", ", line 3: is not TOML: Cannot declare"),
        "open": (b'[agents.x]\ncommand = ["a"', ", line 2: is not TOML: "),
        "deep": (b"x = " + b"[" * 100_000, ": is nested too deep; simplify it"),
        "zero": (b"[agents.x]\n\0", ", line 2: is not TOML: "),
    }
    for name, (content, told) in contents.items():
        file = tmp_path / f"{name}.toml"
        file.write_bytes(content)
        yield file, told
    (tmp_path / "folder.toml").mkdir()
    yield tmp_path / "folder.toml", ": cannot be read: it is not a regular file; make it a file"
    os.mkfifo(tmp_path / "pipe.toml")
    yield tmp_path / "pipe.toml", ": cannot be read: it is not a regular file; make it a file"
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    yield tmp_path / "loop.toml", ": cannot be read: Too many levels of symbolic links"
    yield Path("/proc/self/mem"), ": cannot be read: Input/output error"


def test_a_file_that_cannot_be_read_costs_only_its_own_agents(tmp_path) -> None:
    good = tmp_path / "good.toml"
    good.write_text('[agents.good]\ncommand = ["good"]\n')
    for file, told in hostile_files(tmp_path):
        book = AgentBook.load([good, file])
        assert set(book.agents) == {"good", *BUILTIN_AGENTS}, file
        [fault] = faults_of(book)
        assert fault.agent is None
        assert fault.text.startswith(f"{file}{told}"), fault.text
        with pytest.raises(AgentUnknown) as unknown:
            book.agent("z")
        assert fault.text in str(unknown.value)
        assert AgentFiles([good, file]).current().unread


def test_an_agent_of_a_file_that_is_no_toml_is_not_replaced_by_another_file_s(tmp_path) -> None:
    book = loaded(tmp_path, "[agents.claude]\ncommand = ['mine']\n[agents.'x y'.model]\nname = \n")
    assert set(book.broken) == {"claude", "x y"}
    with pytest.raises(AgentsFileInvalid, match=r"agents\.toml, line 4: is not TOML: "):
        book.agent("claude")
    assert book.agent("codex") == BUILTIN_AGENTS["codex"]


@pytest.mark.parametrize("content", ["", "# nothing\n", "[agents]\n"])
def test_an_empty_or_missing_file_defines_nothing(tmp_path, content) -> None:
    gone, under_a_file = tmp_path / "gone.toml", tmp_path / "agents.toml" / "x.toml"
    file = tmp_path / "agents.toml"
    file.write_text(content)
    book = AgentBook.load([file, gone, under_a_file])
    assert (dict(book.agents), book.faults) == (dict(BUILTIN_AGENTS), ())


def test_a_file_that_breaks_keeps_its_agents_for_sessions_that_run(tmp_path) -> None:
    file = tmp_path / "agents.toml"
    file.write_text('[agents.x]\ncommand = ["one"]\n')
    files = AgentFiles([file])
    assert files.current().agent("x").command == ("one",)
    for broken in ('[agents.x]\ncommand = ["two"\n', "[agents.x]\ncommand = 22\n", "agents = [[\n"):
        file.write_text(broken)
        book = files.current()
        assert book.agent("x").command == ("one",)
        assert "x" not in book.agents, "new sessions are refused"
        assert book.faults
    file.write_text('[agents.x]\ncommand = ["three"]\n')
    assert files.current().agent("x").command == ("three",)
    file.unlink()
    with pytest.raises(AgentUnknown):
        files.current().agent("x")


def test_a_change_that_keeps_time_and_size_is_noticed(tmp_path) -> None:
    file = tmp_path / "agents.toml"
    file.write_text('[agents.x]\ncommand = ["one"]\n')
    files, was = AgentFiles([file]), file.stat()
    assert files.current().agent("x").command == ("one",)
    other = tmp_path / "other.toml"
    other.write_text('[agents.x]\ncommand = ["two"]\n')
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    other.replace(file)
    assert files.current().agent("x").command == ("two",)


def test_an_unknown_agent_names_those_that_are_known() -> None:
    with pytest.raises(AgentUnknown, match=r"'gpt' is not known.* 'claude', 'codex'"):
        AgentBook().agent("gpt")


@pytest.mark.parametrize(
    "error",
    [
        AgentsFileInvalid("f", "k", 3, "h", 7),
        AgentUnknown("a", ("b",), ("f: is not TOML",)),
        AgentUnnamed(),
        ModelUnwanted("a", "m"),
        OutputUnreadable("why"),
    ],
)
def test_every_error_survives_a_pickle(error) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


def test_others_are_shown_no_key_of_a_command(tmp_path: Path) -> None:
    book = loaded(tmp_path, '[agents.x]\ncommand = ["./x", "--api-key", "hunter2hunter2", "-v"]\n')
    shown = {agent.name: agent.command for agent in agents_here(book)}
    assert shown["x"] == "./x --api-key [redacted] -v"
