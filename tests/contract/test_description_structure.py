"""Only descriptions change in docs/openapi.json: what clients read keeps its name and its type."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
#: docs/openapi.json of an earlier version, without titles and descriptions.
BASELINE = json.loads((HERE / "openapi_structure.json").read_text())
PUBLISHED = json.loads((HERE.parents[1] / "docs" / "openapi.json").read_text())
#: Members of these may be added; a key of theirs is a name, never a keyword of JSON Schema.
NAMES = {"paths", "properties", "schemas", "links", "mapping"}
PROSE = {"description", "summary", "title"}
#: A path may get another method.
METHODS = {"delete", "get", "patch", "post", "put"}
#: Fields of requests that may be left out since; a client that sends them is served as before.
OPTIONAL_SINCE = {"Answers": ("text",)}
#: The pages of diffs and of steps have a field of their own since, and so names of their own.
RENAMED_SINCE = {"Page_DiffView_": "DiffsPage", "Page_StepView_": "StepsPage"}


def structure(value: Any, *, of: str = "") -> Any:
    """The value without its prose, and with the parameters of an operation that has none."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if of in NAMES or k not in PROSE}
        if "operationId" in kept:
            kept.setdefault("parameters", [])
        return {k: structure(v, of=k) for k, v in kept.items()}
    return [structure(one) for one in value] if isinstance(value, list) else value


def changes(before: Any, now: Any, *, of: str = "", at: str = "#") -> Iterator[str]:
    """Each place where `now` differs.

    A new path, method, schema, field, link, enum value, optional parameter or kind of document that
    may be sent is no difference.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        is_free = of in NAMES or "/default" in at  # a default has all fields of its schema
        added = set() if is_free else now.keys() - before.keys() - METHODS
        yield from (f"{at}/{name} was added" for name in sorted(added))
        for name, value in before.items():
            if name not in now:
                yield f"{at}/{name} was removed"
            else:
                yield from changes(value, now[name], of=name, at=f"{at}/{name}")
    elif of == "enum" or (of == "oneOf" and "/requestBody/" in at):
        if not all(one in now for one in before):
            yield f"{at} was {before}, is {now}"
    elif of == "parameters" and isinstance(before, list):
        yield from _changed_parameters(before, now, at)
    elif before != now and not _is_longer_list(before, now, of, at):
        yield f"{at} was {before}, is {now}"


def _is_longer_list(before: Any, now: Any, of: str, at: str) -> bool:
    """Whether a longer list may be sent in a request."""
    return of == "maxItems" and "/Webhook/" in at and now > before


def _changed_parameters(before: list[Any], now: list[Any], at: str) -> Iterator[str]:
    """Compare the parameters of an operation by name; one may be added unless it is required."""
    was, found = _by_name(before), _by_name(now)
    for name, parameter in found.items():
        if name not in was and parameter.get("required"):
            yield f"{at}/{name} was added, and is required"
    for name, parameter in was.items():
        if name not in found:
            yield f"{at}/{name} was removed"
        else:
            yield from changes(parameter, found[name], at=f"{at}/{name}")


def _by_name(parameters: list[Any]) -> dict[str, Any]:
    return {f"{one['in']} {one['name']}": one for one in parameters}


def as_required(published: Any) -> Any:
    """The description in which the fields that have become optional are required."""
    for name, fields in OPTIONAL_SINCE.items():
        schema = published["components"]["schemas"][name]
        schema["required"] = [*schema.get("required", ()), *fields]
        for field in fields:
            schema["properties"][field], nothing = schema["properties"][field]["anyOf"]
            assert nothing == {"type": "null"}
    return published


def without_new_kinds(published: Any) -> Any:
    """The description without what a checker of a request may be or have since."""
    forms = published["components"]["schemas"]["Checker"]["anyOf"][0]["oneOf"]
    forms[:] = [form for form in forms if form["required"] != ["tool"]]
    [first, *_] = BASELINE["components"]["schemas"]["Checker"]["anyOf"][0]["oneOf"]
    for form in forms:
        for name in form["properties"].keys() - first["properties"].keys():
            assert name not in form["required"]
            del form["properties"][name]
    return published


def with_texts_as_inputs(published: Any) -> Any:
    """The description in which the inputs of a flow's run are texts: any JSON is taken since."""
    inputs = published["components"]["schemas"]["FlowRun"]["properties"]["inputs"]
    [name] = inputs["patternProperties"]
    assert inputs["patternProperties"][name] == {"$ref": "#/components/schemas/JsonValue"}
    inputs["patternProperties"][name] = {"maxLength": 200_000, "type": "string"}
    return published


