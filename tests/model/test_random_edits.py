"""Files that are changed at random while their flow rests: what is done stays, the rest follows."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.effort import few_or_all
from tests.engine.driving import Bench
from tests.engine.flows.changed_flow import Flow, subflow
from tests.engine.test_fsck import audit
from tests.flows import ask, llm, loop

SUBFLOWS = ("f1", "f2", "f3", "f4")
_RUN = re.compile(r"~\d+")


class Edited:
    """A flow of steps, subflows and loops, carried out to somewhere, then changed."""

    def __init__(self, bench: Bench, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        self.flow = Flow(bench, folder)
        for name in SUBFLOWS:
            (folder / f"{name}.json").write_text(json.dumps({"steps": [llm()]}))
        self.names = iter(f"s{number}" for number in range(999))
        self.steps = [self.step() for _ in range(self.random.randint(2, 4))]
        #: The steps that were done, as their addresses without runs.
        self.done: list[str] = []
        #: Whether a subflow was added next to others that had started and had not all ended.
        self.grown = False

    def step(self, *, depth: int = 0) -> dict[str, Any]:
        name = next(self.names)
        if depth < 2 and self.random.random() < 0.4:
            body = [self.step(depth=depth + 1) for _ in range(self.random.randint(1, 2))]
            return loop(*body, ask(label=next(self.names)), label=name, maxIterations=9)
        if self.random.random() < 0.4:
            return subflow(*self.random.sample(SUBFLOWS, self.random.randint(1, 2)), label=name)
        return llm(name, label=name)

    def go(self, most: int) -> None:
        """Carry steps out, at most so many."""
        for _ in range(most):
            if not self.flow.live:
                return
            address = self.random.choice(self.flow.live)
            wants = self.flow.other.registry.program(
                self.flow.world.engine.store.fields(self.flow.ref)["program"]
            ).step(address)
            verdict = None
            if wants.action == "break":
                verdict = self.random.choice(("accept", "accept", "retry"))
            self.flow.do(address, verdict)
            self.done.append(_RUN.sub("", address))

    def rest(self) -> None:
        """It is stopped, or fails in what comes next."""
        if self.random.random() < 0.5 or not self.is_critical(self.flow.live[0]):
            self.flow.stop()
        else:
            self.flow.fail(self.flow.live[0])

    def is_critical(self, address: str) -> bool:
        return not re.search(r"-f\d(~\d+)?$", address)

    def chain(self) -> list[tuple[list[dict[str, Any]], int]]:
        """The blocks that it is in, outermost first, and where in each it stands."""
        found, block = [], self.steps
        for name in path_of(self.flow.live[0]).split("/"):
            at = next(number for number, one in enumerate(block) if one["label"] == name)
            found.append((block, at))
            block = block[at].get("steps", [])
        return found

    def edit_what_is_done(self) -> bool:
        """Put a step before one that is done, or a loop in which one is, if there is any."""
        early, around = [], ""
        parts = _RUN.sub("", self.flow.live[0]).split("/")
        for (block, at), part in zip(self.chain(), parts, strict=True):
            entered = self.is_done_in(f"{around}{block[at]['label']}")
            early += [(block, at)] if entered else [(block, at - 1)] if at > 0 else []
            around += f"{part}/"
        if not early:
            return False
        block, most = self.random.choice(early)
        block.insert(self.random.randint(0, most), llm("new", label=next(self.names)))
        return True

    def is_done_in(self, address: str) -> bool:
        """Whether anything is done in a loop, or any of its subflows."""
        return any(done.startswith((f"{address}[", f"{address}-f")) for done in self.done)

    def edit_what_is_not(self) -> str | None:
        """Change anything from what comes next on; what comes next then, if it is in that block."""
        *outer, (block, at) = self.chain()
        for above, stands in outer:
            self.change(above, stands + 1)
        stays = block[at]["type"] == "subflow" and self.regroup(block[at])
        self.change(block, at + stays)
        return str(block[at]["label"]) if at < len(block) else None

    def regroup(self, step: dict[str, Any]) -> bool:
        """Drop and add subflows of a step that is under way; False where all of it may go."""
        block, slash, _ = _RUN.sub("", self.flow.live[0]).rpartition("/")
        place = f"{block}{slash}{step['label']}"
        if not self.is_done_in(place) and self.random.random() < 0.3:
            return False
        names = step["flowNames"]
        kept = [n for n in names if f"{place}-{n}" in self.done or self.random.random() < 0.8]
        others = [name for name in SUBFLOWS if name not in names]
        added = self.random.sample(others, self.random.randint(0 if kept else 1, len(others)))
        self.grown = bool(added) and len(kept) == len(names) and place not in self.flow.live
        step["flowNames"] = [*kept, *added]
        return True

    def change(self, block: list[dict[str, Any]], start: int) -> None:
        """Drop, mix and add steps; the break that ends a loop stays its last step."""
        ends = block[-1:] if block and block[-1]["type"] == "break" else []
        rest = block[start : len(block) - len(ends)]
        rest = [one for one in rest if self.random.random() < 0.7]
        rest += [self.step(depth=1) for _ in range(self.random.randint(0, 2))]
        self.random.shuffle(rest)
        block[start:] = rest + (ends if start <= len(block) - len(ends) else [])


def path_of(address: str) -> str:
    """The labels of the steps of the file that it lies in."""
    return re.sub(r"~\d+|\[\d+\]|-f\d", "", address)


@pytest.mark.no_cover
@pytest.mark.timeout(120)
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("seeds", few_or_all(range(10), range(80)))
def test_a_file_is_taken_over_where_it_leaves_what_is_done(
    bench: Bench, tmp_path: Path, early: bool, seeds: range
) -> None:
    tried = grown = 0
    for seed in seeds:
        bench.restart()
        edited = Edited(bench, tmp_path, seed)
        flow, engine = edited.flow, edited.flow.world.engine
        flow.start(*edited.steps)
        edited.go(edited.random.randint(0, 9))
        if not flow.live:
            continue
        before, after = copy.deepcopy(edited.steps), None
        if not early:
            after = edited.edit_what_is_not()
        elif not edited.edit_what_is_done():
            continue
        tried, grown = tried + 1, grown + edited.grown
        edited.steps, changed = before, edited.steps
        edited.rest()
        flow.write(*changed)
        if early:
            assert "is done" in (why := flow.refused()) or "was entered" in why, seed
            assert audit(engine.audit.run).items == [], seed
            continue
        flow.resume()
        assert audit(engine.audit.run).items == [], seed
        if after is not None:
            assert after in path_of(flow.live[0]).split("/"), seed
        edited.go(500)
        assert engine.queries.session(flow.ref.id).status == "completed", seed
        assert len(edited.done) == len(set(edited.done)), seed
    assert tried > len(seeds) // 4
    assert early or grown > len(seeds) // 15
