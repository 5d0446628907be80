"""A token without exec:free uses what its user has approved of a folder, however it is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from api import create_app
from app.core.addresses import SessionRef
from app.core.states import SessionStatus
from app.security.api_tokens import Scope
from app.security.signatures import BODY_SCOPES, Caller, mint
from app.settings import Settings
from leadhand.models.approvals import approval_key, digest_of, text_of_folder
from tests.session_driving import add_worker, claim, end
from tests.silent_engine import OPERATOR, SECRET, silent_engine
from tests.waiting import wait_until
from workers.registry.registries import Registries
from workers.tool_servers.folder_reports import FolderReporter

S = "/v1/sessions"
FLOW = {"description": "d", "steps": [{"type": "check", "checker": "touch ran"}]}
LOOP = {"kind": "loop", "task": "t", "checkers": ["agent: look"]}
GRAPH = {"kind": "graph", "name": "g"}
BY_FLOW = {
    "kind": "flow", "name": "by", "description": "d",
    "steps": [{"type": "subflow", "flowNames": ["hello"]}],
}  # fmt: skip


class Services:
    """Embedded services, a worker's reports, and a folder that defines one of each kind."""

    def __init__(self, url: str, root: Path) -> None:
        self.folder, self.store = root / "clone", root / "trusted.json"
        self.write("agents.toml", '[agents.parrot]\ncommand = ["cat"]\n')
        self.write("tools.toml", '[tools.count]\ncommand = ["wc"]\n')
        self.write("flows/hello.json", json.dumps(FLOW))
        self.write("tools/sums.py", "def add(a: int) -> int:\n    return a\n")
        operators = root / "operator.toml"
        operators.write_text('[agents.mine]\ncommand = ["cat"]\n')
        self.engine = silent_engine(
            url,
            secret=SECRET,
            agents=(operators,),
            folder_definitions=("agents", "flows", "tools"),
            approvals=self.store,
        )
        add_worker(self.engine, "w1")
        registries = Registries(self.engine.settings, root / "servers")
        self.reporter = FolderReporter(self.engine, registries, worker="w1")
        self.app = create_app(Settings(api_token=OPERATOR, secret=SECRET), self.engine)
        self.client: FlaskClient = self.app.test_client()
        few = frozenset({Scope.READ, Scope.SUBMIT, Scope.CONTROL})
        self.limited = self.engine.tokens.create("few", few).token

    def write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def approve(self) -> None:
        """As `leadhand trust --all` does."""
        files = [self.folder / name for name in ("agents.toml", "tools.toml")]
        texts = {file: file.read_text() for file in files}
        texts |= {one: text_of_folder(one) for one in map(self.folder.joinpath, ("flows", "tools"))}
        digests = {approval_key(path): digest_of(text) for path, text in texts.items()}
        self.store.write_text(json.dumps(digests))

    def post(self, path: str, body: object, token: str, folder: Path | None = None) -> TestResponse:
        headers = {"Authorization": f"Bearer {token}"}
        if folder is not None:
            headers["Leadhand-Folder"] = quote(str(folder))
        return self.client.post(path, json=body, headers=headers)

    def submit(self, token: str, **document: Any) -> str:
        made = self.post(S, {**LOOP, "cwd": str(self.folder), **document}, token)
        assert made.status_code == 202, made.text
        return str(made.json and made.json["id"])


@pytest.fixture
def services(store_url: str, tmp_path: Path) -> Iterator[Services]:
    services = Services(store_url, tmp_path)
    services.reporter.start()
    yield services
    services.reporter.stop()
    services.app.fanout.close()


PARROT = {**LOOP, "doer": {"agent": "parrot"}}


def graph(tool: str, **arguments: object) -> dict[str, object]:
    return {**GRAPH, "steps": [{"name": "one", "tool": tool, "arguments": arguments}]}


def again(verb: str) -> Callable[[Services, str], TestResponse]:
    """Asks for another run of a session of the operator's."""

    def ask(services: Services, token: str) -> TestResponse:
        session = services.submit(OPERATOR, doer={"agent": "parrot"})
        end(services.engine, session, "stopped")
        more = {"agent": "parrot", "folder": "as-is"} if verb == "fork" else {}
        return services.post(f"{S}/{session}/{verb}", more, token)

    return ask


