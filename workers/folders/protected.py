"""Records the protected files of a folder before a loop, and finds what a doer has changed.

The files are found by walking the folder, and read: git's index and its lists of ignored files
belong to the doer.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import os
import re
import shutil
import stat
import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, JsonValue

from app.core.outcomes import Outcome
from app.truncate import cut
from leadhand.models.documents import Protected
from leadhand.models.text import list_first
from leadhand.models.verdicts import Reason, ReasonCode
from workers.processes.exit_outcome import failed_outcome
from workers.processes.user_folders import claim_session_folder

#: The most protected files, and the most entries of a folder that are looked at.
FILES, ENTRIES = 10_000, 2_000_000
#: The folder of the copies, in the session's spill folder.
PROTECTED = "protected"
#: Of a larger file no copy is kept.
COPY_BYTES = 50 * 1024 * 1024
#: The most files that a reason names.
_NAMED = 10
_TEXT = 2_000
#: The most characters of the differences that a question shows.
_DIFF = 6_000
#: Seconds to look at what a doer that was cancelled has changed.
LOOK_S = 10.0
#: Seconds before the files are read again, if they could not be read.
AGAIN_S = (0.5, 2.0, 5.0)
#: Folders of programs that read their own files there: their content is no work, unless a pattern
#: names them. Bytecode is none in `__pycache__` only: elsewhere Python imports it.
_BY_PRODUCTS = frozenset(
    {".git", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules", ".venv"}
)
_TOKEN = re.compile(r"\*+|\?|\[[!^]?\]?[^\]/]*\]|.", re.DOTALL)

Digests = Mapping[str, str]
Change = Literal["changed", "created", "deleted"]


class TooManyFiles(Exception):
    """The patterns have more files than are recorded."""


class _Cancelled(Exception):
    """The search for files has ended before it had found all of them."""


class NotCompared(Exception):
    """The protected files cannot be read, also not later; the text says why."""


class Protection(BaseModel):
    """The protected files of a doer: the patterns, and the outcome of the step before the loop."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    patterns: tuple[Protected, ...]
    before: JsonValue = None
    #: Whether a person decides about changes, in the steps after the doer.
    asks: bool = False


class Answered(BaseModel):
    """What a person answered about changed protected files, and the files that were shown."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    answer: str | None = None
    #: The digests by name, packed; None before there is a question.
    shown: str | None = None
    is_last: bool = False


class Recorded(BaseModel):
    """What the step before a loop has recorded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int
    #: The digests by name, packed: text in them is no text of the session.
    digests: str
    #: The address of the step.
    at: str


class Taken(NamedTuple):
    """What the store has of the protected files of one step."""

    #: The files that were taken as they were later, packed; '' if there are none.
    packed: str = ""
    #: After a resume: whether what differs is compared, or all of it is taken. None before one.
    resumed: Literal["compare", "accept"] | None = None


class Records(NamedTuple):
    """The session's working folder, and what is stored of its protected files."""

    folder: Path
    #: Returns what is stored for the step at an address.
    read: Callable[[str], Taken]
    #: Stores the files that were taken for the step at an address.
    take: Callable[[str, str], None]