def test_published_description_keeps_its_structure():
    published = structure({name: PUBLISHED[name] for name in BASELINE})
    published = without_new_kinds(with_texts_as_inputs(as_required(published)))
    text = json.dumps(BASELINE)
    for old, new in RENAMED_SINCE.items():
        text = text.replace(old, new)
    before = structure(json.loads(text))
    found = [*changes(before, published)]
    assert not found, "\n".join(found)


def _rename(schemas: Any) -> None:
    schemas["SessionView"]["properties"]["state"] = schemas["SessionView"]["properties"].pop(
        "status"
    )


def _retype(schemas: Any) -> None:
    schemas["SessionView"]["properties"]["id"]["type"] = "integer"


def _close(schemas: Any) -> None:
    schemas["SessionView"]["additionalProperties"] = False


def _require(schemas: Any) -> None:
    schemas["LoopDocument"]["required"].append("label")


@pytest.mark.parametrize("change", [_rename, _retype, _close, _require])
def test_comparison_finds_a_change(change):
    changed = copy.deepcopy(BASELINE)
    change(changed["components"]["schemas"])
    assert [*changes(BASELINE, changed)]


EVENTS = "/v1/sessions/{session}/events"


def _require_parameter(parameters: list[Any]) -> None:
    parameters.append({"in": "query", "name": "tomorrow", "required": True})


def _retype_parameter(parameters: list[Any]) -> None:
    parameters[1]["schema"]["type"] = "string"


def _drop_parameter(parameters: list[Any]) -> None:
    del parameters[1]


@pytest.mark.parametrize("change", [_require_parameter, _retype_parameter, _drop_parameter])
def test_comparison_finds_a_changed_parameter(change):
    changed = copy.deepcopy(BASELINE)
    change(changed["paths"][EVENTS]["get"]["parameters"])
    assert [*changes(BASELINE, changed)]


def test_comparison_permits_an_optional_parameter():
    extended = copy.deepcopy(BASELINE)
    parameter = {"in": "query", "name": "tomorrow", "schema": {"type": "string"}}
    extended["paths"][EVENTS]["get"]["parameters"].append(parameter)
    assert not [*changes(BASELINE, extended)]


def test_comparison_permits_a_kind_of_document_in_requests_alone():
    body = "/v1/sessions", "post", "requestBody", "content", "application/json", "schema"
    extended = copy.deepcopy(BASELINE)
    schema = extended["paths"]
    for name in body:
        schema = schema[name]
    schema["oneOf"].append({"$ref": "#/components/schemas/TomorrowDocument"})
    schema["discriminator"]["mapping"]["tomorrow"] = "#/components/schemas/TomorrowDocument"
    assert not [*changes(BASELINE, extended)]
    answer = extended["components"]["schemas"]["SessionView"]["properties"]["id"]
    before = copy.deepcopy(extended)
    answer["oneOf"] = [{"type": "string"}, {"type": "integer"}]
    assert [*changes(before, extended)]


def _add_field(schemas: Any) -> None:
    schemas["SessionView"]["properties"]["tomorrow"] = {"type": "string"}


def _add_schema(schemas: Any) -> None:
    schemas["TomorrowView"] = {"type": "object"}


def _add_word(schemas: Any) -> None:
    schemas["ReasonCode"]["enum"].append("tomorrow")


@pytest.mark.parametrize("addition", [_add_field, _add_schema, _add_word])
def test_comparison_permits_an_addition(addition):
    extended = copy.deepcopy(BASELINE)
    addition(extended["components"]["schemas"])
    assert not [*changes(BASELINE, extended)]
