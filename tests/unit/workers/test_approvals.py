"""What of a folder's agents.toml and tools.toml applies without the user's approval."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadhand.cli.approvals import approve, why_unapproved, withdraw
from leadhand.local.user_state import approvals_file
from leadhand.models.approvals import MOST_TEXTS, Approvals, digest_of
from workers.registry.agent_entry import BUILTIN_AGENTS
from workers.registry.agents import AgentBook
from workers.registry.errors import AgentsFileInvalid
from workers.registry.registries import AgentFiles
from workers.registry.tool_book import ToolBook, ToolFiles, load

AGENTS = """\
[agents.helper]
command = ["helper"]
[agents.claude]
command = ["other"]
[agents.mine]
command = ["other"]
"""
TOOLS = """\
[tools.count]
command = ["wc"]
[tools.check]
command = ["other"]
[mcp.files]
command = "server"
"""


class Folders:
    """The user's own files, a folder with files of its own, and the store of approvals."""

    def __init__(self, root: Path) -> None:
        self.user, self.folder = root / "user", root / "clone"
        for folder in (self.user, self.folder):
            folder.mkdir()
        self.write("user/agents.toml", '[agents.mine]\ncommand = ["mine"]\n')
        self.write("user/tools.toml", '[tools.check]\ncommand = ["true"]\n')
        self.env = {"HOME": str(root), "XDG_STATE_HOME": str(root / "state")}
        self.approvals = Approvals(self.folder, approvals_file(self.env))

    def write(self, name: str, text: str) -> Path:
        file = self.user.parent / name
        file.write_text(text)
        return file

    def files(self, name: str) -> list[Path]:
        return [self.user / name, self.folder / name]

    def approve(self, file: Path) -> None:
        approve({file: digest_of(file.read_text())}, self.env)

    def withdraw(self) -> None:
        assert self.approvals.store is not None
        self.approvals.store.write_text("{}")


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_an_agent_is_not_replaced_without_approval(folders: Folders) -> None:
    folders.write("clone/agents.toml", AGENTS)
    book = AgentBook.load(folders.files("agents.toml"), approvals=folders.approvals)
    assert book.agent("helper").command == ("helper",)
    for name, line in {"claude": 3, "mine": 5}.items():
        with pytest.raises(AgentsFileInvalid) as refused:
            book.agent(name)
        text = str(refused.value)
        assert f"clone/agents.toml, line {line}: agents.{name}" in text
        assert f"`leadhand trust {folders.folder}`" in text


def test_an_approval_holds_for_one_content_of_the_file(folders: Folders) -> None:
    file = folders.write("clone/agents.toml", AGENTS)
    agents = AgentFiles(folders.files("agents.toml"), folders.approvals)
    assert "claude" in agents.current().broken
    folders.approve(file)
    assert agents.current().agent("claude").command == ("other",)
    assert agents.current().agent("mine").command == ("other",)
    folders.write("clone/agents.toml", AGENTS.replace("other", "worse"))
    changed = agents.current()
    assert set(changed.broken) == {"claude", "mine"}
    assert changed.agent("claude").command == ("other",), "running sessions keep what was approved"


@pytest.mark.parametrize("text", [AGENTS, AGENTS + "["], ids=["valid", "unreadable"])
def test_withdrawn_approval_reaches_a_worker_that_has_the_agents_loaded(
    folders: Folders, text: str
) -> None:
    folders.approve(folders.write("clone/agents.toml", AGENTS))
    agents = AgentFiles(folders.files("agents.toml"), folders.approvals)
    assert agents.current().agent("claude").command == ("other",)
    folders.write("clone/agents.toml", text)
    folders.withdraw()
    for name in ("claude", "mine"):
        with pytest.raises(AgentsFileInvalid):
            agents.current().agent(name)
    assert agents.current().agent("helper").command == ("helper",), "it needs no approval"


def test_withdrawn_approval_reaches_a_worker_that_has_the_tools_loaded(folders: Folders) -> None:
    folders.approve(folders.write("clone/tools.toml", TOOLS))
    tools = ToolFiles(folders.files("agents.toml"), folders.approvals)
    assert tools.current().entry("check") is not None
    folders.withdraw()
    assert [tools.current().entry(name) is None for name in ("count", "check", "files")] == [
        False, True, True,
    ]  # fmt: skip


def test_a_store_that_is_missing_or_damaged_approves_nothing(folders: Folders) -> None:
    folders.write("clone/agents.toml", AGENTS)
    for text in (None, "", "[]", '{"a":'):
        if text is not None and folders.approvals.store is not None:
            folders.approvals.store.write_text(text)
        book = AgentBook.load(folders.files("agents.toml"), approvals=folders.approvals)
        assert "claude" in book.broken


def test_files_that_the_user_named_need_no_approval(folders: Folders) -> None:
    file = folders.write("user/agents.toml", AGENTS)
    book = AgentBook.load([file], approvals=folders.approvals)
    assert book.agent("claude") != BUILTIN_AGENTS["claude"]


def test_no_server_starts_and_no_tool_is_replaced_without_approval(folders: Folders) -> None:
    file = folders.write("clone/tools.toml", TOOLS)
    book = load(folders.files("tools.toml"), ToolBook(), folders.approvals)
    assert set(book.entries) == {"count"}
    assert book.servers == {}
    assert set(book.broken) == {"check", "files"}
    assert "line 5: mcp.files: a server starts by itself" in str(book.broken["files"])
    folders.approve(file)
    book = load(folders.files("tools.toml"), ToolBook(), folders.approvals)
    assert set(book.servers) == {"files"}
    assert set(book.entries) == {"count", "check", "files"}


def test_worker_that_begins_later_takes_the_text_that_was_approved_at_the_submit(
    folders: Folders,
) -> None:
    file = folders.write("clone/agents.toml", AGENTS)
    folders.approve(file)
    folders.write("clone/agents.toml", AGENTS + "# newer")
    assert folders.approvals.lack(file, file.read_text())
    folders.approve(file)
    assert not folders.approvals.lack(file, AGENTS)
    assert not folders.approvals.lack(file, file.read_text())
    # Guards and [worktree] prepare: an agent must not bring weaker gates back.
    assert why_unapproved(file, file.read_text(), folders.env) is None
    assert "is not approved as it is now" in str(why_unapproved(file, AGENTS, folders.env))
    assert withdraw(file, folders.env)
    assert folders.approvals.lack(file, AGENTS)


def test_approved_texts_that_are_kept_are_bounded(folders: Folders) -> None:
    for n in range(MOST_TEXTS + 1):
        folders.approve(folders.write("clone/agents.toml", f"# {n}"))
    file = folders.folder / "agents.toml"
    kept = [n for n in range(MOST_TEXTS + 1) if not folders.approvals.lack(file, f"# {n}")]
    assert kept == list(range(1, MOST_TEXTS + 1))