class ProtectedFolder(NamedTuple):
    """The protected files of a working folder, with copies of them in the folder `shelf`."""

    records: Records
    shelf: Path
    cancel: threading.Event

    @property
    def folder(self) -> Path:
        return self.records.folder

    def record(self, patterns: Sequence[Protected], at: str) -> Outcome:
        """Run the step before a loop: record the protected files, and keep copies of them."""
        try:
            found = find(self.folder, patterns, self.cancel)
            self._keep_copies(found)
        except (TooManyFiles, OSError) as error:
            why = f"the protected files cannot be recorded: {error}"
            return failed_outcome(ReasonCode.FAILED_STEP, why)
        if self.cancel.is_set():
            return failed_outcome(ReasonCode.CANCELLED, "the step was cancelled")
        self._write_left({}, {})
        files = "1 file is" if len(found) == 1 else f"{len(found)} files are"
        recorded = Recorded(count=len(found), digests=_pack(found), at=at)
        return Outcome(
            word="succeeded", text=f"{files} protected", value=recorded.model_dump(mode="json")
        )

    def guard(
        self, given: Protection, address: str, body: Callable[[threading.Event], Outcome]
    ) -> Outcome:
        """Run a doer; its outcome is `tampered` if protected files are not as before the loop.

        After a resume, what a doer had changed is put back first, and what a person has changed
        meanwhile is taken.
        """
        recorded = _recorded(given)
        if recorded is None:
            why = "the protected files were not recorded before the loop"
            return failed_outcome(ReasonCode.FAILED_STEP, why)
        try:
            before, note = self._begin(given, recorded)
        except _Cancelled:
            return failed_outcome(ReasonCode.CANCELLED, "the step was cancelled")
        except (NotCompared, OSError) as error:
            return _not_compared(Outcome(word="succeeded"), address, error)
        outcome = body(self.cancel)
        if outcome.reason is not None and outcome.reason.code is ReasonCode.CANCELLED:
            self._note_what_is_left(given, before)
            return outcome
        outcome = self._refuse(outcome, given, before, address)
        warnings = [text for text in (note, outcome.warning) if text]
        return outcome.model_copy(update={"warning": "\n".join(warnings) or None})

    def _find(self, patterns: Sequence[Protected]) -> Digests:
        """Find all files; try it again if they cannot be read. Raises NotCompared and _Cancelled.

        What a cancelled search has not found counts as deleted by nobody.
        """
        for pause_s in (*AGAIN_S, None):
            try:
                found = find(self.folder, patterns, self.cancel)
            except OSError as error:
                if pause_s is None:
                    raise NotCompared(str(error)) from None
                self.cancel.wait(pause_s)
            except TooManyFiles as error:
                raise NotCompared(str(error)) from None
            else:
                if not self.cancel.is_set():
                    return found
            if self.cancel.is_set():
                raise _Cancelled
        raise AssertionError

    def _begin(self, given: Protection, recorded: Recorded) -> tuple[Digests, str]:
        """Return the files as they must be, and a warning about what was put back or taken."""
        stored = self.records.read(recorded.at)
        before = _with_taken(_unpack(recorded.digests), stored.packed)
        if stored.resumed is None:
            self._left.unlink(missing_ok=True)
            return before, ""
        left = self._read_left()
        put_back = self._put_back(given, before, left or {}) if stored.resumed != "accept" else []
        now = self._find(given.patterns)
        changed = [*compare(before, now, given.patterns)]
        if stored.resumed != "accept":
            # Without a comparison after the last doer, nothing tells its changes from a person's.
            changed = [
                name for name in changed if left is not None and left.get(name, "") != now.get(name)
            ]
        taken = {name: now.get(name) for name in changed}
        self._keep_copies({name: digest for name, digest in taken.items() if digest is not None})
        self.records.take(recorded.at, _pack({**_taken(stored.packed), **taken}))
        self._left.unlink(missing_ok=True)
        return _overlay(before, taken), _note(put_back, changed, stored.resumed)

    def _refuse(
        self, outcome: Outcome, given: Protection, before: Digests, address: str
    ) -> Outcome:
        try:
            after = self._find(given.patterns)
        except _Cancelled:
            return failed_outcome(ReasonCode.CANCELLED, "the doer was cancelled")
        except NotCompared as error:
            return _not_compared(outcome, address, error)
        changes = compare(before, after, given.patterns)
        self._write_left(changes, after)
        if not changes or given.asks:
            return outcome
        return _tampered(outcome, address, _text(changes))

    def look(self, given: Protection, answered: Answered, address: str) -> Outcome:
        """Run a step after a doer: ask a person about changed files, or do what that answered."""
        recorded = _recorded(given)
        if recorded is None:
            why = "the protected files were not recorded before the loop"
            return failed_outcome(ReasonCode.FAILED_STEP, why)
        taken = _taken(self.records.read(recorded.at).packed)
        before = _overlay(_unpack(recorded.digests), taken)
        try:
            after = self._find(given.patterns)
        except _Cancelled:
            return failed_outcome(ReasonCode.CANCELLED, "the step was cancelled")
        except NotCompared as error:
            return _not_compared(Outcome(word="succeeded"), address, error)
        changes = compare(before, after, given.patterns)
        now = {name: after.get(name) for name in changes}
        if not changes:
            nothing: JsonValue = {"question": None, "files": None}
            return Outcome(word="succeeded", text="no protected file has changed", value=nothing)
        if answered.shown is not None and answered.answer != "yes":
            why = f"{_text(changes)}; the change was refused"
            return _tampered(Outcome(word="succeeded"), address, why)
        if answered.shown is not None and _taken(answered.shown) == now:
            return self._accept(recorded.at, taken, now)
        if answered.is_last:
            why = "protected files changed again while a person was asked about them"
            return failed_outcome(ReasonCode.CONTESTED, f"{why}: {list_first([*now], _NAMED)}")
        value: JsonValue = {"question": self._question(before, changes), "files": _pack(now)}
        return Outcome(word="succeeded", text=_text(changes), value=value)

    def _accept(
        self, at: str, taken: Mapping[str, str | None], now: Mapping[str, str | None]
    ) -> Outcome:
        self._keep_copies({name: digest for name, digest in now.items() if digest is not None})
        self.records.take(at, _pack({**taken, **now}))
        self._write_left({}, {})
        text = f"protected files were taken as a person allowed: {list_first([*now], _NAMED)}"
        nothing: JsonValue = {"question": None, "files": None}
        return Outcome(word="succeeded", text=text, value=nothing, warning=cut(text, _TEXT))

    def _question(self, before: Digests, changes: Mapping[str, Change]) -> str:
        diffs = [self._diff(name, before.get(name)) for name in [*changes][:_NAMED]]
        shown = cut("\n".join(filter(None, diffs)), _DIFF)
        ask = "Take this change? `yes`: the files count as they are now. `no`: the session ends."
        return f"{_text(changes)}.\n\n{shown}\n\n{ask}"

    def _diff(self, name: str, digest: str | None) -> str:
        """The difference of a text file; '' for other files, large ones and links."""
        copy, path = self.shelf / (digest or ""), self.folder / name
        old = _lines(copy) if digest is not None and digest[0] in "fx" else []
        new = _lines(path) if path.is_file() and not path.is_symlink() else []
        found = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="")
        return "\n".join(found)

    def _note_what_is_left(self, given: Protection, before: Digests) -> None:
        """Note what a doer that was cancelled has changed, so that it is not taken for a person's.

        If that takes too long, nothing is noted: then all changes count as the doer's.
        """
        late = threading.Event()
        timer = threading.Timer(LOOK_S, late.set)
        timer.start()
        try:
            after = find(self.folder, given.patterns, late)
        except (TooManyFiles, OSError):
            return
        finally:
            timer.cancel()
        if not late.is_set():
            self._write_left(compare(before, after, given.patterns), after)

    def _put_back(
        self, given: Protection, before: Digests, left: Mapping[str, str | None]
    ) -> list[str]:
        """Undo what a doer has changed; returns the names of the files.

        A file that has changed again since then may be a person's, and stays.
        """
        now = self._find(given.patterns)
        same = [name for name, digest in left.items() if now.get(name) == digest]
        # Created files first: a link may be in place of a folder.
        done = [name for name in same if name not in before and self._remove(name, before)]
        done += [name for name in same if name in before and self._restore(name, before[name])]
        return done

    def _write_left(self, changes: Iterable[str], after: Digests) -> None:
        claim_session_folder(self.shelf)
        self._left.write_text(json.dumps({name: after.get(name) for name in changes}))

    def _read_left(self) -> dict[str, str | None] | None:
        """What the last doer had changed; None if that was not compared."""
        try:
            found: dict[str, str | None] = json.loads(self._left.read_text())
        except (OSError, ValueError):
            return None
        return found

    @property
    def _left(self) -> Path:
        """The file that names what a doer has changed, with the digests that it left."""
        return self.shelf / "tampered"

    def _keep_copies(self, found: Digests) -> None:
        claim_session_folder(self.shelf)
        for name, digest in found.items():
            path, copy = self.folder / name, self.shelf / digest
            if digest[0] not in "fxl" or copy.exists():
                continue
            if digest[0] == "l":
                copy.write_bytes(os.fsencode(path.readlink()))
            elif path.stat().st_size <= COPY_BYTES:
                shutil.copyfile(path, copy)

    def _remove(self, name: str, before: Digests) -> bool:
        """Remove a created file; of one behind a link, the link if it is new."""
        for folder in [*Path(name).parents][-2::-1]:
            if (self.folder / folder).is_symlink():
                if any(one.startswith(f"{folder}/") for one in before):
                    return False
                (self.folder / folder).unlink()
                return True
        (self.folder / name).unlink(missing_ok=True)
        return True

    def _restore(self, name: str, digest: str) -> bool:
        """Write a file as it was, in place of what is there; returns whether that was possible."""
        path, copy = self.folder / name, self.shelf / digest
        if not copy.is_file() or (path.is_dir() and not path.is_symlink()):
            return False
        if digest[0] != "l" and _content(copy).hex() != digest[1:]:
            return False  # the copy is another file
        for folder in [*path.relative_to(self.folder).parents][-2::-1]:
            above = self.folder / folder
            if above.is_symlink() or not above.is_dir():
                above.unlink(missing_ok=True)
                above.mkdir()
        path.unlink(missing_ok=True)
        if digest[0] == "l":
            path.symlink_to(os.fsdecode(copy.read_bytes()))
            return True
        shutil.copyfile(copy, path)
        path.chmod(0o755 if digest[0] == "x" else 0o644)
        return True


