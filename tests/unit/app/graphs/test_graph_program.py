"""Properties of compiled graphs: every reference is a need, and the order is that of the needs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.compiler import compile_document
from app.core.program import ITEMS, Program, Step, transitive_needs
from app.errors import InvalidDocument
from leadhand.graphs.documents import GraphDocument
from leadhand.models.references import step_reference

NAMES = st.text(min_size=1, max_size=30).filter(
    lambda name: name.strip() == name and "\0" not in name
)


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    """A graph in which each step uses some of those before it, in shuffled order."""
    names = draw(st.lists(NAMES, min_size=1, max_size=8, unique=True))
    steps: list[dict[str, Any]] = []
    for number, name in enumerate(names):
        step: dict[str, Any] = {"name": name, "tool": "echo", "arguments": {}}
        for earlier in names[:number]:
            written = step_reference(earlier)
            way = draw(st.sampled_from(["", "depends_on", "arguments", "when", "for_each"]))
            if way == "depends_on":
                step["depends_on"] = [*step.get("depends_on", []), earlier]
            elif way == "arguments":
                step["arguments"][earlier] = [{"x": f"text {written}"}]
            elif way:
                step[way] = f"not {written}" if way == "when" else written
        steps.append(step)
    return {"steps": draw(st.permutations(steps))}


def compiled(*steps: dict[str, Any], **more: Any) -> Program:
    return compile_document(GraphDocument.model_validate({"steps": steps, **more}))


def steps_of(program: Program) -> list[Step]:
    return [node for node in program.body if isinstance(node, Step)]


@given(drawn=graphs())
def test_a_step_needs_exactly_what_it_uses(drawn: dict[str, Any]) -> None:
    program = compiled(*drawn["steps"])
    nodes = {str(node.label): node for node in steps_of(program) if node.inputs["tool"] != ITEMS}
    assert list(nodes) == [step["name"] for step in drawn["steps"]]
    ids = {name: node.id for name, node in nodes.items()}
    assert len(set(ids.values())) == len(ids)
    reached = transitive_needs(program.body)
    for step in drawn["steps"]:
        text = json.dumps({**step, "name": ""}, ensure_ascii=False)
        used = {
            other for other in ids
            if json.dumps(step_reference(other), ensure_ascii=False)[1:-1] in text
            or other in step.get("depends_on", ())
        }  # fmt: skip
        node = nodes[step["name"]]
        makers = {one for one in node.needs or () if one not in ids.values()}
        assert set(node.needs or ()) == {ids[name] for name in used} | makers
        assert len(makers) == ("for_each" in step)
        assert {ids[name] for name in used} <= reached[node.id]


def test_a_name_that_can_be_an_id_is_the_id_of_its_own_step() -> None:
    names = ["a b", "2", "a-b-2", "a-b", "step2"]
    program = compiled(*({"name": name, "tool": "echo"} for name in names))
    ids = {str(node.label): node.id for node in steps_of(program)}
    assert len(set(ids.values())) == len(names)
    assert {name for name in names if name in ids.values()} == {"a-b-2", "a-b", "step2"}
    assert [ids[name] for name in ("a-b-2", "a-b", "step2")] == ["a-b-2", "a-b", "step2"]


def test_a_list_that_is_known_needs_no_step() -> None:
    step = {"name": "a", "tool": "echo", "for_each": "${inputs.urls ?? []}"}
    (node,) = steps_of(compiled(step, inputs={"urls": [1, 2]}))
    assert node.for_each == (1, 2)


def test_input_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidDocument) as refused:
        compiled({"name": "a", "tool": "echo"}, inputs={"x": None})
    assert refused.value.field == "inputs.x"
