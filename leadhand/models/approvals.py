"""Which files of a folder its user has approved, by path and content (decisions: security).

The store is a JSON object: the path of each file, and the SHA-256 of its approved texts in
hexadecimal, the newest first. A session keeps the text with which it was submitted, so earlier ones
stay approved for definitions until the approval is withdrawn.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from leadhand.file_stamp import Stamp, stamp_of
from leadhand.models.git_settings import repository_top

#: The most files and bytes of a folder that is approved as a whole.
MOST_FILES, MOST_BYTES = 1000, 4 * 1024 * 1024
#: The most approved texts of a file that are kept.
MOST_TEXTS = 16
#: Where Python keeps compiled files.
CACHE = "__pycache__"
_ROOT = 0
#: Why a definition of a folder is not used for a token with few scopes.
LIMITED = "is not approved as it is, and the session was submitted without exec:free"
#: How a file that may not be used says so.
FOREIGN = (
    "belongs to another user, who could change what runs here; make it yours with chown, or"
    " remove it"
)


class Unapprovable(ValueError):
    """A folder cannot be approved as a whole; the text says why and what to do."""


class Approvals(NamedTuple):
    """Tells which definitions of a folder may apply; without a folder all may."""

    #: The folder whose files need an approval, such as a clone of somebody's repository.
    folder: Path | None = None
    #: The file that has the approvals.
    store: Path | None = None
    #: Whether nothing of the folder applies without one, for a token without exec:free.
    strict: bool = False

    def stamp(self) -> Stamp:
        """Return a fingerprint that changes with the file of approvals; empty without one."""
        return () if self.store is None else stamp_of(self.store)

    def covers(self, file: Path) -> bool:
        """Whether a definition file is one of the folder, and none that always applies."""
        return self.folder is not None and file.absolute().parent == self.folder.absolute()

    def lack(self, file: Path, text: str) -> bool:
        """Whether a definition file needs the user's approval, and this text of it has none."""
        if not self.covers(file):
            return False
        if self.store is None:
            return self.strict
        return not is_approved(self.store, file, digest_of(text), earlier=True)

    def is_withdrawn(self, file: Path) -> bool:
        """Whether a definition file of the folder has no approval, whatever its text."""
        if not self.covers(file) or self.store is None:
            return False
        known = read_approvals(self.store)
        return not any(key in known for key in _keys(file))

    def why_not(self, part: Path) -> str | None:
        """Return why the folder `part` of definitions may not be used; None if it may.

        Only strict approvals need that of a folder as a whole.
        """
        if not self.strict or self.folder is None or part.parent != self.folder:
            return None
        try:
            text = text_of_folder(part)
        except Unapprovable as error:
            return str(error)
        return f"{part} {LIMITED}; {self.hint} --all`" if self.lack(part, text) else None

    @property
    def hint(self) -> str:
        """Return a hint for the user: the command that approves the files of the folder."""
        return f"look at it, then run `leadhand trust {self.folder}"


#: For files that all apply, such as those of LEADHAND_AGENTS.
NONE_NEEDED = Approvals()


def read_approvals(store: Path) -> dict[str, list[str]]:
    """Reads the approved digests of each file, newest first; empty if the store is unreadable."""
    try:
        fields = json.loads(store.read_text())
    except (OSError, ValueError):
        return {}
    return fields if isinstance(fields, dict) else {}


def is_approved(store: Path, file: Path, digest: str, *, earlier: bool = False) -> bool:
    """Whether the user approved a file with the text of this digest, last or also `earlier`.

    In a worktree of a repository, the approval of the same file in its main folder counts, too.
    """
    known = read_approvals(store)
    return any(digest in known.get(key, [])[: None if earlier else 1] for key in _keys(file))


def approval_key(file: Path) -> str:
    """Returns the key of a file in the store of approvals: the real folder and the file's own name.

    A link keeps its own name.
    """
    return str(file.parent.resolve() / file.name)


def digest_of(text: str) -> str:
    """Returns the SHA-256 digest (hex) of a file's text, which an approval records."""
    return hashlib.sha256(text.encode()).hexdigest()


def text_of_folder(folder: Path) -> str:
    """Returns the files of a folder as one text, for an approval of all; '' without any.

    Python writes the files in `__pycache__` anew, unless their header forbids that: those count.
    Raises Unapprovable for a folder that is too large to be read by a person.
    """
    parts, size = list[str](), 0
    for file in _files_in(folder):
        try:
            content = file.read_bytes() if file.is_file() else b""
        except OSError as error:
            raise Unapprovable(f"{file} cannot be read: {error.strerror}") from None
        if file.parent.name == CACHE and not _is_never_checked(content):
            continue
        size += len(content)
        if size > MOST_BYTES or len(parts) == MOST_FILES:
            limit = f"{MOST_FILES} files and {MOST_BYTES // 1024} kB"
            raise Unapprovable(f"{folder} has more than {limit}; move other files out of it")
        digest = hashlib.sha256(content).hexdigest()
        header = f"== {file.relative_to(folder)}: {len(content)} bytes, SHA-256 {digest}"
        parts.append(f"{header}\n{_as_text(content)}")
    return "\n".join(parts)


def is_foreign(path: Path) -> bool:
    """Whether neither this user nor root owns a file, or the link of this name."""
    try:
        owners = {path.stat().st_uid, path.lstat().st_uid}
    except OSError:
        return False
    return bool(owners - {os.getuid(), _ROOT})


def _files_in(folder: Path) -> Iterator[Path]:
    """The files of a folder and those below it, also behind links, in a stable order."""
    for above, names, files in os.walk(folder, followlinks=True):
        names.sort()
        yield from (Path(above, name) for name in sorted(files))


def _is_never_checked(compiled: bytes) -> bool:
    """Whether Python runs a compiled file without a look at its source (PEP 552)."""
    return int.from_bytes(compiled[4:8], "little") & 0b11 == 0b01


def _as_text(content: bytes) -> str:
    """A file's text; nothing of a binary file, whose digest is in the header."""
    try:
        return content.decode() if b"\0" not in content else ""
    except UnicodeDecodeError:
        return ""


def _keys(file: Path) -> list[str]:
    own = approval_key(file)
    main = _in_main_folder(Path(own))
    return [own] if main is None else [own, str(main)]


def _in_main_folder(file: Path) -> Path | None:
    """The same file in the main folder of the repository, for one in another worktree of it.

    The repository itself has to list the worktree: a folder cannot claim to be one.
    """
    top = repository_top(file.parent)
    if top is None or not (top / ".git").is_file():
        return None
    try:
        private = (top / (top / ".git").read_text().removeprefix("gitdir:").strip()).resolve()
        common = private.parent.parent
        listed = (private / (private / "gitdir").read_text().strip()).resolve()
    except (OSError, ValueError):
        return None
    if private.parent.name != "worktrees" or common.name != ".git" or listed != top / ".git":
        return None
    return common.parent / file.relative_to(top)