def _recorded(given: Protection) -> Recorded | None:
    value = given.before.get("value") if isinstance(given.before, dict) else None
    return None if value is None else Recorded.model_validate(value)


def _taken(packed: str) -> dict[str, str | None]:
    return {**_unpack(packed)} if packed else {}


def _with_taken(before: Digests, packed: str) -> Digests:
    return _overlay(before, _taken(packed))


def _overlay(before: Digests, taken: Mapping[str, str | None]) -> Digests:
    """The files before the loop, with those that were taken since; None for a deleted one."""
    whole = {**before, **taken}
    return {name: digest for name, digest in whole.items() if digest is not None}


def _note(put_back: Sequence[str], taken: Sequence[str], resumed: str | None) -> str:
    who = "as they are now" if resumed == "accept" else "as a person's, who changed them meanwhile"
    parts = [
        f"put back before the doer: {list_first(put_back, _NAMED)}" if put_back else "",
        f"protected files were taken {who}: {list_first(taken, _NAMED)}" if taken else "",
    ]
    return cut("; ".join(filter(None, parts)), _TEXT)


def _not_compared(outcome: Outcome, address: str, why: Exception) -> Outcome:
    """The outcome of a step after which nothing can compare the files, as of a lost check."""
    text = f"the protected files cannot be compared: {why}"
    return _ended(outcome, ReasonCode.CHECKER_DOWN, address, text)


