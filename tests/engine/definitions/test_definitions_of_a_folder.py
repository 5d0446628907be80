"""The definitions of a folder: stored with each session, signed, and read by its worker alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.engine import Engine
from app.errors import InvalidDocument, SpecForeign
from app.fleet import folder_reports
from app.programs import Registry
from app.sessions.attempts import Work
from app.sessions.documents import Changes
from app.sessions.drafts import Request
from leadhand.flows.documents import FlowRun
from leadhand.models.approvals import approval_key, digest_of
from leadhand.models.documents import LoopDocument
from tests.session_driving import add_worker, claim, end, ref_of
from tests.silent_engine import SECRET, silent_engine
from tests.waiting import wait_until
from workers.registry.agents import AgentBook
from workers.registry.registries import Registries
from workers.tool_servers.folder_reports import FolderReporter

PARROT = '[agents.parrot]\ncommand = ["cat"]\n'
WORKER = "w1"


class Home:
    """Embedded services with one worker, and folders of their user."""

    def __init__(self, url: str, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "trusted.json"
        settings: dict[str, Any] = {
            "folder_definitions": ("agents", "flows", "tools"),
            "approvals": self.store,
            "user_home": folder / "home",
            "secret": SECRET,
        }
        self.url, self.settings = url, settings
        self.engine = silent_engine(url, **settings)
        self.registries = Registries(self.engine.settings, folder / "servers")
        self.reporter = FolderReporter(self.engine, self.registries, worker=WORKER)
        add_worker(self.engine, WORKER)

    def write(self, name: str, text: str) -> Path:
        """Write a file of a folder."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def path(self, name: str) -> str:
        """Return the path of a folder, which exists from now on."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        return str(self.folder / name)

    def submit(self, folder: str, **more: Any) -> str:
        """Submit a loop from a folder; its id."""
        given = document(cwd=self.path(folder), **more)
        return str(self.engine.submit.document(given, free=True).session)

    def agents(self, session: str) -> AgentBook:
        """Return the agents that a worker has for a session; it has seen nothing yet."""
        registry = Registry(self.engine.store, self.engine.settings)
        ref = ref_of(self.engine, session)
        facts = registry.facts(ref)
        registry.verified_program(ref, facts)
        return self.registries.of(registry.definitions(ref, facts.definitions)).agents.current()

    def work(self, session: str) -> Work:
        """Claim the next step of a session, as its worker does."""
        engine: Engine = self.engine
        return engine.attempts.work(ref_of(engine, session), claim(engine, session))


@pytest.fixture
def home(store_url: str, tmp_path: Path) -> Iterator[Home]:
    home = Home(store_url, tmp_path)
    home.reporter.start()
    yield home
    home.reporter.stop()


def document(agent: str = "parrot", **more: Any) -> LoopDocument:
    given = {"task": "t", "checkers": ["true"], "doer": {"agent": agent}, **more}
    return LoopDocument.model_validate(given)


def test_agent_of_a_folder_serves_the_sessions_of_that_folder_alone(home):
    home.write("one/agents.toml", PARROT)
    session = home.submit("one")
    assert home.agents(session).agent("parrot").command == ("cat",)
    assert "parrot" not in home.registries.base.agents.current().agents
    with pytest.raises(InvalidDocument, match="no worker knows this agent"):
        home.submit("two")
    assert [one.name for one in home.engine.fleet.agents() if one.name == "parrot"] == []


def test_running_session_keeps_the_files_as_they_were_at_its_submit(home):
    file = home.write("one/agents.toml", PARROT)
    session = home.submit("one")
    file.write_text(PARROT.replace("cat", "tac"))
    assert home.agents(session).agent("parrot").command == ("cat",)
    assert home.agents(home.submit("one")).agent("parrot").command == ("tac",)


def test_resume_takes_over_the_files_as_they_are_now(home):
    file = home.write("one/agents.toml", PARROT)
    session = home.submit("one")
    # A worker's process that has seen the session before.
    worker = silent_engine(home.url, **home.settings)
    assert worker.registry.definitions(*_marked(worker, session)) is not None
    end(home.engine, session, "stopped")
    file.write_text(PARROT.replace("cat", "tac"))
    home.engine.control.apply(session, "resume")
    assert home.agents(session).agent("parrot").command == ("tac",)
    end(home.engine, session, "stopped")
    file.unlink()
    home.engine.control.apply(session, "resume")
    work = worker.attempts.work(ref_of(worker, session), claim(worker, session))
    assert work.definitions is None


def _marked(engine: Engine, session: str) -> tuple[SessionRef, str]:
    ref = ref_of(engine, session)
    return ref, engine.registry.facts(ref).definitions


def test_child_session_has_the_definitions_of_its_parent_wherever_it_works(home):
    home.write("one/agents.toml", PARROT)
    session = home.submit("one")
    work = home.work(session)
    parent = {
        "session": session, "address": work.grant.address, "fence": work.grant.fence,
        "base": home.engine.store.keys.base(work.ref),
    }  # fmt: skip
    request = Request(parent=parent, root=session)  # its right to bring commands is its parent's
    made = home.engine.submit.document_of(request, document(cwd=home.path("two")))
    assert home.work(made.session).definitions == work.definitions


@pytest.mark.parametrize("part", ["definitions", "session"])
def test_definitions_that_were_changed_in_redis_run_nothing(home, part):
    home.write("one/agents.toml", PARROT)
    session = home.submit("one")
    ref = ref_of(home.engine, session)
    key, store_redis = home.engine.store.keys.part(ref, part), home.engine.store._redis
    if part == "definitions":
        store_redis.set(key, str(store_redis.get(key)).replace("cat", "tac"))
    else:
        store_redis.hset(key, "definitions", "")
    with pytest.raises(SpecForeign):
        home.agents(session)


def test_file_of_a_folder_replaces_an_agent_only_once_it_is_approved(home):
    file = home.write("one/agents.toml", PARROT.replace("parrot", "claude"))
    with pytest.raises(InvalidDocument, match="leadhand trust"):
        home.submit("one", agent="claude")
    approved = {approval_key(file): digest_of(file.read_text())}
    home.store.write_text(str(approved).replace("'", '"'))
    assert home.agents(_until_accepted(home)).agent("claude").command == ("cat",)
    file.write_text(file.read_text() + "# changed\n")
    with pytest.raises(InvalidDocument, match="leadhand trust"):
        home.submit("one", agent="claude")


def _until_accepted(home: Home) -> str:
    """The worker reports a change of the approvals within its next look."""

    def try_it() -> str:
        try:
            return home.submit("one", agent="claude")
        except InvalidDocument:
            return ""

    return wait_until(try_it)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("name", ["agents.toml", "flows/one.json", "tools/one.py"])
def test_file_of_another_user_is_refused_and_named(home, name):
    file = home.write(f"one/{name}", "")
    os.chown(file, 54321, 54321)
    with pytest.raises(
        InvalidDocument, match="belongs to another user, who could change"
    ) as refused:
        home.submit("one")
    assert refused.value.value == str(file)


def test_faulty_file_costs_only_what_it_defines(home):
    home.write("one/agents.toml", "[agents.parrot\n")
    home.write("one/tools.toml", "\0" * 10)
    with pytest.raises(InvalidDocument, match=r"agents.toml, line 1"):
        home.submit("one")
    made = home.engine.submit.document(
        LoopDocument.model_validate({
            "task": "t", "checkers": ["true"], "doer": {"command": "true"},
            "cwd": home.path("one"),
        }),
        free=True,
    )  # fmt: skip
    assert made.created


def test_file_that_is_too_large_is_not_read(home, monkeypatch):
    monkeypatch.setattr(folder_reports, "LARGEST", 10)
    home.write("one/agents.toml", PARROT)
    with pytest.raises(InvalidDocument, match="make it smaller"):
        home.submit("one")


def test_worker_that_does_not_report_in_time_is_named(store_url, tmp_path, monkeypatch):
    monkeypatch.setattr(folder_reports, "PATIENCE_S", 0.05)
    home = Home(store_url, tmp_path)  # nothing reports
    home.write("one/agents.toml", PARROT)
    with pytest.raises(InvalidDocument, match=f"worker {WORKER} has not read it yet"):
        home.submit("one")


def test_flow_of_a_folder_runs_from_that_folder_alone(home):
    flow = '{"description": "d", "steps": [{"type": "tool", "tool": "echo", "arguments": {}}]}'
    home.write("one/flows/hello.json", flow)
    home.path("one/.git")
    made = home.engine.submit.flow("hello", FlowRun(working_folder=home.path("one/sub")))
    assert made.created
    assert home.engine.catalog_of(home.path("one"), True).flows()[0].name == "hello"
    assert home.engine.catalog_of(home.path("two"), True).flows() == []
    assert home.engine.catalog.flows() == []


def test_fork_and_rerun_have_the_definitions_of_today(home):
    file = home.write("one/agents.toml", PARROT)
    session = home.submit("one")
    end(home.engine, session, "stopped")
    file.write_text(PARROT.replace("cat", "tac"))
    again = home.engine.reruns.rerun(session, Changes(), free=True).session
    assert home.agents(again).agent("parrot").command == ("tac",)


def test_functions_of_a_folder_are_tools_of_its_sessions(home):
    home.write("one/tools/sums.py", "def add(a: int, b: int) -> int:\n    return a + b\n")
    found = home.engine.definitions.of(home.path("one"), free=True)
    assert "sums:add" in {tool.name for tool in home.engine.fleet.tools(found)}
    assert "sums:add" not in {tool.name for tool in home.engine.fleet.tools()}


def test_fleet_reads_no_folder(store_url, tmp_path):
    engine = silent_engine(store_url, secret=SECRET)
    (tmp_path / "agents.toml").write_text(PARROT)
    made = engine.submit.document(document(cwd=str(tmp_path)))
    ref = ref_of(engine, made.session)
    assert engine.attempts.work(ref, claim(engine, made.session)).definitions is None
    assert "defined_in" not in engine.store.fields(ref)