WAYS: dict[str, Callable[[Services, str], TestResponse]] = {
    "agent by cwd": lambda s, t: s.post(S, {**PARROT, "cwd": str(s.folder)}, t),
    "agent by header": lambda s, t: s.post(S, PARROT, t, s.folder),
    "batch": lambda s, t: s.post(f"{S}/batch", {"items": [{"document": PARROT}]}, t, s.folder),
    "function": lambda s, t: s.post(S, graph("sums:add", a=1), t, s.folder),
    "declared tool": lambda s, t: s.post(S, graph("count"), t, s.folder),
    "flow as a tool": lambda s, t: s.post(S, graph("flow:hello"), t, s.folder),
    "flow by header": lambda s, t: s.post("/v1/flows/hello/runs", {}, t, s.folder),
    "flow by folder": lambda s, t: s.post(
        "/v1/flows/hello/runs", {"working_folder": str(s.folder)}, t
    ),
    "subflow": lambda s, t: s.post(S, BY_FLOW, t, s.folder),
    "plan": lambda s, t: s.post(
        S,
        {
            "kind": "plan", "request": "r", "agent": "parrot", "doer": {"agent": "parrot"},
            "checkers": ["agent: look"], "cwd": str(s.folder),
        },
        t,
    ),
    "rerun": again("rerun"),
    "fork": again("fork"),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_definitions_of_a_folder_need_an_approval_or_exec_free(
    services: Services, way: str
) -> None:
    ask = WAYS[way]
    refused = ask(services, services.limited)
    assert refused.status_code in (409, 422), refused.text
    assert f"`leadhand trust {services.folder}" in refused.text
    assert ask(services, OPERATOR).status_code == 202, "who may bring commands needs no approval"
    services.approve()
    wait_until(lambda: ask(services, services.limited).status_code == 202)
    for name in ("agents.toml", "tools.toml", "flows/hello.json", "tools/sums.py"):
        services.write(name, (services.folder / name).read_text() + "\n")
    wait_until(lambda: ask(services, services.limited).status_code in (409, 422))


def test_hint_for_a_flow_that_is_not_approved_names_the_command_that_approves(
    services: Services,
) -> None:
    refused = services.post("/v1/flows/hello/runs", {}, services.limited, services.folder).json
    assert refused is not None
    assert refused["detail"].endswith(
        "hello.json: steps.0.checker.command: needs the scope 'exec:free'"
    )
    assert f"`leadhand trust {services.folder} --all`" in refused["hint"]
    services.write("flows/hello.json", "{")
    broken = services.post("/v1/flows/hello/runs", {}, services.limited, services.folder).json
    assert broken is not None
    assert broken["hint"] == "mend the file"


def test_check_says_what_the_token_may_not_run(services: Services) -> None:
    for document in (BY_FLOW, graph("flow:hello")):
        checked = services.post("/v1/flows/validate", document, services.limited, services.folder)
        assert "needs the scope 'exec:free'" in checked.text
        fine = services.post("/v1/flows/validate", document, OPERATOR, services.folder)
        assert '"valid":true' in fine.text, fine.text


def test_flow_without_commands_needs_no_approval(services: Services) -> None:
    services.write(
        "flows/hello.json",
        '{"description": "d", "steps": [{"type": "tool", "tool": "echo", "arguments": {}}]}',
    )
    ran = services.post("/v1/flows/hello/runs", {}, services.limited, services.folder)
    assert ran.status_code == 202, ran.text


def test_body_of_a_limited_session_uses_no_more_than_its_session(services: Services) -> None:
    session = services.submit(services.limited, doer={"agent": "mine"})
    grant = claim(services.engine, session)
    ref = services.engine.registry.ref(session)
    assert not services.engine.attempts.work(ref, grant).is_free
    body = mint(Caller(session, grant.address, grant.fence, BODY_SCOPES), secret=SECRET)
    for refused in (
        services.post(S, PARROT, body),
        services.post("/v1/flows/hello/runs", {}, body),
        services.post(S, graph("sums:add", a=1), body),
        services.post(S, graph("flow:hello"), body, services.folder),
    ):
        assert refused.status_code in (409, 422), refused.text
        assert "leadhand trust" in refused.text


def test_body_lists_the_agents_of_its_session_only(services: Services, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    doer = {"command": "true"}
    session = services.submit(OPERATOR, doer=doer, checkers=["true"], cwd=str(other))
    grant = claim(services.engine, session)
    ref = services.engine.registry.ref(session)
    assert services.engine.attempts.work(ref, grant).is_free
    body = mint(Caller(session, grant.address, grant.fence, BODY_SCOPES), secret=SECRET)
    headers = {"Authorization": f"Bearer {body}", "Leadhand-Folder": quote(str(services.folder))}
    listed = services.client.get("/v1/agents", headers=headers)
    assert listed.status_code == 200, listed.text
    assert "parrot" not in listed.text
    query = {"folder": str(services.folder)}
    assert services.client.get("/v1/agents", headers=headers, query_string=query).status_code == 403


def test_resume_of_a_limited_session_takes_over_approved_files_only(services: Services) -> None:
    services.approve()
    session = str(wait_until(lambda: _made(services)))
    end(services.engine, session, "stopped")
    services.write("agents.toml", '[agents.parrot]\ncommand = ["evil"]\n')
    ref = services.engine.registry.ref(session)
    resumed = services.post(f"{S}/{session}/resume", {}, OPERATOR)
    assert resumed.status_code == 202, resumed.text
    mark = services.engine.store.fields(ref)["definitions"]
    definitions = services.engine.registry.definitions(ref, mark)
    assert definitions is not None
    assert definitions.approved_only, "also where another one resumes it"
    worker = Registries(services.engine.settings, services.store).of(definitions)
    assert "parrot" in worker.agents.current().broken
    tools = services.folder / "tools"
    assert list(worker.shelf.folders) == [tools]
    services.write("tools/sums.py", "def add(a: int) -> int:\n    return 2\n")
    assert list(worker.shelf.folders) == [], "a body of the session may have changed it"


RESUMES: dict[str, Callable[[Services, str, str], TestResponse]] = {
    "resume": lambda s, one, token: s.post(f"{S}/{one}/resume", {}, token),
    "retry": lambda s, one, token: s.post(f"{S}/{one}/retry", {"step": "do"}, token),
    "bulk": lambda s, one, token: s.post(
        f"{S}/bulk", {"verb": "resume", "filter": {"status": ["stopped"]}, "dry_run": False}, token
    ),
}


@pytest.mark.parametrize("way", RESUMES)
def test_limited_token_resumes_a_session_with_the_definitions_that_it_has_or_approved_ones(
    services: Services, way: str
) -> None:
    session = services.submit(OPERATOR, doer={"agent": "parrot"})
    ref = services.engine.registry.ref(session)

    def command_after(text: str, token: str, *, approved: bool = False) -> str:
        end(services.engine, session, "failed" if way == "retry" else "stopped")
        services.write("agents.toml", f'[agents.parrot]\ncommand = ["{text}"]\n')
        if approved:
            services.approve()
        resumed = RESUMES[way](services, session, token)
        assert resumed.status_code in (200, 202), resumed.text
        assert services.engine.queries.session(session).status == "active", resumed.text
        return agents_of(services, ref)

    assert "evil" not in command_after("evil", services.limited)
    assert "mended" in command_after("mended", OPERATOR)
    assert "approved" in command_after("approved", services.limited, approved=True)


def test_child_that_follows_its_parent_takes_over_what_its_parent_has(services: Services) -> None:
    session = services.submit(OPERATOR, doer={"agent": "parrot"})
    grant = claim(services.engine, session)
    body = mint(Caller(session, grant.address, grant.fence, BODY_SCOPES), secret=SECRET)
    made = services.post(S, PARROT, body).json
    assert made is not None
    child = services.engine.registry.ref(str(made["id"]))
    end(services.engine, child.id, "stopped")
    services.write("agents.toml", '[agents.parrot]\ncommand = ["evil"]\n')
    above = services.engine.registry.ref(session)
    services.engine.control.follow(child, "resume", above, [SessionStatus.ACTIVE])
    assert services.engine.queries.session(child.id).status == "active"
    assert agents_of(services, child) == agents_of(services, above)


def agents_of(services: Services, ref: SessionRef) -> str:
    mark = services.engine.store.fields(ref)["definitions"]
    definitions = services.engine.registry.definitions(ref, mark)
    assert definitions is not None
    return definitions.agents


def _made(services: Services) -> str | None:
    made = services.post(S, {**PARROT, "cwd": str(services.folder)}, services.limited)
    return str(made.json["id"]) if made.status_code == 202 and made.json else None


def test_limited_token_takes_no_other_folder_than_that_of_its_work(
    services: Services, tmp_path: Path
) -> None:
    """An approved program may be a path, which is that of another folder there."""
    services.approve()
    other = tmp_path / "other"
    other.mkdir()
    document = {**PARROT, "cwd": str(other)}
    wait_until(lambda: _made(services))
    refused = services.post(S, document, services.limited, services.folder)
    assert refused.status_code == 422
    assert services.post(S, document, OPERATOR, services.folder).status_code == 202
