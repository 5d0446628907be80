"""An operation is declared once: both clients run its script, and show it as their own method."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import typing
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest

from leadhand import AsyncClient, Client
from leadhand.client.transport import Pause, drive, drive_async
from leadhand.contract.calls import Op, Reach, Script
from leadhand.errors import SessionUnknown
from leadhand.models.views.result import ResultView
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import Page

REACH = Reach("http://127.0.0.1:9", "")
#: Runs a script, each step of which is a function that is called, in one of the two ways.
Run = Callable[[Script[Any]], Any]


def run_blocking(script: Script[Any]) -> Any:
    return drive(script, lambda step: step())


def run_in_event_loop(script: Script[Any]) -> Any:
    async def act(step: Callable[[], object]) -> object:
        return step()

    return asyncio.run(drive_async(script, act))


@pytest.fixture(params=[run_blocking, run_in_event_loop])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


def test_script_gets_the_results_of_its_steps_and_pauses(run: Run) -> None:
    def script() -> Generator[Any, Any, list[object]]:
        return [(yield lambda: 1), (yield Pause(0.001)), (yield lambda: 2)]

    assert run(script()) == [1, None, 2]


def test_script_may_catch_what_a_step_raises(run: Run) -> None:
    def script() -> Generator[Any, Any, object]:
        with suppress(ZeroDivisionError):
            yield lambda: 1 / 0
        return (yield lambda: "went on")

    assert run(script()) == "went on"


def test_error_that_a_script_does_not_catch_ends_its_blocks(run: Run) -> None:
    left = []

    def script() -> Generator[Any, Any, None]:
        try:
            yield lambda: 1 / 0
        finally:
            left.append(True)

    with pytest.raises(ZeroDivisionError):
        run(script())
    assert left == [True]


def test_cancelled_pause_ends_the_blocks_of_its_script() -> None:
    left = []

    def script(started: asyncio.Event) -> Generator[Any, Any, None]:
        try:
            started.set()
            yield Pause(60)
        finally:
            left.append(True)

    async def story() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(drive_async(script(started), _never))
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(story())
    assert left == [True]


def _never(step: object) -> Awaitable[object]:
    raise AssertionError(step)


OPERATIONS = [
    name
    for name, _ in inspect.getmembers(AsyncClient, inspect.iscoroutinefunction)
    if not name.startswith("_")
]


@pytest.mark.parametrize("name", OPERATIONS)
def test_both_clients_have_an_operation_with_one_signature_and_docstring(name: str) -> None:
    blocking, coroutine = getattr(Client, name), getattr(AsyncClient, name)
    assert inspect.isfunction(blocking)
    assert not inspect.iscoroutinefunction(blocking)
    assert inspect.getdoc(blocking) == inspect.getdoc(coroutine) is not None
    assert inspect.signature(blocking) == inspect.signature(coroutine)
    assert (blocking.__name__, coroutine.__name__) == (name, name)
    # The result is what the script returns, no `Ask` or `Steps` of it.
    assert not str(inspect.signature(blocking).return_annotation).startswith(("Ask[", "Steps["))
    assert "return" in typing.get_type_hints(blocking)


PLAIN = {
    name: one.operation
    for noun in Client.__mro__
    for name, one in vars(noun).items()
    if isinstance(one, Op) and one.operation is not None
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_operation_has_the_arguments_and_the_result_of_its_declaration(name: str) -> None:
    operation, method = PLAIN[name], getattr(Client, name)
    _, *arguments = inspect.signature(method).parameters
    fields = {*arguments[len(operation.parameters) :]} - {"seen", "idempotency_key"}
    model = operation.body or operation.query
    assert fields <= {*model.model_fields} if model else not fields
    result: Any = typing.get_type_hints(method)["return"]
    bodies = [body for one in operation.responses for body in one.body.values()]
    (item,) = typing.get_args(result) or [None]
    whole = result if item is None else Page.__class_getitem__(item)
    assert whole in bodies if bodies and name != "ping" else result is type(None)


def test_signature_can_be_evaluated() -> None:
    hints = typing.get_type_hints(AsyncClient.wait)
    assert hints == {"session": str, "timeout": float | None, "return": ResultView}
    signature = inspect.signature(Client.session, eval_str=True)
    assert signature.return_annotation is SessionView


def test_operation_of_a_client_is_a_bound_method() -> None:
    with Client(REACH.url) as client:
        assert client.session == client.session
        assert client.session.__self__ is client  # type: ignore[attr-defined]
        assert list(inspect.signature(client.session).parameters) == ["session"]
        with pytest.raises(SessionUnknown):
            Client.session(client, "no id")


def test_double_of_a_client_has_its_signatures() -> None:
    blocking, coroutine = create_autospec(Client), create_autospec(AsyncClient)
    with pytest.raises(TypeError, match="missing a required argument: 'session'"):
        blocking.session(blocking)
    assert isinstance(coroutine.session, AsyncMock)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_type_checker_of_a_user_knows_the_results_of_both_clients(tmp_path: Path) -> None:
    """`make types` checks the same program with the options of this project."""
    program = Path(__file__).with_name("typed_program.py")
    mypy = (sys.executable, "-P", "-m", "mypy", "--config-file=", "--strict", program)
    done = subprocess.run(mypy, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