def _tampered(outcome: Outcome, address: str, why: str) -> Outcome:
    return _ended(outcome, ReasonCode.TAMPERED, address, why)


def _ended(outcome: Outcome, code: ReasonCode, address: str, why: str) -> Outcome:
    """The outcome of a doer, or of a check of its files, which ends the loop without checkers."""
    return outcome.model_copy(
        update={
            "word": "succeeded",
            "verdict": "terminate",
            "reason": Reason(code=code, text=why, at=address),
            "busy": None,
            "decided_by": code.value,
        }
    )


def _text(changes: Mapping[str, Change]) -> str:
    what = "1 protected file was" if len(changes) == 1 else f"{len(changes)} protected files were"
    named = [f"{name} ({how})" for name, how in changes.items()]
    return cut(f"{what} changed since the loop began: {list_first(named, _NAMED)}", _TEXT)


def compare(before: Digests, after: Digests, patterns: Sequence[Protected]) -> dict[str, Change]:
    """Returns what is not as before, by name, without new files that a pattern allows."""
    strict = _Patterns([one for one in patterns if "create" not in one.allow])
    changes: dict[str, Change] = {}
    for name in sorted({*before, *after}):
        if name not in after:
            changes[name] = "deleted"
        elif name in before:
            if before[name] != after[name]:
                changes[name] = "changed"
        elif strict.match(name):
            changes[name] = "created"
    return changes


def find(folder: Path, patterns: Sequence[Protected], cancel: threading.Event) -> dict[str, str]:
    """Returns the digests of the protected files, by path from the folder.

    A file behind a link to a folder has another digest than one in the folder. Raises OSError for
    a file that cannot be read, TooManyFiles.
    """
    wanted, found = _Patterns(patterns), dict[str, str]()
    with closing(_walk(folder, wanted, cancel)) as files:
        for file in files:
            if not wanted.match(file.name):
                continue
            with suppress(FileNotFoundError):  # another program has removed it meanwhile
                found[file.name] = "@" * file.is_linked + _digest(file.path)
            if len(found) > FILES:
                raise TooManyFiles(f"the patterns have more than {FILES} files; protect fewer")
    return found


def _lines(file: Path) -> list[str]:
    try:
        if file.stat().st_size > _DIFF * 10:
            return []
        return file.read_text(errors="replace").splitlines()
    except OSError:
        return []


