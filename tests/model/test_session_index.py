"""Lists and their index compared with a plain list, also while an older version writes."""

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
from pydantic import JsonValue

from app.domain.ids import SessionRef
from app.domain.program import Action, Program, Step
from app.engine import Engine
from app.operations.submit import About
from app.queries.filters import SessionFilter
from app.settings import Settings
from app.store.session_index import KINDS
from app.store.store import Store
from app.sweep import sweep
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


def before_the_index(read: Callable[[str], str]) -> Callable[[str], str]:
    """The Lua files of a version that knew no index of facts."""

    def text(file: str) -> str:
        known = ("facts.add_new(tx)", "facts.remove(tx)")
        lines = read(file).splitlines(keepends=True)
        if file != "lib/sessions":
            return read(file)
        return "".join(line for line in lines if line.strip() not in known)

    return text


class Beside:
    """An engine, one of an older version on the same store, and the plain list."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.random = Random(seed)
        self.bench = bench
        self.redis = bench.client()
        self.now = self._engine(bench.read)
        self.older = self._engine(before_the_index(bench.read))
        self.plain: dict[str, Plain] = {}
        self.swept = 0

    def _engine(self, read: Callable[[str], str]) -> Engine:
        store = Store(self.bench.client(), clock=self.bench.clock, read=read)
        settings = Settings(secret="s", retention_s=RETENTION_S)
        return Engine(store, NobodyThere(), settings)

    # Acts

    def create(self, engine: Engine) -> None:
        kind, label = self.random.choice(KINDS), self.random.choice(LABELS)
        name, folder = self.random.choice(NAMES), self.random.choice(FOLDERS)
        about = About(kind=kind, name=name, label=label, listed_in=folder)
        id_ = engine.submit.program(PROGRAM, about).session
        self.plain[id_] = Plain(id_, kind, name, label, folder, self.bench.clock())

    def control(self, verb: Any, status: str, given: tuple[str, ...]) -> None:
        meant = [one for one in self.plain.values() if one.status in given]
        if meant:
            one = self.random.choice(meant)
            self.now.control.apply(one.id, verb)
            self.plain[one.id] = replace(one, status=status, ended=self.bench.clock())

    def delete(self, engine: Engine) -> None:
        ended = [one for one in self.plain.values() if one.status != "active"]
        if engine is self.older:
            # Until the next sweep, lists count the lines of new sessions. One that the older
            # version deletes in this second may be taken for one that it created.
            ended = [one for one in ended if one.created < self.swept]
        if ended:
            one = self.random.choice(ended)
            assert engine.deletion.delete(one.id) is None
            del self.plain[one.id]

    def wait(self, ms: int) -> None:
        self.bench.clock.now += ms

    def sweep(self, engine: Engine) -> None:
        """Sweep, which deletes what has been kept long enough."""
        self.bench.clock.now += 1_000
        sweep(engine)
        self.swept = self.bench.clock()
        kept = RETENTION_S * 1000
        self.plain = {
            one.id: one for one in self.plain.values()
            if one.status == "active" or one.ended + kept > self.bench.clock()
        }  # fmt: skip

    def act(self, *, rolling: bool) -> None:
        older = self.older if rolling and self.random.random() < 0.5 else self.now
        acts: dict[Callable[[], None], int] = {
            lambda: self.create(older): 12,
            lambda: self.control("abort", "aborted", ("active", "stopped")): 3,
            lambda: self.control("stop", "stopped", ("active",)): 4,
            lambda: self.control("resume", "active", ("stopped",)): 2,
            lambda: self.delete(older): 3,
            lambda: self.wait(self.random.choice((0, 1, 1, 20_000))): 8,
            lambda: self.sweep(self.now): 4,
        }
        self.random.choices(list(acts), list(acts.values()))[0]()

    # Checks

    def listed(self, wanted: SessionFilter) -> list[str]:
        found: list[str] = []
        cursor = None
        while True:
            page = self.now.queries.sessions(wanted, limit=self.random.choice((1, 3, 50)),
                                             cursor=cursor)  # fmt: skip
            assert page.examined is not None
            assert page.examined >= len(page.items)
            found += [view.id for view in page.items]
            cursor = page.next
            if cursor is None:
                return found

    def expected(self, wanted: SessionFilter) -> list[str]:
        end = wanted.end_ms
        meant = [
            one for one in self.plain.values()
            if wanted.kind in (None, one.kind)
            and wanted.name in (None, one.name)
            and wanted.label in (None, one.label)
            and (wanted.folder is None or beneath(one.folder, wanted.folder))
            and (not wanted.status or one.status in wanted.status)
            and one.created >= wanted.first_ms
            and (end is None or one.created < end)
        ]  # fmt: skip
        return [one.id for one in sorted(meant, key=lambda o: (o.created, o.id), reverse=True)]

    def random_filter(self) -> SessionFilter:
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
        return SessionFilter.model_validate(given)

    def check(self) -> None:
        for _ in range(4):
            wanted = self.random_filter()
            assert self.listed(wanted) == self.expected(wanted), wanted

    def lines(self) -> set[str]:
        found = self.redis.zrange(self.now.store.keys.everywhere("facts"), 0, -1)
        return {str(line) for line in found if not str(line).startswith("~<")}

    def expected_lines(self) -> set[str]:
        return {line for one in self.plain.values() for line in one.lines}

    def audit(self) -> list[str]:
        found, cursor = [], None
        while True:
            page = self.now.audit.run(cursor=cursor)
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
        beside.act(rolling=False)
        assert beside.lines() == beside.expected_lines(), seed
        beside.check()
    beside.sweep(beside.now)
    assert beside.audit() == [], seed


@pytest.mark.timeout(120)
def test_lists_match_a_plain_list_while_an_older_version_creates_and_deletes(bench: Bench) -> None:
    for seed in range(WALKS):
        _walk_beside_an_older_version(bench, seed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_lists_match_a_plain_list_beside_an_older_version_in_many_more_walks(bench: Bench) -> None:
    for seed in range(WALKS, MANY):
        _walk_beside_an_older_version(bench, seed)


def _walk_beside_an_older_version(bench: Bench, seed: int) -> None:
    bench.restart()
    beside = Beside(bench, seed)
    for _ in range(ACTS):
        beside.act(rolling=True)
        beside.check()
    beside.sweep(beside.now)
    assert beside.lines() >= beside.expected_lines(), seed
    assert {finding.split(":")[0] for finding in beside.audit()} <= {"index_stray"}, seed
    while beside.now.audit.run(repair=True).next is not None:
        pass
    assert beside.lines() == beside.expected_lines(), seed


def test_sessions_of_an_older_version_are_indexed_in_batches(bench: Bench) -> None:
    beside = Beside(bench, 1)
    for _ in range(11):
        beside.create(beside.older)
        beside.wait(beside.random.choice((0, 1)))
    beside.wait(1)
    assert beside.lines() == set()
    sizes, word = [], "more"
    while word == "more":
        beside.check()
        arguments: dict[str, JsonValue] = {"kinds": list(KINDS), "limit": 3}
        word = beside.now.store.run("index_sessions", SessionRef("", ""), "", arguments).word
        sizes.append(len({line.rpartition("<")[2] for line in beside.lines()}))
    assert sizes[:3] == sorted(set(sizes[:3]))  # each call adds some
    assert len(sizes) > 2
    assert beside.lines() == beside.expected_lines()
    beside.check()


def test_a_session_that_an_older_version_creates_in_the_ms_of_a_sweep_is_indexed(
    bench: Bench,
) -> None:
    beside = Beside(bench, 2)
    beside.create(beside.older)
    beside.sweep(beside.now)
    beside.create(beside.older)  # the clock is where the sweep was
    beside.sweep(beside.now)
    assert beside.lines() == beside.expected_lines()


def test_a_session_created_after_the_clock_stepped_back_is_indexed(bench: Bench) -> None:
    beside = Beside(bench, 3)
    beside.create(beside.older)
    beside.sweep(beside.now)
    bench.clock.now -= 600_000
    beside.sweep(beside.now)
    beside.create(beside.older)
    beside.sweep(beside.now)
    assert beside.lines() == beside.expected_lines()
    beside.check()
