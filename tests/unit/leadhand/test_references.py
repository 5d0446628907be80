"""The grammar of references: what is written is parsed back, and anything else stays text."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.graphs.values import FILLED_CHARACTERS, Held, fill, look_up, value_at
from leadhand.models.references import (
    Default,
    Part,
    Reference,
    ReferenceFault,
    escape,
    escape_flow_text,
    parse,
    split_flow_text,
    step_reference,
    target_of,
    whole,
    written,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
KEYS = st.lists(NAMES | st.integers(0, 999), max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
WORDS = st.from_regex(r"[^\W\d][\w-]{0,5}", fullmatch=True)
PARTS = st.builds(
    lambda first, others: [Part(first), *others],
    WORDS,
    st.lists(
        st.builds(Part, st.from_regex(r"[\w-]{1,5}", fullmatch=True))
        | st.builds(Part, st.integers(0, 10**9 - 1).map(str) | NAMES, st.just(True)),
        max_size=4,
    ),
)
LABELS = ("a", "a.b", "a b")
TOKENS = (
    *("${", "$", "$${", "{", "}", ".", "[", "]", '"', "??", " ", "\\", "\n", "0", "é", "null"),
    *("a", "a.b", "a b", "${steps.", "${inputs.", "${item", "${index", "steps", "x}", "not "),
)
TEXTS = st.text(st.sampled_from("ab ${}.[]?\"'\\\n0") | st.characters(exclude_categories=["Cs"]))


@given(name=NAMES, keys=KEYS)
def test_a_written_reference_names_its_step_and_its_keys(name: str, keys: list[Any]) -> None:
    reference = whole(step_reference(name, *keys))
    assert reference is not None
    # A key may be joined to a name only if a step of the joined name is declared.
    target = target_of(reference, {name})
    assert target == ("step", name, tuple(map(str, keys)))


@given(default=VALUES)
def test_any_json_may_be_a_default(default: Any) -> None:
    text = "${a.b ?? " + json.dumps(default) + "}"
    (reference,) = parse(text)
    assert isinstance(reference, Reference)
    assert reference.text == text
    assert value_at(reference, target_of(reference, {"a"}), Held({})) == default


@given(text=TEXTS)
def test_an_escaped_text_is_that_text(text: str) -> None:
    assert "".join(str(part) for part in parse(escape(text))) == text
    assert fill({"x": [escape(text)]}, lambda _: "never") == {"x": [text]}


@given(parts=PARTS, default=st.none() | VALUES.map(Default))
def test_a_printed_reference_is_parsed_to_the_same_parts(
    parts: list[Part], default: Default | None
) -> None:
    text = written(parts, default)
    assert parse(text) == [Reference(text, tuple(parts), default)]


def parsed(text: str) -> list[str | Reference] | ReferenceFault:
    try:
        return parse(text)
    except ReferenceFault as fault:
        return fault


def test_every_text_is_parsed_or_refused_with_a_reason() -> None:
    random = Random(39)
    for _ in range(10_000):
        text = "".join(random.choices(TOKENS, k=random.randint(0, 25)))
        match parsed(text):
            case ReferenceFault() as fault:
                assert fault.text in text
                assert "$${" in fault.why
            case parts:
                assert "${" in text or parts == [text]
        # In a flow the rest is text: nothing is lost, whatever is wrong in it.
        split = split_flow_text(text, LABELS, has_item=random.random() < 0.5)
        shown = "".join(part if isinstance(part, str) else part.text for part in split)
        assert shown == text or "$${" in text
        assert split_flow_text(escape_flow_text(text), LABELS) == [text]


@given(before=TEXTS, after=TEXTS, value=VALUES)
def test_a_value_within_a_text_is_text_and_alone_keeps_its_type(
    before: str, after: str, value: Any
) -> None:
    assert fill("${a}", lambda _: value) == value
    # A dollar sign before the reference would escape it.
    before = escape(before).rstrip("$")
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    unescaped = "".join(map(str, parse(before)))
    filled = fill(f"{before}${{a}}{escape(after)}", lambda _: value)
    if before or after:
        assert filled == f"{unescaped}{shown}{after}"


@given(value=VALUES, keys=st.lists(st.text(max_size=5) | st.integers(0, 3), max_size=3))
def test_a_look_up_finds_the_value_or_says_why_not(value: Any, keys: list[Any]) -> None:
    path = tuple(map(str, keys))
    expected: Any = value
    try:
        for key in path:
            expected = expected[int(key)] if isinstance(expected, list) else dict(expected)[key]
    except (KeyError, ValueError, IndexError, TypeError):
        with pytest.raises(KeyError, match="has no"):
            look_up(value, path)
    else:
        assert look_up(value, path) == expected


@pytest.mark.parametrize(
    ("text", "known", "target"),
    [
        ("${a.b.c}", ["a", "a.b", "c"], ("step", "a.b", ("c",))),
        ("${steps.a.b.c}", ["a", "a.b.c"], ("step", "a.b.c", ())),
        ('${steps["a"].b}', ["a", "a.b"], ("step", "a", ("b",))),
        ("${a[0].b}", ["a", "a.0"], ("step", "a", ("0", "b"))),
        ("${steps.item.x}", ["item"], ("step", "item", ("x",))),
        ("${item.x}", ["item"], ("item", "", ("x",))),
        ("${inputs.x.y}", ["inputs"], ("input", "x", ("y",))),
        ("${index}", ["index"], ("index", "", ())),
        ("${ a.b }", ["a"], ("step", "a", ("b",))),
        ('${a["x.y"]["z \\" }"]}', ["a"], ("step", "a", ("x.y", 'z " }'))),
    ],
)
def test_the_longest_declared_name_is_the_step(
    text: str, known: list[str], target: tuple[str, str, tuple[str, ...]]
) -> None:
    reference = whole(text)
    assert reference is not None
    assert target_of(reference, known) == target


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("${", "begins with the name"),
        ("${}", "begins with the name"),
        ("${1a}", "begins with the name"),
        ("${a", "it is not a reference"),
        ("${a b}", "it is not a reference"),
        ("${a.}", "a key is missing after the dot"),
        ("${a[b]}", "brackets hold a number"),
        ("${a[-1]}", "brackets hold a number"),
        ("${a ?? none}", "the default after ?? is JSON"),
        ("${a ?? NaN}", "the default after ?? is JSON"),
        ("${a ??}", "the default after ?? is JSON"),
        ("${a ?? 1 2}", "it is not a reference"),
        ("ok ${a} but ${", "begins with the name"),
    ],
)
def test_what_is_no_reference_is_refused_with_the_way_to_write_it(text: str, why: str) -> None:
    with pytest.raises(ReferenceFault) as refused:
        parse(text)
    assert why in refused.value.why


def test_a_default_is_for_what_is_missing_null_skipped_or_failed() -> None:
    (text,) = parse('${a.text ?? "none"}')
    (error,) = parse('${a.error ?? "none"}')
    assert isinstance(text, Reference)
    assert isinstance(error, Reference)
    failed = Held({"error": "broken"}, failed=True)

    def found(reference: Reference, held: Held) -> Any:
        return value_at(reference, target_of(reference, {"a"}), held)

    assert found(text, Held({"text": "x"})) == "x"
    assert found(text, Held({"text": ""})) == ""
    assert found(text, Held({"text": None})) == "none"
    assert found(text, Held({})) == "none"
    assert found(text, Held(missing="it was skipped")) == "none"
    assert found(text, failed) == "none"
    assert found(error, failed) == "broken"


def growth(work: Callable[[int], object]) -> float:
    """How much longer the work takes for eight times as much: 8 if the time is linear."""

    def fastest(size: int) -> int:
        times = []
        for _ in range(5):
            began = time.process_time_ns()
            work(size)
            times.append(time.process_time_ns() - began)
        return min(times)

    return fastest(16_000) / fastest(2_000)


@pytest.mark.parametrize("read", [parse, escape])
def test_a_long_row_of_dollar_signs_is_read_once(read: Callable[[str], object]) -> None:
    # 8 times as much takes 64 times as long if the row is read again from each sign.
    assert growth(lambda size: read("$" * size)) < 32


class CountedNames(frozenset[str]):
    """Names that record the length of each text that is looked up."""

    def __init__(self, _: object) -> None:
        self.asked: list[int] = []

    def __contains__(self, name: object) -> bool:
        self.asked.append(len(str(name)))
        return super().__contains__(name)


def test_a_path_of_many_parts_is_not_compared_with_names_longer_than_a_name_may_be() -> None:
    longest = "a." + "b" * 118
    names = CountedNames([longest])
    for text in ("${x" + ".b" * 5_000 + "}", "${x." + "b" * 5_000 + "}"):
        (path,) = parse(text)
        assert isinstance(path, Reference)
        with pytest.raises(ReferenceFault, match="there is no step 'x'"):
            target_of(path, names)
    assert max(names.asked) <= 120
    (inside,) = parse("${" + longest + ".c}")
    assert isinstance(inside, Reference)
    assert target_of(inside, names) == ("step", longest, ("c",))


@pytest.mark.parametrize(
    "value",
    ["${a}${a}", {"x": "${a}", "y": ["${a}"]}, [f"text {n}: ${{a}}" for n in range(2)]],
)
def test_references_stand_for_a_limited_number_of_characters_in_all(value: Any) -> None:
    half = "x" * (FILLED_CHARACTERS // 2)
    fill(value, lambda _: half)
    for longer in (half + "x", [half]):
        with pytest.raises(ReferenceFault, match=r"^\$\{a\}: it is too long"):
            fill(value, lambda _, longer=longer: longer)  # type: ignore[misc]
