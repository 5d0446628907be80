"""Forms of questions: which are valid, and which answers fit them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from leadhand.models.forms import Accepted, AnswerRules, Form, GivenAnswer, Unfit, fit

FIELDS: dict[str, Any] = {
    "title": {"type": "string", "minLength": 2, "maxLength": 10},
    "notes": {"type": "string", "format": "multiline"},
    "severity": {"type": "string", "enum": ["low", "high"], "default": "low"},
    "risk": {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.1},
    "count": {"type": "integer", "default": 3},
    "sure": {"type": "boolean"},
    "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 2},
    "owner": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "mail": {"type": "string"}},
        "required": ["name"],
    },
}


def rules(*required: str, **more: Any) -> AnswerRules:
    form = {"type": "object", "properties": FIELDS, "required": required}
    return AnswerRules.model_validate({"form": form, **more})


def fits(asked: AnswerRules, **given: Any) -> Accepted:
    found = fit(asked, GivenAnswer(**given))
    assert isinstance(found, Accepted), found
    return found


def unfit(asked: AnswerRules, **given: Any) -> dict[str, Unfit]:
    found = fit(asked, GivenAnswer(**given))
    assert isinstance(found, list), found
    assert len({one.field for one in found}) == len(found)
    return {one.field: one for one in found}


def test_fields_that_are_left_out_get_their_defaults() -> None:
    found = fits(rules("title"), fields={"title": "Moby"})
    assert found.value == {"fields": {"title": "Moby", "severity": "low", "count": 3}}
    assert found.text == "title: Moby\nseverity: low\ncount: 3"


def test_every_kind_of_field_accepts_its_values() -> None:
    fields = {
        "title": "Moby", "notes": "one\ntwo", "severity": "high", "risk": 0.3, "count": 2.0,
        "sure": False, "tags": ["a", "c"], "owner": {"name": "me"},
    }  # fmt: skip
    found = fits(rules(*FIELDS), fields=fields)
    assert found.value == {"fields": fields}
    assert "count: 2\n" in found.text
    assert "sure: false\ntags: a, c\nowner.name: me" in found.text


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("title", "M", "it should have at least 2 characters"),
        ("title", "M" * 11, "it should have at most 10 characters"),
        ("title", 7, "it should be a text"),
        ("notes", "M" * 20_001, "it should have at most 20000 characters"),
        ("severity", "middle", "it should be one of low, high"),
        ("severity", ["low"], "it should be a text"),
        ("risk", "0.5", "it should be a number"),
        ("risk", True, "it should be a number"),
        ("risk", float("nan"), "it should be a finite number"),
        ("risk", 10**400, "it should be a finite number"),
        ("risk", -0.1, "it should be greater than or equal to 0"),
        ("risk", 1.1, "it should be less than or equal to 1"),
        ("risk", 0.25, "it should be a multiple of 0.1"),
        ("count", 2.5, "it should be a whole number"),
        ("sure", "yes", "it should be true or false"),
        ("sure", 0, "it should be true or false"),
        ("tags", "a", "it should be a list"),
        ("tags", ["d"], "in [0], it should be one of a, b, c"),
        ("tags", [["a"]], "in [0], it should be a text"),
        ("tags", ["a", "a"], "it should have each item once"),
        ("tags", [], "it should have at least 1 item"),
        ("tags", ["a", "b", "c"], "it should have at most 2 items"),
        ("owner", "me", "it is no object"),
        ("titles", "Moby", "the form has no such field"),
    ],
)
def test_a_value_that_does_not_fit_is_named(name: str, value: Any, message: str) -> None:
    found = unfit(rules(), fields={name: value})
    assert [*found] == [f"fields.{name}"]
    assert found[f"fields.{name}"].message == message
    assert found[f"fields.{name}"].hint


def test_all_that_does_not_fit_is_named_at_once() -> None:
    found = unfit(rules("title", "owner"), fields={"risk": 2, "owner": {"mail": 1}})
    assert [*found] == ["fields.title", "fields.risk", "fields.owner.name", "fields.owner.mail"]
    assert found["fields.title"].hint == "give a text of from 2 to 10 characters"
    assert found["fields.title"].value is None


def test_an_optional_group_may_be_left_out_and_a_required_one_not() -> None:
    assert fits(rules(), fields={}).value == {"fields": {"severity": "low", "count": 3}}
    assert [*unfit(rules("owner"), fields={})] == ["fields.owner.name"]


def test_a_choice_is_one_of_those_that_the_question_has() -> None:
    asked = AnswerRules(choices=("ship it", "wait"))
    assert fits(asked, choice="wait") == fits(asked, text=" wait ")
    assert fits(asked, choice="wait") == Accepted("wait", {"choice": "wait"})
    assert unfit(asked, text="waits")["text"].hint == "did you mean 'wait'?"
    assert unfit(asked, choice="no")["choice"].hint == "give one of 'ship it', 'wait'"
    assert [*unfit(asked)] == ["choice"]
    assert [*unfit(asked, text="wait", choice="wait")] == ["text"]
    assert [*unfit(asked, choice="wait", fields={})] == ["fields"]


def test_a_choice_may_come_with_the_fields_of_a_form() -> None:
    found = fits(rules(choices=["go"]), choice="go", fields={"title": "Moby"})
    assert found.value == {
        "choice": "go",
        "fields": {"title": "Moby", "severity": "low", "count": 3},
    }
    assert found.text.splitlines()[:2] == ["go", "title: Moby"]
    assert [*unfit(rules("title", choices=["go"]))] == ["choice", "fields.title"]


def test_a_form_is_not_answered_by_a_text_or_a_choice() -> None:
    assert [*unfit(rules(), text="yes")] == ["text"]
    assert [*unfit(rules(), choice="yes")] == ["choice"]


def test_a_question_without_rules_is_answered_by_a_text_alone() -> None:
    assert fits(AnswerRules(), text="yes") == Accepted("yes", None)
    assert [*unfit(AnswerRules())] == ["text"]
    assert [*unfit(AnswerRules(), choice="a", fields={})] == ["choice", "fields"]


def test_an_answer_has_a_limit() -> None:
    fields = {f"f{n}": {"type": "string"} for n in range(20)}
    asked = AnswerRules.model_validate({"form": {"type": "object", "properties": fields}})
    assert [*unfit(asked, fields=dict.fromkeys(fields, "x" * 19_999))] == ["fields"]


def nested(depth: int) -> dict[str, Any]:
    inner: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        inner = {"type": "object", "properties": {"in": inner}}
    return inner


@pytest.mark.parametrize(
    ("properties", "more", "why"),
    [
        ({}, {}, "at least 1 item"),
        ({"a": {"type": "string"}}, {"required": ["b"]}, "requires 'b'"),
        ({"a": nested(1) | {"required": ["b"]}}, {}, "a requires 'b'"),
        ({"a": {"type": "string", "pattern": "(a+)+$"}}, {}, "Extra inputs"),
        ({"a": {"type": "null"}}, {}, "does not match any of the expected tags"),
        ({"a b": {"type": "string"}}, {}, "should match pattern"),
        ({"a": {"type": "string", "enum": ["x"], "default": "y"}}, {}, "the default of a"),
        ({"a": {"type": "integer", "default": 1.5}}, {}, "give a whole number"),
        ({"a": {"type": "array", "items": {"type": "string"}}}, {}, "enum"),
        ({"a": nested(3)}, {}, "more than 3 groups"),
        ({f"f{n}": {"type": "boolean"} for n in range(100)}, {"title": ""}, "at least 1 char"),
        (
            {g: {"type": "object", "properties": {f"f{n}": {"type": "boolean"} for n in range(60)}}
             for g in "ab"},
            {}, "the most are 100",
        ),
    ],
)  # fmt: skip
def test_a_form_that_nobody_could_fill_in_is_refused(
    properties: dict[str, Any], more: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValidationError, match=why):
        Form.model_validate({"type": "object", "properties": properties, **more})


def test_a_form_is_written_as_it_was_read() -> None:
    form = {"type": "object", "properties": FIELDS, "required": ["title"]}
    dumped = Form.model_validate(form).model_dump(mode="json", exclude_unset=True)
    assert dumped == form
    assert Form.model_validate(dumped) == Form.model_validate(form)
