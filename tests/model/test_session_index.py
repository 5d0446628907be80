"""Lists and their index compared with a plain list."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.core.program import Action, Program, Step
from app.engine import Engine
from app.sessions.listing import end_ms, first_ms
from app.sessions.submit import About
from app.settings import Settings
from app.store.session_reads import KINDS
from app.store.store import Store
from app.sweep import sweep
from leadhand.contract.sessions import SessionsWanted
from tests.engine.driving import Bench
from tests.silent_engine import NobodyThere

#: Walks in each run, and in the slow tests.
WALKS, MANY = 1, 12
ACTS = 40
RETENTION_S = 60
PROGRAM = Program(body=(Step(id="only", action=Action.TOOL),))
#: The last ones begin like others, or have the signs of the index in them.
LABELS = ("", "nightly", "night", "é<0", "nightly<00000001000000", "~<9", "l" * 120)
NAMES = ("review", "a<b", "review<", "deploy")
#: The last one has more folders above it than the index has lines for a path.
DEEPEST = 32
DEEP = "/a" + "/d" * (DEEPEST + 2)
FOLDERS = ("", "/", "/a", "/a/b", "/ab", "/a/b/c d", "/a/é<0", DEEP)
STATUSES = ("active", "stopped", "aborted")


@dataclass(frozen=True)
class Plain:
    """A session as the plain list knows it."""

    id: str
    kind: str
    name: str
    label: str
    folder: str
    created: int
    status: str = "active"
    ended: int = 0

    @property
    def lines(self) -> set[str]:
        facts = {"kind": self.kind, "label": self.label, "name": self.name}
        pairs = [(f, v) for f, v in facts.items() if v]
        folder = Path(self.folder)
        above = [one for one in (folder, *folder.parents) if str(one) not in "/."][-DEEPEST:]
        pairs += [("folder", sha1(str(one).encode()).hexdigest()[:16]) for one in above]
        return {f"{f}<{v}<{self.created:014d}<{self.id}" for f, v in pairs}


class Beside:
    """An engine and the plain list."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.random = Random(seed)
        self.bench = bench
        self.redis = bench.client()
        store = Store(bench.client(), clock=bench.clock, read=bench.read)
        settings = Settings(secret="s", retention_s=RETENTION_S)
        self.engine = Engine(store, NobodyThere(), settings)
        self.plain: dict[str, Plain] = {}

    # Acts

    def create(self) -> None:
        kind, label = self.random.choice(KINDS), self.random.choice(LABELS)
        name, folder = self.random.choice(NAMES), self.random.choice(FOLDERS)
        about = About(kind=kind, name=name, label=label, listed_in=folder)
        id_ = self.engine.submit.program(PROGRAM, about).session
        self.plain[id_] = Plain(id_, kind, name, label, folder, self.bench.clock())

    def control(self, verb: Any, status: str, given: tuple[str, ...]) -> None:
        meant = [one for one in self.plain.values() if one.status in given]
        if meant:
            one = self.random.choice(meant)
            self.engine.control.apply(one.id, verb)
            self.plain[one.id] = replace(one, status=status, ended=self.bench.clock())

    def delete(self) -> None:
        ended = [one for one in self.plain.values() if one.status != "active"]
        if ended:
            one = self.random.choice(ended)
            assert self.engine.deletion.delete(one.id) is None
            del self.plain[one.id]

    def wait(self, ms: int) -> None:
        self.bench.clock.now += ms

    def sweep(self) -> None:
        """Sweep, which deletes what has been kept long enough."""
        self.bench.clock.now += 1_000
        sweep(self.engine)
        kept = RETENTION_S * 1000
        self.plain = {
            one.id: one for one in self.plain.values()
            if one.status == "active" or one.ended + kept > self.bench.clock()
        }  # fmt: skip

    def act(self) -> None:
        acts: dict[Callable[[], None], int] = {
            self.create: 12,
            lambda: self.control("abort", "aborted", ("active", "stopped")): 3,
            lambda: self.control("stop", "stopped", ("active",)): 4,
            lambda: self.control("resume", "active", ("stopped",)): 2,
            self.delete: 3,
            lambda: self.wait(self.random.choice((0, 1, 1, 20_000))): 8,
            self.sweep: 4,
        }
        self.random.choices(list(acts), list(acts.values()))[0]()

    # Checks

    def listed(self, wanted: SessionsWanted) -> list[str]:
        found: list[str] = []
        cursor = None
        while True:
            page = self.engine.queries.sessions(wanted, limit=self.random.choice((1, 3, 50)),
                                             cursor=cursor)  # fmt: skip
            assert page.examined is not None
            assert page.examined >= len(page.items)
            found += [view.id for view in page.items]
            cursor = page.next
            if cursor is None:
                return found

    def expected(self, wanted: SessionsWanted) -> list[str]:
        end = end_ms(wanted)
        meant = [
            one for one in self.plain.values()
            if wanted.kind in (None, one.kind)
            and wanted.name in (None, one.name)
            and wanted.label in (None, one.label)
            and (wanted.folder is None or beneath(one.folder, wanted.folder))
            and (not wanted.status or one.status in wanted.status)
            and one.created >= first_ms(wanted)
            and (end is None or one.created < end)
        ]  # fmt: skip
        return [one.id for one in sorted(meant, key=lambda o: (o.created, o.id), reverse=True)]

    def random_filter(self) -> SessionsWanted:
        def maybe(values: Any, chance: float = 0.4) -> Any:
            return self.random.choice(values) if self.random.random() < chance else None

        times = sorted({one.created for one in self.plain.values()}) or [0]
        given = {
            "kind": maybe(KINDS),
            "name": maybe(NAMES),
            "label": maybe(LABELS[1:]),
            "folder": maybe([*FOLDERS[1:], "/a/", "/a/b/../b", "/b", "/", str(Path(DEEP).parent)]),
            "status": self.random.sample(STATUSES, 2) if self.random.random() < 0.3 else (),
            "created_after": maybe([_at(ms) for ms in times], 0.2),
            "created_before": maybe([_at(ms) for ms in times], 0.2),
        }
        return SessionsWanted.model_validate(given)

    def check(self) -> None:
        for _ in range(4):
            wanted = self.random_filter()
            assert self.listed(wanted) == self.expected(wanted), wanted

    def lines(self) -> set[str]:
        found = self.redis.zrange(self.engine.store.keys.everywhere("facts"), 0, -1)
        return {str(line) for line in found}

    def expected_lines(self) -> set[str]:
        return {line for one in self.plain.values() for line in one.lines}

    def audit(self) -> list[str]:
        found, cursor = [], None
        while True:
            page = self.engine.audit.run(cursor=cursor)
            found += [f"{one.kind}: {one.what}" for one in page.items]
            cursor = page.next
            if cursor is None:
                return found


def beneath(path: str, folder: str) -> bool:
    """Whether a path is a folder or beneath it."""
    wanted = Path(os.path.normpath(folder))
    return bool(path) and wanted in (Path(path), *Path(path).parents)


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.mark.timeout(120)
def test_lists_and_index_match_a_plain_list(bench: Bench) -> None:
    for seed in range(WALKS):
        _walk(bench, seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_lists_and_index_match_a_plain_list_in_many_more_walks(bench: Bench) -> None:
    for seed in range(WALKS, MANY):
        _walk(bench, seed)


def _walk(bench: Bench, seed: int) -> None:
    bench.restart()
    beside = Beside(bench, seed)
    for _ in range(ACTS):
        beside.act()
        assert beside.lines() == beside.expected_lines(), seed
        beside.check()
    beside.sweep()
    assert beside.audit() == [], seed
