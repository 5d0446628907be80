"""The folder of artifacts: digests, limits, uploads in parts, and the sweep beside uploads."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
from collections.abc import Collection
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

import app.store.artifact_folder as folder_module
from app.core.artifacts import YOUNG_S
from app.store.artifact_folder import ArtifactFolder, Limits, Part
from leadhand.errors import ArtifactChanged, ArtifactsFull

LIMITS = Limits(each=1000, total=5000)


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(folder: Any, tmp_path: Path, data: bytes) -> str:
    file = tmp_path / f"source-{threading.get_ident()}"
    file.write_bytes(data)
    folder.put_file(digest_of(data), file)
    return digest_of(data)


@pytest.fixture
def folder(tmp_path: Path) -> ArtifactFolder:
    return ArtifactFolder(tmp_path / "artifacts", LIMITS)


def none(_digests: Collection[str]) -> set[str]:
    return set()


def age(folder: Any, digest: str) -> None:
    """Make a file as old as if it had been stored more than a day ago."""
    path = folder.path / digest[:2] / digest
    old = path.stat().st_mtime - YOUNG_S - 1
    os.utime(path, (old, old))


def test_file_is_stored_once_and_read_in_parts(folder: ArtifactFolder, tmp_path: Path) -> None:
    digest = put(folder, tmp_path, b"0123456789")
    assert put(folder, tmp_path, b"0123456789") == digest
    assert folder.read(digest) == b"0123456789"
    assert folder.read(digest, at=3, limit=4) == b"3456"
    assert folder.read(digest, at=99) == b""
    assert folder.read("0" * 64) is None
    assert oct((folder.path / digest[:2]).stat().st_mode & 0o777) == "0o700"


def test_upload_in_parts_is_complete_with_its_last_byte(folder: ArtifactFolder) -> None:
    data = bytes(range(250)) * 3
    digest = digest_of(data)
    assert not folder.put_part(digest, "a", Part(0, 750, data[:300]))
    assert not folder.put_part(digest, "a", Part(0, 750, data[:300]))  # a repeated call
    assert not folder.put_part(digest, "b", Part(0, 750, data[:100]))  # another attempt
    assert folder.read(digest) is None
    assert folder.put_part(digest, "a", Part(300, 750, data[300:]))
    assert folder.read(digest) == data
    assert folder.put_part(digest, "b", Part(100, 750, data[100:200]))  # it is stored already


def test_upload_with_a_gap_or_other_bytes_is_refused(folder: ArtifactFolder) -> None:
    digest = digest_of(b"uvw")
    with pytest.raises(ArtifactChanged, match="are missing"):
        folder.put_part(digest, "a", Part(2, 3, b"w"))
    with pytest.raises(ArtifactChanged, match="have the digest"):
        folder.put_part(digest, "a", Part(0, 3, b"uvx"))
    with pytest.raises(ArtifactChanged, match="announced size"):
        folder.put_part(digest, "a", Part(0, 2, b"uvw"))
    assert folder.read(digest) is None
    assert folder.put_part(digest, "a", Part(0, 3, b"uvw"))


def test_limits_are_named(folder: ArtifactFolder, tmp_path: Path) -> None:
    with pytest.raises(ArtifactsFull, match="LEADHAND_ARTIFACT_MAX, 1000 bytes"):
        put(folder, tmp_path, b"x" * 1001)
    with pytest.raises(ArtifactsFull, match="LEADHAND_ARTIFACT_MAX"):
        folder.put_part("0" * 64, "a", Part(0, 1001, b"x"))
    for n in range(5):
        put(folder, tmp_path, bytes([n]) * 1000)
    with pytest.raises(ArtifactsFull, match="LEADHAND_ARTIFACTS_MAX, 5000 bytes"):
        put(folder, tmp_path, b"one more")
    put(folder, tmp_path, bytes([3]) * 1000)  # one that exists needs no room


def test_full_disk_is_named(
    folder: ArtifactFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(ArtifactsFull, match="artifacts': its disk is full; make room there"):
        put(folder, tmp_path, b"x")
    assert list((folder.path / "incoming").iterdir()) == []


def test_store_beside_a_sweep_waits_and_is_kept(folder: ArtifactFolder, tmp_path: Path) -> None:
    digest = put(folder, tmp_path, b"abc")
    age(folder, digest)
    uploads: list[threading.Thread] = []

    def store_meanwhile(_digests: Collection[str]) -> set[str]:
        uploads.append(threading.Thread(target=put, args=(folder, tmp_path, b"abc")))
        uploads[0].start()
        return set()

    assert folder.sweep(store_meanwhile) == [digest]
    uploads[0].join(10)
    assert folder.read(digest) == b"abc"
    assert folder.sweep(none) == []


def test_abandoned_uploads_are_swept(folder: ArtifactFolder) -> None:
    folder.put_part("0" * 64, "a", Part(0, 10, b"abc"))
    (draft,) = (folder.path / "incoming").iterdir()
    assert folder.sweep(none, now_s=draft.stat().st_mtime + YOUNG_S) == []
    assert draft.exists()
    folder.sweep(none, now_s=draft.stat().st_mtime + YOUNG_S + 1)
    assert not draft.exists()


def walk(module: Any, tmp_path: Path, seed: int) -> None:
    """Random stores, references, ends of sessions and sweeps, beside a model of what is kept."""
    random = Random(seed)
    folder = module.ArtifactFolder(tmp_path / str(seed), LIMITS)
    stored: dict[str, bool] = {}  # digest -> whether it is old
    referenced: set[str] = set()
    for _ in range(40):
        match random.randrange(5):
            case 0:
                stored[put(folder, tmp_path, bytes([random.randrange(6)]))] = False
            case 1 if stored:
                digest = random.choice(sorted(stored))
                age(folder, digest)
                stored[digest] = True
            case 2 if stored:
                referenced.add(random.choice(sorted(stored)))
            case 3 if referenced:
                referenced.discard(random.choice(sorted(referenced)))
            case _:
                gone = {d for d, is_old in stored.items() if is_old and d not in referenced}
                assert set(folder.sweep(referenced.intersection)) == gone
                for digest in gone:
                    del stored[digest]
        for digest in stored:
            assert folder.read(digest) is not None
            assert digest_of(folder.read(digest)) == digest
        on_disk = {file.name for file in folder.path.glob("??/*")}
        assert on_disk == stored.keys()


def walk_often(module: Any, tmp_path: Path) -> None:
    for seed in range(30):
        walk(module, tmp_path, seed)


#: Changes of the folder's code that lose a file too early, or keep one for ever.
FAULTS = {
    "a file that exists does not become young again": (
        "os.utime(self._file(digest))",
        "self._file(digest).stat()",
    ),
    "young files are swept": ("> YOUNG_S", "> -1"),
    "references are not asked for": ("if file.name not in known and", "if"),
    "nothing is ever old": ("> YOUNG_S", "> YOUNG_S * 10**9"),
    "only referenced files are swept": ("file.name not in known", "file.name in known"),
}  # fmt: skip


def with_fault(old: str, new: str) -> ModuleType:
    text = Path(folder_module.__file__).read_text()
    assert text.count(old) == 1
    module = ModuleType("app.store.artifact_folder")
    exec(compile(text.replace(old, new), "folder.py", "exec"), module.__dict__)
    return module


def test_walks_keep_what_they_should(tmp_path: Path) -> None:
    walk_often(folder_module, tmp_path)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_of_the_sweep_is_noticed(name: str, tmp_path: Path) -> None:
    module = with_fault(*FAULTS[name])
    with pytest.raises(AssertionError):
        walk_often(module, tmp_path)
