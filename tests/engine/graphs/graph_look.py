"""What a graph session's records say at one moment, by the names of its steps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from app.core.addresses import SessionRef
from app.core.program import Program, Step
from app.store.script_runner import decoded_map
from app.store.store import Store


class Look(NamedTuple):
    """The steps of a session, each by its newest run."""

    status: str
    #: Whether steps may begin.
    is_open: bool
    #: Steps after which others may run.
    done: set[str]
    #: Steps whose turn has come, or whose list is being made or was cancelled.
    begun: set[str]
    #: How many calls of each step are ready or under way.
    live: Counter[str]
    #: The newest run of each step.
    runs: Mapping[str, int]
    #: The steps that the end of the session or a stop has started, and that have ended.
    last: set[str]


class Names:
    """The steps of a compiled graph, by their names."""

    def __init__(self, program: Program) -> None:
        self._program = program
        steps = [node for node in program.body if isinstance(node, Step) and not node.quick]
        self.nodes = {str(step.label): step for step in steps}
        #: The quick steps that make their lists.
        makers = [node for node in program.body if isinstance(node, Step) and node.quick]
        self._makers = {_name(step): step.id for step in makers}

    def of(self, address: str) -> str:
        """The step that an address is of, also that of the making of its list."""
        return _name(self._program.step(address))

    def node_at(self, address: str) -> Step:
        return self._program.step(address)

    def look(self, store: Store, ref: SessionRef) -> Look:
        """Read the records of a session in one round trip."""
        key = partial(store.keys.part, ref)
        parts = [("HGETALL", key(part)) for part in ("runs", "steps", "turns")]
        status, live, *maps = store._scripts.ask(
            [("HGET", key("session"), "status"), ("ZRANGE", key("live"), "0", "-1"), *parts]
        )
        assert isinstance(status, bytes)
        assert isinstance(live, list)
        numbers, steps, turns = map(decoded_map, maps)
        runs = {name: int(numbers.get(node.id, 1)) for name, node in self.nodes.items()}
        calls = Counter(self.of(address.decode()) for address in live)
        newest = {name: self._record(name, runs[name], steps, turns) for name in self.nodes}
        return Look(
            status=status.decode(),
            is_open=json.loads(turns[""])["state"] == "open",
            done={name for name, record in newest.items() if self._is_done(name, record)},
            begun={name for name, record in newest.items() if record}
            | calls.keys()
            | {n for n, id_ in self._makers.items() if _is_cancelled(id_, numbers, steps)},
            live=calls,
            runs=runs,
            last={name for name, record in newest.items() if _is_last(record)},
        )

    def _record(self, name: str, run: int, steps: Any, turns: Any) -> dict[str, Any]:
        """The record of the newest run of a step or a list; empty if it has not begun."""
        id_ = self.nodes[name].id
        text = turns.get(f"{id_}~{run}") or steps.get(f"{id_}~{run}" if run > 1 else id_)
        return dict(json.loads(text or "{}"))

    def _is_done(self, name: str, record: Mapping[str, Any]) -> bool:
        if record.get("state") == "closed":
            return record["verdict"] in ("accept", "skipped")
        if record.get("last") is True:  # what it comes after was not done
            return False
        passed = record.get("state") == "failed" and not self.nodes[name].critical
        return passed or record.get("state") in ("succeeded", "skipped")


def _name(step: Step) -> str:
    """The step that a call is of, or the making of a list."""
    return str(step.label).removesuffix(" (list)")


def _is_cancelled(id_: str, numbers: Mapping[str, Any], steps: Mapping[str, Any]) -> bool:
    """Whether the newest run of a step was cancelled."""
    run = int(numbers.get(id_, 1))
    text = steps.get(f"{id_}~{run}" if run > 1 else id_)
    return text is not None and json.loads(text)["state"] == "cancelled"


def _is_last(record: Mapping[str, Any]) -> bool:
    return bool(record.get("last")) and record["state"] in ("succeeded", "skipped", "failed")
