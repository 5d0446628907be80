"""Random graphs and the tools of their steps, drawn from a seed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

#: Errors of a call, and what a step may name in `retry_on`.
ERRORS = ("ValueError", "OSError", "timeout", "http 503")
#: The error of a call that returns no success, where a step expects it.
DECLINED = "declined"
_NAMES = ("s{}", "s{}", "step-{}", "fetch papers {}", "a.b {}")
_INPUTS = {"topic": "graphs", "urls": ["u1", "u2", "u3"], "on": True}

Step = dict[str, Any]
#: How a call goes: its `errors`, one after the other, and the `value` that it then returns.
Act = dict[str, Any]


class Tools:
    """What the calls of each step do: up to three items differ."""

    def __init__(self, acts: Mapping[str, list[Act]], expecting: set[str]) -> None:
        self._acts = dict(acts)
        self._expecting = expecting

    def call(self, name: str, number: int, attempt: int, arguments: Any) -> tuple[str, Any]:
        """The error of an attempt, or '', and what it returns."""
        error, value = self.attempt(name, number, attempt, arguments)
        declines = not error and name in self._expecting and not value["success"]
        return (DECLINED, None) if declines else (error, value)

    def attempt(self, name: str, number: int, attempt: int, arguments: Any) -> tuple[str, Any]:
        """The same for a caller that expects nothing; the value depends on all arguments."""
        act = self._acts[name][(number - 1) % 3]
        if attempt < len(act["errors"]):
            return act["errors"][attempt], None
        seen = zlib.crc32(json.dumps(arguments, sort_keys=True).encode())
        return "", {**act["value"], "got": seen}

    def mend(self, name: str) -> None:
        """From now on all calls of the step succeed; those that did return what they did."""
        more = {"success": True} if name in self._expecting else {}
        self._acts[name] = [
            {"errors": [], "value": one["value"] | more} for one in self._acts[name]
        ]

    def ruin(self, name: str, error: str) -> None:
        """From now on all calls of the step fail with this error."""
        self._acts[name] = [{**one, "errors": [error] * 99} for one in self._acts[name]]


class Drawn(NamedTuple):
    """A graph: its steps, each after those that it needs, its inputs, and the tools."""

    steps: list[Step]
    inputs: dict[str, Any]
    tools: Tools


class _Graph:
    """Draws one graph."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.steps: list[Step] = []
        self.acts: dict[str, list[Act]] = {}

    def add(self, number: int) -> None:
        rng = self._rng
        step: Step = {
            "name": rng.choice(_NAMES).format(number), "critical": rng.random() < 0.8,
            "retries": rng.choice((0, 0, 1, 2)), "backoff_s": rng.choice((0, 0.5, 2)),
            "retry_on": [*ERRORS, DECLINED], "join": "ended", "when": None, "when_of_item": None,
            "depends_on": [], "expects": rng.random() < 0.15,
        }  # fmt: skip
        names = [one["name"] for one in self.steps]
        step["depends_on"] = rng.sample(names, min(len(names), rng.choice((0, 0, 1, 1, 2))))
        if rng.random() < 0.35:
            self._add_list(step)
        if rng.random() < 0.25 and self.steps:
            self._add_condition(step)
        if rng.random() < 0.25 and self.steps:
            self._add_join(step)
        if step["retries"] and rng.random() < 0.4:
            step["retry_on"] = rng.sample(ERRORS, rng.randint(1, 3))
        is_list = "for_each" in step
        step["arguments"] = {f"a{n}": self._argument(is_list) for n in range(rng.randint(0, 3))}
        step["needs"] = {*step["depends_on"], *roots(step)} - {"inputs", "item", "index"}
        self.steps.append(step)
        self.acts[step["name"]] = [self._act() for _ in range(3)]

    def add_last(self) -> None:
        """A step that always runs, after all others."""
        name = "at the end"
        self.steps.append({
            "name": name, "critical": False, "retries": 0, "backoff_s": 0, "join": "always",
            "retry_on": [*ERRORS, DECLINED], "when": None, "when_of_item": None, "depends_on": [],
            "expects": False, "arguments": {}, "needs": {one["name"] for one in self.steps},
        })  # fmt: skip
        self.acts[name] = [{"errors": [], "value": {"n": 1}}] * 3

    def _add_list(self, step: Step) -> None:
        rng = self._rng
        lists: list[Any] = [[], ["x"], ["x", "y", "z"], {"ref": ["inputs", "urls"]}]
        if self.steps:
            source = rng.choice(self.steps)
            made = {"ref": [source["name"], "items"], "default": []}
            lists += [{"ref": [source["name"]]} if "for_each" in source else made] * 3
        step["for_each"] = rng.choice(lists)
        if rng.random() < 0.5:
            step["at_once"] = rng.randint(1, 3)

    def _add_condition(self, step: Step) -> None:
        rng = self._rng
        source = rng.choice(self.steps)
        key, flag = "when", {"ref": [source["name"], "flag"], "default": False}
        if "for_each" in step and rng.random() < 0.3:
            key, flag = "when_of_item", {"ref": ["item", "flag"], "default": True}
        elif "for_each" in source:
            flag["ref"] = [source["name"], 0, "flag"]
        elif source["critical"] and rng.random() < 0.5:
            del flag["default"]
        step[key] = {"not": rng.random() < 0.5, "value": flag}

    def _add_join(self, step: Step) -> None:
        """A join needs a step that it is about; flags of inputs are none."""
        step["join"] = self._rng.choice(("all", "any", "ended"))
        step["depends_on"] = step["depends_on"] or [self._rng.choice(self.steps)["name"]]

    def _argument(self, has_item: bool) -> Any:
        rng = self._rng
        parts: list[Any] = [{"ref": ["inputs", "topic"]}, "${literal}", "text"]
        if has_item:
            parts += [{"ref": ["item"]}, {"ref": ["index"]}]
        if self.steps:
            parts += _references(rng.choice(self.steps))
        drawn = rng.choice(parts)
        shape = rng.randrange(4)
        if shape == 0:
            return [drawn, {"deep": rng.choice(parts)}]
        return {"text": ["see ", drawn, ", ", rng.choice(parts)]} if shape == 1 else drawn

    def _act(self) -> Act:
        rng = self._rng
        errors = [rng.choice(ERRORS) for _ in range(rng.choice((0, 0, 0, 0, 1, 2, 3)))]
        value = {"n": rng.randrange(9), "flag": rng.random() < 0.5, "success": rng.random() < 0.8,
                 "items": rng.choice(([], ["i"], ["i", "j", "k", "l"]))}  # fmt: skip
        return {"errors": errors, "value": value}


