"""A folder of artifacts: each file is named by the SHA-256 of its bytes, and never changes.

A file is complete once it has its name: it is written elsewhere, flushed and renamed. Storing a
file that exists makes it young again, so that the sweep does not remove it before its new
reference is recorded. A lock on the folder excludes one from the other.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from app.core.addresses import SessionRef
from app.core.artifacts import YOUNG_S, is_digest
from leadhand.errors import ArtifactChanged, ArtifactsFull, ArtifactUnknown

#: Files whose references are looked up in one call.
AT_ONCE = 200
#: Seconds for which the total size is not read again.
_SIZE_S = 60.0
_PARTS = "incoming"
_LOCK = ".lock"
_NO_ROOM = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "its disk quota is used up",
    errno.EROFS: "its file system is read-only",
    errno.EACCES: "this process may not write there",
    errno.EPERM: "this process may not write there",
}


class Limits(NamedTuple):
    """The most bytes of one artifact, and of all together."""

    each: int
    total: int


class Part(NamedTuple):
    """A part of an upload: its first byte, and the size of the whole artifact."""

    at: int
    size: int
    data: bytes


class ArtifactFolder:
    """Stores and reads artifacts. Methods that write raise ArtifactsFull."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self._limits = limits
        self._size = 0
        self._sized_at: float | None = None

    def put_file(self, digest: str, source: Path) -> None:
        """Copy a file into the folder under its digest; if it is there already, renew only its age.

        Raises ArtifactChanged if its bytes have another digest.
        """
        size = source.stat().st_size
        self._check_size(size)
        with self._translate_errors():
            if self._renew(digest):
                return
            self._check_total(size)
            draft = self._draft(secrets.token_hex(8))
            try:
                shutil.copyfile(source, draft)
                self._adopt(draft, digest)
            finally:
                draft.unlink(missing_ok=True)

    def put_part(self, digest: str, upload: str, part: Part) -> bool:
        """Store the next part of an upload; returns whether the artifact is complete.

        `upload` names the attempt that uploads. A repeated part changes nothing. Raises
        ArtifactChanged for a gap, or if the whole has another digest.
        """
        self._check_size(part.size)
        if part.at + len(part.data) > part.size:
            raise ArtifactChanged(digest, f"a part ends after byte {part.size}, its announced size")
        with self._translate_errors():
            if self._renew(digest):
                return True
            draft = self._draft(f"{hashlib.sha256(upload.encode()).hexdigest()[:16]}.{digest}")
            known = draft.stat().st_size if draft.exists() else 0
            if part.at > known:
                raise ArtifactChanged(digest, f"bytes {known} to {part.at} are missing")
            if part.at == 0:
                self._check_total(part.size)
            with draft.open("r+b" if draft.exists() else "w+b") as file:
                file.seek(part.at)
                file.write(part.data)
            if part.at + len(part.data) < part.size:
                return False
            try:
                self._adopt(draft, digest)
            finally:
                draft.unlink(missing_ok=True)
        return True

    def read(self, digest: str, *, at: int = 0, limit: int | None = None) -> bytes | None:
        """Return bytes of an artifact from a position on; None if the folder does not have it."""
        try:
            with self._file(digest).open("rb") as file:
                file.seek(at)
                return file.read() if limit is None else file.read(limit)
        except FileNotFoundError:
            return None

    def path_of(self, digest: str) -> Path | None:
        """Return the path of an artifact; None if the folder does not have it."""
        path = self._file(digest)
        return path if path.is_file() else None

    def sweep(
        self,
        referenced: Callable[[Collection[str]], Collection[str]],
        *,
        now_s: float | None = None,
    ) -> list[str]:
        """Delete old artifacts that no session refers to, and old uploads; returns the digests.

        `referenced` returns those of these digests that some session refers to. References are read
        while nothing can be stored, so an artifact is removed only if it is old at that moment.
        """
        now_s = time.time() if now_s is None else now_s
        removed: list[str] = []
        old = [file for file in self._files() if _is_old(file, now_s)]
        for start in range(0, len(old), AT_ONCE):
            batch = old[start : start + AT_ONCE]
            with self._locked():
                known = referenced([file.name for file in batch])
                for file in batch:
                    if file.name not in known and _is_old(file, now_s):
                        file.unlink(missing_ok=True)
                        removed.append(file.name)
        with suppress(FileNotFoundError):
            for draft in (self.path / _PARTS).iterdir():
                if _is_old(draft, now_s):
                    draft.unlink(missing_ok=True)
        return removed

    def size(self) -> int:
        """Return the total size of all artifacts in bytes, computed at most once a minute."""
        now = time.monotonic()
        if self._sized_at is None or now - self._sized_at > _SIZE_S:
            self._size = sum(_size_of(file) for file in self._files())
            self._sized_at = now
        return self._size

    def _renew(self, digest: str) -> bool:
        """Make an existing artifact young again; False if it is not here."""
        with self._locked():
            try:
                os.utime(self._file(digest))
            except FileNotFoundError:
                return False
            return True

    def _adopt(self, draft: Path, digest: str) -> None:
        """Give a complete file its name. Raises ArtifactChanged."""
        with draft.open("r+b") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        if found != digest:
            raise ArtifactChanged(digest, f"its bytes have the digest {found!r}")
        target = self._file(digest)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        os.utime(draft)
        with self._locked():
            draft.replace(target)
        self._size += _size_of(target)

    def _check_size(self, size: int) -> None:
        if size > self._limits.each:
            why = f"an artifact of {size} bytes is larger than LEADHAND_ARTIFACT_MAX"
            raise ArtifactsFull(f"{why}, {self._limits.each} bytes; return less, or a file's name")

    def _check_total(self, more: int) -> None:
        if self.size() + more > self._limits.total:
            why = f"the artifacts in {str(self.path)!r} have reached LEADHAND_ARTIFACTS_MAX"
            raise ArtifactsFull(f"{why}, {self._limits.total} bytes; delete sessions or raise it")

    def _file(self, digest: str) -> Path:
        assert is_digest(digest), digest
        return self.path / digest[:2] / digest

    def _draft(self, name: str) -> Path:
        folder = self.path / _PARTS
        self._make(folder)
        return folder / name

    def _make(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _files(self) -> Iterator[Path]:
        with suppress(FileNotFoundError):
            for folder in self.path.iterdir():
                if re.fullmatch(r"[0-9a-f]{2}", folder.name):
                    yield from (file for file in folder.iterdir() if is_digest(file.name))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other processes that store or sweep here."""
        self._make(self.path)
        with (self.path / _LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise ArtifactsFull, which names the folder, for a disk that refuses a write."""
        try:
            yield
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            why = f"cannot store an artifact in {str(self.path)!r}: {_NO_ROOM[error.errno]}"
            raise ArtifactsFull(f"{why}; make room there") from error


def _is_old(file: Path, now_s: float) -> bool:
    try:
        return now_s - file.stat().st_mtime > YOUNG_S
    except FileNotFoundError:
        return False


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


class LocalArtifacts:
    """The artifacts of all sessions, in a folder."""

    def __init__(self, folder: ArtifactFolder) -> None:
        self._folder = folder

    def put(self, ref: SessionRef, digest: str, file: Path) -> None:
        """Copy a file into the artifact folder, named by this digest. Raises ArtifactsFull."""
        del ref  # the settle records the reference
        self._folder.put_file(digest, file)

    def read(self, ref: SessionRef, digest: str, size: int) -> bytes:
        """Return all bytes of an artifact. Raises ArtifactUnknown if missing or of another size."""
        found = self._folder.read(digest)
        if found is None or len(found) != size:
            raise ArtifactUnknown(ref.id, digest)
        return found
