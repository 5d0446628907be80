"""The longest result of a function, and what is said about a longer one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.core.outcomes import Outcome
from app.core.program import Action
from leadhand.functions.runner import RESULT_BYTES
from workers.processes.warm_pool import Warm
from workers.registry.tools import ToolCatalogue

CODE = """
def make(size: int):
    print("\\N{GRINNING FACE}" * 70_000)  # the output comes on top of the result
    return "x" * (size - 2)

def fail(size: int):
    raise ValueError("x" * size)

def judge(work, iteration):
    return {"verdict": "accept", "feedback": "x" * 17_000_000}
"""
QUICK = pytest.mark.parametrize("quick", [False, True])


@pytest.fixture
def use(body: Callable[..., Outcome], tmp_path: Path) -> Iterator[Callable[..., Outcome]]:
    """Calls a tool of a folder of tools."""
    folder, warm = tmp_path / "tools", Warm()
    folder.mkdir()
    (folder / "long.py").write_text(CODE)

    def call(tool: str, size: int, *, quick: bool) -> Outcome:
        inputs = {"tool": tool, "arguments": {"size": size}, "quick": quick}
        return body(Action.TOOL, inputs, shelf=ToolCatalogue([folder]), warm=warm, timeout_s=60.0)

    yield call
    warm.close()


@QUICK
def test_the_longest_result_of_a_function_is_taken(
    use: Callable[..., Outcome], quick: bool
) -> None:
    done = use("long:make", RESULT_BYTES, quick=quick)
    assert isinstance(done.value, str)
    assert len(done.value) == RESULT_BYTES - 2


@QUICK
@pytest.mark.parametrize("size", [RESULT_BYTES + 1, 40_000_000])
def test_a_longer_result_fails_with_its_size_the_limit_and_the_fix(
    use: Callable[..., Outcome], quick: bool, size: int
) -> None:
    failed = use("long:make", size, quick=quick)
    assert failed.reason is not None
    assert failed.reason.text == (
        f"tool 'long:make' raised: it returned {size:,} bytes as JSON, more than 16,777,216;"
        " write a file and return its path"
    )


@QUICK
def test_an_error_that_is_too_long_is_said_to_be(use: Callable[..., Outcome], quick: bool) -> None:
    failed = use("long:fail", RESULT_BYTES, quick=quick)
    assert failed.reason is not None
    assert "bytes as JSON, more than 16,777,216; raise a shorter one" in failed.reason.text


def test_a_checker_with_a_longer_result_has_failed_in_the_same_way(
    body: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "work" / "judging.py").write_text(CODE)
    inputs = {"checker": {"callable": "judging:judge"}, "work": "w", "iteration": 1}
    failed = body(Action.CHECK, inputs, timeout_s=60.0)
    assert "bytes as JSON, more than 16,777,216" in failed.model_dump_json()