def _references(source: Step) -> list[Any]:
    """What arguments may refer to in a step."""
    name = source["name"]
    found: list[Any] = [{"ref": [name], "default": "none"}, {"ref": [name], "default": [1]}]
    if "for_each" in source:
        return [*found, {"ref": [name]}, {"ref": [name, 0, "n"], "default": "none"}]
    found += [{"ref": [name, "absent"], "default": "none"}, {"ref": [name, "n"], "default": 7}]
    return [*found, {"ref": [name]}, {"ref": [name, "n"]}] if source["critical"] else found


def references(value: Any) -> Iterator[list[Any]]:
    """The path of each reference in a step or a part of one."""
    if isinstance(value, dict) and "ref" in value:
        yield value["ref"]
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from references(part)


def roots(value: Any) -> set[str]:
    """What the references in a step or a part of one name."""
    return {path[0] for path in references(value)}


def random_graph(seed: int) -> Drawn:
    """The graph of a seed, with 2 to 9 steps."""
    rng = Random(f"graph {seed}")
    graph = _Graph(rng)
    for number in range(rng.choice((2, 2, 3, 3, 4, 4, 5, 6, 9))):
        graph.add(number)
    if Random(f"last {seed}").random() < 0.35:
        graph.add_last()
    expecting = {step["name"] for step in graph.steps if step["expects"]}
    return Drawn(graph.steps, _INPUTS, Tools(graph.acts, expecting))
