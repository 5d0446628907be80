"""Tools that users write, on real workers: found, refused where nobody has them, and used."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.errors import InvalidDocument
from leadhand.graphs.documents import GraphDocument
from leadhand.models.views.fleet import ToolHere
from tests.fleet import Fleet
from tests.flows import flow, loop
from tests.redis_users import of_broker
from tests.waiting import wait_until
from workers.host.inventory import Inventory

CODE = '''
from pathlib import Path

def add(numbers: list[int]) -> int:
    """Adds up."""
    return sum(numbers)

def note(what: str, times: int = 1) -> dict:
    with Path("notes.txt").open("a") as notes:
        notes.write(f"{what}\\n" * times)
    return {"lines": len(Path("notes.txt").read_text().splitlines())}
'''
DONE = 'grep -q -c . notes.txt && printf \'{"answer": "yes"}\''


def tool(name: str, *, label: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": name, **({"label": label} if label else {}), **more}


@pytest.fixture
def fleet(tmp_path: Path, store_url: str) -> Iterator[Fleet]:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/sums.py").write_text(CODE)
    (tmp_path / "work").mkdir()
    broker = of_broker(store_url)
    env = {"TOOLS": tmp_path / "tools", "AGENTS": tmp_path / "agents.toml"}
    env["FLOWS"] = tmp_path / "flows"
    fleet = Fleet(
        tmp_path, store_url, broker, lease_s=5, **{f"LEADHAND_{n}": str(p) for n, p in env.items()}
    )
    yield fleet
    fleet.close()


def run(fleet: Fleet, *steps: dict[str, Any]) -> str:
    return fleet.engine.submit.document(flow(*steps, cwd=str(fleet.folder / "work"))).session


@pytest.mark.timeout(60)
def test_a_flow_uses_the_tools_of_its_workers(fleet: Fleet) -> None:
    fleet.worker("one")
    session = run(
        fleet,
        tool("sums:add", label="add", arguments={"numbers": ["1", 2]}),
        loop(
            tool("sums:note", arguments={"what": "${steps.add}", "times": "2"}, quick=True),
            {"type": "break", "command": DONE, "breakOn": "yes"},
        ),
        tool("sums:note", label="last", arguments={"what": "end"}),
        tool("echo", label="all", arguments={"lines": "${steps.last}"}),
    )
    result = fleet.ended(session)
    assert result.status == "completed", result
    assert (fleet.folder / "work/notes.txt").read_text() == "3\n3\nend\n"
    found = fleet.engine.store.outcomes(fleet.engine.registry.ref(session))
    assert json.loads(found["all"])["value"] == {"lines": '{"lines": 3}'}


@pytest.mark.timeout(60)
def test_a_tool_that_nobody_has_is_refused_until_its_file_is_there(fleet: Fleet) -> None:
    fleet.worker("one")
    with pytest.raises(InvalidDocument, match="no worker has this tool; known: echo, noop, sums:"):
        run(fleet, tool("late:hello"))
    (fleet.folder / "tools/late.py").write_text("def hello(): return 'hello'")
    wait_until(lambda: any(t.name == "late:hello" for t in fleet.engine.fleet.tools()), timeout=20)
    result = fleet.ended(run(fleet, tool("late:hello")))
    assert result.status == "completed", result


@pytest.mark.timeout(60)
def test_a_flow_whose_tool_fails_has_failed_with_its_words(fleet: Fleet) -> None:
    fleet.worker("one")
    result = fleet.ended(run(fleet, tool("sums:add", arguments={"numbers": "many"})))
    assert result.status == "failed"
    assert "argument 'numbers': it is 'many'; it should be a valid list" in str(result.reason)


@pytest.mark.timeout(60)
def test_a_worker_goes_on_to_tell_of_itself_after_any_error(fleet: Fleet) -> None:
    looks = iter(range(1_000_000))

    def tools() -> tuple[ToolHere, ...]:
        if next(looks) == 0:
            raise RecursionError("a file that nobody thought of")
        return (ToolHere(name="sums:add"),)

    inventory = Inventory(fleet.engine, name="one", queues=("q",), agents=tuple, tools=tools)
    inventory.start()
    try:
        wait_until(
            lambda: any(t.name == "sums:add" for t in fleet.engine.fleet.tools()), timeout=20
        )
    finally:
        inventory.stop()


@pytest.mark.timeout(60)
def test_a_command_of_tools_toml_is_called_in_a_graph_and_in_a_flow(fleet: Fleet) -> None:
    entry = "command = ['printf', '--', '%s-', '{parts}']\narguments = {parts = 'array'}\n"
    (fleet.folder / "tools.toml").write_text(f"[tools.join]\n{entry}")
    fleet.worker("one")
    steps = [
        {"name": "a", "tool": "join", "arguments": {"parts": ["x", 1]}},
        {"name": "b", "tool": "join", "arguments": {"parts": ["${a}", "-y"]}},
    ]
    given = {"kind": "graph", "steps": steps, "cwd": str(fleet.folder / "work")}
    document = GraphDocument.model_validate(given)
    session = fleet.engine.submit.document(document).session
    assert fleet.ended(session).status == "completed"
    found = fleet.engine.store.outcomes(fleet.engine.registry.ref(session))
    assert json.loads(found["b"])["value"] == "x-1---y-"
    flowed = fleet.ended(run(fleet, tool("join", label="j", arguments={"parts": ["z"]})))
    assert flowed.status == "completed", flowed


def graph(fleet: Fleet, *steps: dict[str, Any]) -> GraphDocument:
    given = {"kind": "graph", "steps": steps, "cwd": str(fleet.folder / "work")}
    return GraphDocument.model_validate(given)


@pytest.mark.timeout(80)
def test_agents_and_flows_are_tools_of_a_graph(fleet: Fleet) -> None:
    agent = (
        """[agents.shouter]\ncommand = ["sh", "-c", 'echo "$1" | tr a-z A-Z', "sh", "{prompt}"]\n"""
    )
    (fleet.folder / "agents.toml").write_text(agent)
    (fleet.folder / "flows").mkdir()
    ask = {"type": "llm", "agentType": "shouter", "identifier": "one"}
    message = {"role": "user", "content": ["hello ${inputs.name}"]}
    greet = {"inputs": {"name": None}, "steps": [{**ask, "messages": [message]}]}
    (fleet.folder / "flows/greet.json").write_text(json.dumps(greet))
    fleet.worker("one")
    names = {tool.name: tool for tool in fleet.engine.fleet.tools()}
    assert names["agent:shouter"].kind == "agent"
    assert [p.name for p in names["flow:greet"].parameters] == ["name"]
    with pytest.raises(InvalidDocument, match="requires this input"):
        fleet.engine.submit.document(graph(fleet, {"name": "a", "tool": "flow:greet"}))
    with pytest.raises(InvalidDocument, match="requires this argument"):
        fleet.engine.submit.document(graph(fleet, {"name": "a", "tool": "agent:shouter"}))
    with pytest.raises(InvalidDocument, match="no worker has this tool"):
        fleet.engine.submit.document(graph(fleet, {"name": "a", "tool": "agent:other"}))
    document = graph(
        fleet,
        {"name": "a", "tool": "agent:shouter", "arguments": {"prompt": "quiet"}},
        {"name": "b", "tool": "flow:greet", "arguments": {"name": "${a}"}},
        {"name": "c", "tool": "echo", "arguments": {"a": "${a}", "b": "${b}"}},
    )
    session = fleet.engine.submit.document(document).session
    result = fleet.ended(session)
    assert result.status == "completed", result
    found = fleet.engine.store.outcomes(fleet.engine.registry.ref(session))
    seen = json.loads(found["c"])["value"]
    assert seen["a"] == "QUIET"
    assert "HELLO QUIET" in seen["b"]


@pytest.mark.timeout(80)
def test_step_of_a_graph_runs_a_loop_for_each_item_and_returns_what_its_agent_wrote(
    fleet: Fleet,
) -> None:
    agent = (
        """[agents.shouter]\ncommand = ["sh", "-c", 'echo "$1" | tr a-z A-Z', "sh", "{prompt}"]\n"""
    )
    (fleet.folder / "agents.toml").write_text(agent)
    fleet.worker("one")
    doer = {"agent": "shouter"}
    # The shell has no such variable: a reference in a command would be filled in.
    mend = {"kind": "loop", "task": "Mend ${item}", "checkers": ['[ -z "${item}" ]'], "doer": doer}
    phase = {"name": "p", "task": "Sum up: ${mend}", "checkers": ["true"]}
    sum_up = {"kind": "workflow", "name": "sum", "phases": [phase], "doer": doer}
    unknown = {"name": "a", "session": {**mend, "doer": {"agent": "other"}}, "for_each": [1]}
    with pytest.raises(InvalidDocument) as refused:
        fleet.engine.submit.document(graph(fleet, unknown))
    assert refused.value.field == "steps[0].session.doer.agent"
    document = graph(
        fleet,
        {"name": "find", "tool": "echo", "arguments": {"all": ["$${x}.py", "b.py"]}},
        {"name": "mend", "session": mend, "for_each": "${find.all}", "at_once": 1},
        {"name": "sum", "session": sum_up},
        {"name": "last", "tool": "echo", "arguments": {"mend": "${mend}", "sum": "${sum}"}},
    )
    session = fleet.engine.submit.document(document).session
    result = fleet.ended(session)
    assert result.status == "completed", result
    found = fleet.engine.store.outcomes(fleet.engine.registry.ref(session))
    seen = json.loads(found["last"])["value"]
    first, second = seen["mend"]
    assert "MEND ${X}.PY" in first
    assert "MEND B.PY" in second
    assert "SUM UP" in seen["sum"]


@pytest.mark.timeout(80)
def test_loop_that_is_never_accepted_fails_the_step_of_its_graph_with_its_reason(
    fleet: Fleet,
) -> None:
    fleet.worker("one")
    never = {"kind": "loop", "task": "t", "checkers": ["echo no; false"], "max_iterations": 1,
             "doer": {"command": "true"}}  # fmt: skip
    document = graph(
        fleet,
        {"name": "mend", "session": never, "critical": False},
        {"name": "last", "tool": "echo", "arguments": {"why": "${mend.error}"}},
        {"name": "end", "session": never, "depends_on": ["last"]},
    )
    result = fleet.ended(fleet.engine.submit.document(document).session)
    assert result.status == "failed"
    reason, texts = result.reason, []
    while reason is not None:
        texts.append(reason.text)
        reason = reason.beneath
    assert "child session" in " ".join(texts)
    assert "max_iterations" in texts[-1] or "no" in texts[-1], texts


@pytest.mark.timeout(80)
def test_loop_of_a_step_with_a_folder_of_its_own_returns_what_its_doer_wrote(fleet: Fleet) -> None:
    fleet.worker("one")
    loop = {"kind": "loop", "task": "t", "checkers": ["test -f new"], "worktree": True,
            "doer": {"command": "touch new; echo made"}}  # fmt: skip
    more = {"cwd": str(fleet.folder / "work")}
    steps = [{"name": "make", "session": loop}, {"name": "last", "tool": "echo",
             "arguments": {"said": "${make}"}}]  # fmt: skip
    document = GraphDocument.model_validate({"steps": steps, **more})
    session = fleet.engine.submit.document(document).session
    assert fleet.ended(session).status == "completed"
    found = fleet.engine.store.outcomes(fleet.engine.registry.ref(session))
    assert json.loads(found["last"])["value"] == {"said": "made"}
    assert not (fleet.folder / "work/new").exists()


#: An MCP server for tests, with the tools `add`, `refuse` and others.
SHOP = Path(__file__).parents[2] / "unit/workers/declared/mcp_shop.py"


@contextmanager
def shop_at(transport: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The entry of an MCP server for tools.toml, and what its worker needs to reach it."""
    if transport == "stdio":
        yield f"command = {json.dumps(sys.executable)}\nargs = ['-P', '{SHOP}']\n", {}
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, "-P", str(SHOP), str(port)]) as server:
        try:
            wait_until(lambda: _listens(port), timeout=30)
            yield (
                f'url = "http://127.0.0.1:{port}/mcp"\n',
                {"LEADHAND_TOOL_HOSTS": f"127.0.0.1:{port}"},
            )
        finally:
            server.kill()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_tools_of_an_mcp_server_are_steps_of_a_graph_and_of_a_flow(
    fleet: Fleet, transport: str
) -> None:
    with shop_at(transport) as (entry, needs):
        (fleet.folder / "tools.toml").write_text(f"[mcp.shop]\n{entry}")
        fleet.worker("one", **needs)
        _use_shop(fleet)


