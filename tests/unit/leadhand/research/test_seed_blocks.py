"""The code blocks of the seed run, and what they declare is what `leadhand.research` has."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import leadhand.research as ours

TEXT = Path(__file__).with_name("data").joinpath("seed_classes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def run_blocks() -> dict[str, Any]:
    """The names that the blocks define; each block runs with those of the others at hand."""
    module = ModuleType("seed")
    sys.modules["seed"] = module  # dataclasses look their module up
    found = vars(module)
    found |= {"logging": logging, "StateManager": object, "WorkflowExecutor": object}
    # Values and errors first: the classes of the other blocks name them in their signatures.
    for block in sorted(BLOCKS, key=is_of_classes):
        exec(compile(block, "seed", "exec"), found)
    return found


def is_of_classes(block: str) -> bool:
    return "(Enum)" not in block and "(AgentError)" not in block


SEED = run_blocks()
CLASSES = {
    name: value
    for name, value in SEED.items()
    if inspect.isclass(value) and value.__module__ == "seed"
}


def test_there_are_the_classes_that_the_seed_names():
    assert len(BLOCKS) == 5
    assert {"ResearchAgent", "StateManager", "WorkflowExecutor", "WorkflowStep"} <= set(CLASSES)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_class_has_the_fields_methods_and_defaults_of_the_seed(name: str):
    seed, own = CLASSES[name], getattr(ours, name)
    if issubclass(seed, Enum):
        own_values = {one.name: one.value for one in own}
        assert {one.name: one.value for one in seed}.items() <= own_values.items()
    elif issubclass(seed, Exception):
        assert [one.__name__ for one in seed.__mro__[:2]][1] in {
            one.__name__ for one in own.__mro__
        }
    elif dataclasses.is_dataclass(seed):
        assert fields_of(seed) == fields_of(own)[: len(fields_of(seed))]
    else:
        for method, function in inspect.getmembers(seed, inspect.isfunction):
            if method == "__init__" or not method.startswith("_"):
                compare(function, getattr(own, method))


def fields_of(found: type) -> list[tuple[str, Any]]:
    return [
        (one.name, one.default_factory if one.default is dataclasses.MISSING else one.default)
        for one in dataclasses.fields(found)
    ]


def compare(seed: Any, own: Any) -> None:
    """A call that fits the seed's method fits ours, and both are asynchronous or not."""
    assert inspect.iscoroutinefunction(seed) == inspect.iscoroutinefunction(own)
    theirs = list(inspect.signature(seed).parameters.values())
    parameters = list(inspect.signature(own).parameters.values())
    for expected, found in zip(theirs, parameters, strict=False):
        assert (expected.name, expected.default) == (found.name, found.default)
    assert len(parameters) >= len(theirs)
    assert all(one.default is not one.empty for one in parameters[len(theirs) :])


def test_id_has_the_form_of_the_seed(tmp_path: Path):
    agent = ours.ResearchAgent({}, ours.AgentConfig(state_dir=str(tmp_path)))
    assert re.fullmatch(r"\d{8}_\d{6}_[0-9a-f]{8}", agent._generate_session_id())