class _Patterns:
    """Patterns of files, as in .gitignore."""

    def __init__(self, patterns: Sequence[Protected]) -> None:
        texts = [one.pattern.strip("/") for one in patterns]
        #: A pattern with a slash within it, as `tests/**`, begins at the folder itself.
        anchored = ["/" in text for text in texts]
        whole = [
            _regex(text, deep=not is_anchored)
            for text, is_anchored in zip(texts, anchored, strict=True)
        ]
        self._regex = re.compile("|".join(whole) or r"(?!)", re.DOTALL)
        #: Where the walk begins for each pattern: the folders before its first wildcard.
        self._starts = [
            _start(text) if is_anchored else ""
            for text, is_anchored in zip(texts, anchored, strict=True)
        ]
        self._named = {part for text in texts for part in text.split("/")}

    def match(self, name: str) -> bool:
        return self._regex.fullmatch(name) is not None

    def enters(self, name: str, path: Path) -> bool:
        """Whether files below a folder may match.

        The packages of a virtual environment are no work, unless all of the folder is protected.
        """
        last, below = name.rpartition("/")[2], f"{name}/"
        if last in _BY_PRODUCTS and last not in self._named:
            return False
        if not any(below.startswith(start) or start.startswith(below) for start in self._starts):
            return False
        return self.match(f"{below}x") or not (path / "pyvenv.cfg").exists()


def _regex(text: str, *, deep: bool) -> str:
    """The regular expression of a pattern; a folder stands for all that is below it."""
    parts = ["(?:.*/)?"] if deep else []
    names = text.split("/")
    for number, name in enumerate(names, 1):
        if name == "**":
            parts.append(".*" if number == len(names) else "(?:.*/)?")
        else:
            parts.append("".join(map(_token, _TOKEN.findall(name))))
            parts.append("/" if number < len(names) else "(?:/.*)?")
    return f"(?:{''.join(parts)})"


def _token(word: str) -> str:
    if word[0] == "*":
        return "[^/]*"
    if word == "?":
        return "[^/]"
    if len(word) > 1:
        inside = word[1:-1].replace("\\", "\\\\")
        return f"[^{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]"
    return re.escape(word)


def _start(text: str) -> str:
    fixed = re.split(r"[*?\[]", text, maxsplit=1)[0]
    return f"{text}/" if fixed == text else fixed.rpartition("/")[0] + "/" * ("/" in fixed)


class _File(NamedTuple):
    name: str
    path: Path
    #: Whether a folder above it is a link.
    is_linked: bool


class _Folder(NamedTuple):
    path: Path
    name: str = ""
    is_linked: bool = False
    #: The folders above it, so that a link that leads back is not followed.
    above: frozenset[tuple[int, int]] = frozenset()


def _walk(top: Path, wanted: _Patterns, cancel: threading.Event) -> Generator[_File, None, None]:
    """All files and links below a folder, also behind links: test runners follow these."""
    todo, entries = [_Folder(top)], 0
    while todo and not cancel.is_set():
        folder = todo.pop()
        status = folder.path.stat()
        itself = (status.st_dev, status.st_ino)
        if itself in folder.above:
            continue
        with os.scandir(folder.path) as scanned:
            for entry in scanned:
                entries += 1
                if entries > ENTRIES:
                    raise TooManyFiles(
                        f"the folder has more than {ENTRIES} files; use other patterns"
                    )
                name = folder.name + os.fsencode(entry.name).decode(errors="backslashreplace")
                is_link = entry.is_symlink()
                path, is_folder = Path(entry.path), entry.is_dir()
                if is_folder and wanted.enters(name, path):
                    is_linked, above = folder.is_linked or is_link, folder.above | {itself}
                    todo.append(_Folder(path, f"{name}/", is_linked, above))
                if (is_link or not is_folder) and not _is_by_product(name):
                    yield _File(name, path, folder.is_linked)


def _is_by_product(name: str) -> bool:
    folders, _, last = name.rpartition("/")
    return last.endswith(".pyc") and folders.rpartition("/")[2] == "__pycache__"


def _digest(path: Path) -> str:
    """The kind of a file, whether it may be run, and its content; of a link both ends."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        mixed = hashlib.blake2b(os.fsencode(path.readlink()), digest_size=20)
        try:
            if path.is_file():
                mixed.update(_content(path))
        except OSError as error:
            mixed.update(f"{error.errno}".encode())
        return f"l{mixed.hexdigest()}"
    if not stat.S_ISREG(status.st_mode):
        return "o"
    kind = "x" if status.st_mode & stat.S_IXUSR else "f"
    return kind + _content(path).hex()


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).digest()


def _pack(digests: Mapping[str, str | None]) -> str:
    return base64.b64encode(zlib.compress(json.dumps(digests).encode())).decode()


def _unpack(packed: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return found