def _use_shop(fleet: Fleet) -> None:
    wait_until(lambda: "shop.add" in {tool.name for tool in fleet.engine.fleet.tools()}, timeout=60)
    with pytest.raises(InvalidDocument, match="first"):
        fleet.engine.submit.document(
            graph(fleet, {"name": "a", "tool": "shop.add", "arguments": {"first": "x"}})
        )
    document = graph(
        fleet,
        {"name": "a", "tool": "shop.add", "arguments": {"first": 3, "second": 4}},
        {"name": "each", "tool": "shop.add", "for_each": [1, 2],
         "arguments": {"first": "${a.result}", "second": "${item}"}},
        {"name": "bad", "tool": "shop.refuse", "critical": False, "arguments": {"why": "sold out"}},
        {"name": "all", "tool": "echo", "arguments": {"each": "${each}", "bad": "${bad}"}},
    )  # fmt: skip
    session = fleet.engine.submit.document(document).session
    assert fleet.ended(session, timeout=60).status == "completed"
    found = fleet.engine.store.outcomes(fleet.engine.registry.ref(session))
    seen = json.loads(found["all"])["value"]
    assert [one["result"] for one in seen["each"]] == [8, 9]
    assert "sold out" in seen["bad"]["error"]
    step = tool("shop.add", label="sum", arguments={"first": 1})
    assert fleet.ended(run(fleet, step), timeout=60).status == "completed"
