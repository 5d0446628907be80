"""Random graph documents, and the acts of their calls, drawn from a seed."""

from __future__ import annotations

import json
from random import Random
from typing import Any

#: Errors of a call, and what a step may name in `retry_on`.
ERRORS = ("ValueError", "OSError", "timeout", "http 503")
_NAMES = ("s{}", "s{}", "step-{}", "fetch papers {}", "a.b {}")


class _Graph:
    """Draws one graph."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.steps: list[dict[str, Any]] = []
        self.acts: dict[str, Any] = {}

    def draw(self, size: int) -> dict[str, Any]:
        for number in range(size):
            self._add(number)
        inputs = {"topic": "graphs", "urls": ["u1", "u2", "u3"], "on": True}
        steps = self._rng.sample(self.steps, len(self.steps))
        return {"kind": "graph", "inputs": inputs, "steps": steps}

    def _add(self, number: int) -> None:
        rng = self._rng
        step: dict[str, Any] = {
            "name": rng.choice(_NAMES).format(number), "tool": "echo",
            "critical": rng.random() < 0.8, "retries": rng.choice((0, 0, 1, 2)),
            "backoff_s": rng.choice((0, 0.5, 2)), "arguments": {},
        }  # fmt: skip
        names = [one["name"] for one in self.steps]
        before = rng.sample(names, min(len(names), rng.choice((0, 0, 1, 1, 2))))
        if before:
            step["depends_on"] = before
        if rng.random() < 0.35:
            self._add_list(step)
        if rng.random() < 0.25 and self.steps:
            step["when"] = rng.choice(("", "not ")) + self._flag("for_each" in step)
        if rng.random() < 0.25 and (before or "when" in step):
            step["join"] = rng.choice(("all", "any", "ended"))
        if step["retries"] and rng.random() < 0.4:
            step["retry_on"] = rng.sample(ERRORS, rng.randint(1, 3))
        step["arguments"] = {
            f"a{n}": self._argument("for_each" in step) for n in range(rng.randint(0, 3))
        }
        self._waits_for_something(step)
        self._act(step)
        self.steps.append(step)

    def _waits_for_something(self, step: dict[str, Any]) -> None:
        """A join needs a step that it is about; flags of inputs are none."""
        if step.get("join", "ended") != "ended" and not step.get("depends_on"):
            step["depends_on"] = [self._rng.choice(self.steps)["name"]]

    def _add_list(self, step: dict[str, Any]) -> None:
        rng = self._rng
        lists = [[], ["x"], ["x", "y", "z"], "${inputs.urls}"]
        if self.steps:
            source = rng.choice(self.steps)
            whole = "for_each" in source
            made = self._written(source["name"], "" if whole else ".items ?? []")
            lists += [made, made, made]
        step["for_each"] = rng.choice(lists)
        if rng.random() < 0.5:
            step["at_once"] = rng.randint(1, 3)

    def _flag(self, has_item: bool) -> str:
        source = self._rng.choice(self.steps)
        if has_item and self._rng.random() < 0.3:
            return "${item.flag ?? true}"
        if "for_each" in source:
            return self._written(source["name"], "[0].flag ?? false")
        is_sure = source["critical"] and self._rng.random() < 0.5
        return self._written(source["name"], ".flag" if is_sure else ".flag ?? false")

    def _written(self, name: str, rest: str) -> str:
        simple = name.replace("-", "").isalnum()
        root = self._rng.choice((name, f"steps.{name}")) if simple else f"steps[{json.dumps(name)}]"
        return f"${{{root}{rest}}}"

    def _argument(self, has_item: bool) -> Any:
        rng = self._rng
        parts = ["${inputs.topic}", "$${literal}", "text"]
        if has_item:
            parts += ["${item}", "${index}"]
        if self.steps:
            source = rng.choice(self.steps)
            name = source["name"]
            if "for_each" in source:
                parts += [self._written(name, ""), self._written(name, '[0].n ?? "none"')]
            elif source["critical"]:
                parts += [self._written(name, ".n"), self._written(name, "")]
            parts += [self._written(name, ' ?? "none"'), self._written(name, " ?? [1]")]
            if "for_each" not in source:
                parts += [self._written(name, '.absent ?? "none"'), self._written(name, ".n ?? 7")]
        drawn = rng.choice(parts)
        shape = rng.randrange(4)
        if shape == 0:
            return [drawn, {"deep": rng.choice(parts)}]
        return f"see {drawn}, {rng.choice(parts)}" if shape == 1 else drawn

    def _act(self, step: dict[str, Any]) -> None:
        """How each of up to three items goes: its errors, and what it returns at last."""
        rng = self._rng
        acts: list[dict[str, Any]] = []
        for _ in range(3):
            errors = [rng.choice(ERRORS) for _ in range(rng.choice((0, 0, 0, 0, 1, 2, 3)))]
            value = {"n": rng.randrange(9), "flag": rng.random() < 0.5,
                     "items": rng.choice(([], ["i"], ["i", "j", "k", "l"]))}  # fmt: skip
            acts.append({"errors": errors, "value": value})
        if rng.random() < 0.15:
            step["expect"] = "success"
            for act in acts:
                act["value"]["success"] = rng.random() < 0.8
        self.acts[step["name"]] = acts


def random_graph(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A graph document, and the acts of its steps by name."""
    rng = Random(f"graph {seed}")
    graph = _Graph(rng)
    return graph.draw(rng.randint(2, 12)), graph.acts
