"""Prints the measures of the product's structure for a revision and for the working tree.

With `--walk`, prints the modules of `app` that a submit, a claim and a settle enter, in order. With
`--check`, reports operations that are named in too many files, and a submit that enters too many
rooms.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from types import FrameType
from typing import NamedTuple, TypeVar

from pydantic import JsonValue, TypeAdapter

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Program
from app.core.records import Hint, QueueDepth
from app.engine import Engine
from app.fleet.inventory import text_of
from app.sessions.attempts import Work
from app.settings import Settings
from app.store.store import Store, connect
from leadhand.contract.operation import Operation
from leadhand.contract.operations import NOUNS
from leadhand.flows.documents import AnyDocument
from leadhand.local.redis_server import RedisServer

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("app", "tasks", "workers", "api", "leadhand")
ENDINGS = (".py", ".lua")
T = TypeVar("T")
_DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
#: The inventory of the worker that a submit finds.
_WORKER: dict[str, JsonValue] = {
    "place": "here",
    "default_agent": "coder",
    "agents": ["coder"],
    "agents_here": [{"name": "coder", "kind": "command", "command": "coder"}],
}
_DONE = Outcome(word="succeeded", text="done")
#: Files that name an operation: its declaration, its handler, and two more, such as the dashboard.
PLACES = 4
#: Rooms that a submit of each kind may enter.
ROOMS = {"loop": 15, "flow": 19}
#: Modules that are no rooms: the rules and values around which the rooms are, and what lies below.
CORE = ("app.core.", "app.settings", "app.errors", "app.logs", "app.redaction", "app.truncate")
#: Ten operations: the words by which each goes in routes, methods, handlers, commands and tools.
OPERATIONS = {
    "rehome": r"rehome",
    "take messages": r"take_messages|inbox[./]read|inbox\.take",
    "receipt": r"receipt",
    "statistics": r"statistics",
    "fsck": r"fsck",
    "sign-in link": r"sign[-_]in[-_]links?",
    "annotate": r"annotate",
    "notify parent": r"notify_parent|parent_notice",
    "decide proposal": r"decide_proposal|plans\.decide|proposal_decided?",
    "reset guards": r"reset_guards|guards?[./_]reset",
}


def main() -> int:
    """Print a table: what is measured, then, now; returns 1 if a check finds something."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("revision", nargs="?", default="HEAD", help="what to compare with (HEAD)")
    options.add_argument("--check", action="store_true", help="report what is over its limit")
    options.add_argument("--walk", action="store_true", help="show what a submit enters, in order")
    given = options.parse_args()
    if given.walk:
        print(*(f"{name}\n{table(visits)}\n" for name, visits in walks().items()), sep="\n")
        return 0
    if given.check:
        found = [*scattered(files_here()), *crowded(walks())]
        print(*found or ["operations and submits are within their limits"], sep="\n")
        return 1 if found else 0
    revision = given.revision
    before, now = measures(files_of(revision)), measures(files_here())
    print(f"{'':24}{revision[:12]:>14}{'working tree':>14}")
    for name, value in now.items():
        print(f"{name:24}{before[name]:>14}{value:>14}")
    return 0


def scattered(files: Mapping[str, str]) -> Iterator[str]:
    """Yield an error for each operation whose constant, name or word is in too many files."""
    trees = {name: ast.parse(text) for name, text in files.items() if name.endswith(".py")}
    names = {
        (noun.__name__.rpartition(".")[2], constant): one.name
        for noun in NOUNS
        for constant, one in vars(noun).items()
        if isinstance(one, Operation)
    }
    places = defaultdict(set)
    for file, tree in trees.items():
        for one in ast.walk(tree):
            match one:
                case ast.Attribute(value=ast.Name(id=noun), attr=name) if (noun, name) in names:
                    places[names[noun, name]].add(file)
                case ast.Constant(value=str(name)):
                    places[name].add(file)
                case _:
                    pass
    by_constant = {name: places[name] for name in names.values()}
    for name, found in [*by_constant.items(), *_files_by_word(trees).items()]:
        if len(found) > PLACES:
            yield f"{name} is in {len(found)} files: {', '.join(sorted(found))}"


def _files_by_word(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Return the files that name each of the ten operations by its word."""
    texts = {file: "\n".join(_names(tree)) for file, tree in trees.items()}
    patterns = {
        operation: re.compile(rf"(?<![A-Za-z])(?:{words})(?![a-z])")
        for operation, words in OPERATIONS.items()
    }
    return {
        operation: {file for file, text in texts.items() if pattern.search(text)}
        for operation, pattern in patterns.items()
    }


class Visit(NamedTuple):
    """A module of `app` in one call: how often control came (back) to it, and its calls."""

    module: str
    entered: int
    calls: int

    @property
    def is_room(self) -> bool:
        """Whether the module counts: whatever is in the core, or below it, is everywhere."""
        return not self.module.startswith(CORE)


def crowded(found: Mapping[str, Sequence[Visit]]) -> Iterator[str]:
    """Yield an error for each submit that enters more rooms than it may."""
    for kind, most in ROOMS.items():
        rooms = [one.module for one in found[f"submit of a {kind}"] if one.is_room]
        if len(rooms) > most:
            yield f"a submit of a {kind} enters {len(rooms)} rooms, over {most}: {', '.join(rooms)}"


def table(visits: Sequence[Visit]) -> str:
    """Return the visits as lines, in the order in which the modules were first entered."""
    rooms = sum(one.is_room for one in visits)
    lines = [f"  {one.module:34}{one.entered:4}{one.calls:5}" for one in visits]
    entered = sum(one.entered for one in visits)
    last = f"  {rooms} rooms, {len(visits)} modules, entered {entered} times"
    return "\n".join([f"  {'module':34}{'in':>4}{'calls':>6}", *lines, last])


def visits_of(call: Callable[[], T]) -> tuple[T, list[Visit]]:
    """Profile a call; returns what it returns, and the modules of `app` that it enters."""
    path: list[str] = []
    entered, calls = dict[str, int](), defaultdict[str, int](int)
    last = ""

    def come(module: str) -> None:
        nonlocal last
        if module != last:
            entered[module] = entered.get(module, 0) + 1
            last = module

    def follow(frame: FrameType, event: str, _: object) -> None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith("app."):
            return
        if event == "call":
            path.append(module)
            calls[module] += 1
            come(module)
        elif event == "return":
            path.pop()
            if path:
                come(path[-1])

    sys.setprofile(follow)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, [Visit(module, entered[module], calls[module]) for module in entered]


class _Messages:
    """Keeps the last message; there is no worker."""

    last: Hint

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:  # noqa: ARG002
        self.last = hints[-1]

    def publish_all(self, batch: Sequence[tuple[SessionRef, Program, Sequence[Hint]]]) -> None:
        for ref, program, hints in batch:
            self.publish(ref, program, hints)

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:  # noqa: ARG002
        return {}

    def strays(
        self,
        gone: Callable[[str, Sequence[str]], set[str]],  # noqa: ARG002
        *,
        drop: bool,  # noqa: ARG002
    ) -> Sequence[QueueDepth]:
        return []


def walks() -> dict[str, list[Visit]]:
    """Return what a submit, a claim and a settle enter, on an engine that has done each before."""
    sent = _Messages()
    with tempfile.TemporaryDirectory() as home, RedisServer(Path(home)) as server:
        client = connect(server.url)
        engine = Engine(
            Store(client), sent, Settings.model_validate({"secret": "of a walk", "place": "here"})
        )
        now_ms = engine.store.now_ms()
        inventory = text_of(_WORKER, now_ms=now_ms, holds_ms=3_600_000)
        engine.store.fleet().publish_inventory("walk", inventory)
        _walk(engine, sent, Path(home, "before"))
        found = _walk(engine, sent, Path(home, "again"))
        client.close()
    return found


def _walk(engine: Engine, sent: _Messages, folder: Path) -> dict[str, list[Visit]]:
    """Submit a flow and a loop, then carry out the doer of the loop."""
    folder.mkdir()
    task, cwd = folder.name, str(folder)
    work = {"task": task, "doer": {"command": "true"}, "checkers": [{"prompt": "Is it done?"}]}
    step = {
        "type": "llm",
        "agentType": "coder",
        "identifier": "one",
        "messages": [{"role": "user", "content": [task]}],
    }
    documents = {
        "flow": {"kind": "flow", "name": "walk", "steps": [step], "cwd": cwd},
        "loop": {"kind": "loop", **work, "cwd": cwd},
    }
    found, sessions = dict[str, list[Visit]](), list[str]()
    for kind, given in documents.items():
        document = _DOCUMENT.validate_python(given)
        submitted, visits = visits_of(partial(engine.submit.document, document))
        found[f"submit of a {kind}"] = visits
        sessions.append(submitted.session)
    ref = engine.registry.ref(sessions[-1])
    doer, found["claim of its doer"] = visits_of(partial(_claim, engine, ref, sent.last.address))
    settle = partial(engine.attempts.settle, doer, _DONE, take=(), worker="walk")
    _, found["settle of its doer"] = visits_of(settle)
    return found


def _claim(engine: Engine, ref: SessionRef, address: str) -> Work:
    reply = engine.attempts.claim(ref, address, nonce="walk", worker="walk")
    return engine.attempts.work(ref, reply.grants[0])


def files_of(revision: str) -> dict[str, str]:
    """Return the product's files of a revision by their paths."""
    archive = ("git", "archive", revision, "--", *PACKAGES)
    packed = subprocess.run(archive, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        files = [one for one in tar if one.isfile() and one.name.endswith(ENDINGS)]
        found = {one.name: tar.extractfile(one) for one in files}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


def files_here() -> dict[str, str]:
    """Return the product's files of the working tree by their paths."""
    listing = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *PACKAGES)
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [name for name in names.splitlines() if name.endswith(ENDINGS)]
    return {name: (ROOT / name).read_text() for name in paths if (ROOT / name).is_file()}


def measures(files: Mapping[str, str]) -> dict[str, str]:
    """Return each measure of the files as a text."""
    lines = {name: text.count("\n") for name, text in files.items()}
    trees = {name: ast.parse(text) for name, text in files.items() if name.endswith(".py")}
    python = sum(lines[name] for name in trees)
    imports = sum(_import_lines(tree) for tree in trees.values())
    found = {
        "lines": f"{sum(lines.values()):,}",
        "files": f"{len(files)}",
        "folders": f"{len({PurePosixPath(name).parent for name in files})}",
        "import lines": f"{imports / max(python, 1):.1%}",
    }
    places = _files_by_word(trees)
    return found | {f"files: {name}": f"{len(files)}" for name, files in places.items()}


def _import_lines(tree: ast.Module) -> int:
    imports = [one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    return sum((one.end_lineno or one.lineno) - one.lineno + 1 for one in imports)


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield the identifiers and the words of a module, without docstrings and sentences."""
    docs = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    for one in ast.walk(tree):
        match one:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.alias(name=name):
                yield name
            case ast.Attribute(attr=name):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.Constant(value=str(text)) if id(one) not in docs and " " not in text:
                yield text


if __name__ == "__main__":
    sys.exit(main())
