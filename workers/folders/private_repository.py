"""The private git repository that has the snapshots of a working folder.

Of the folder's own repository it has the objects, and once, before the first doer: the index, the
lists of ignored files and what depends on the file system. A doer may change all of these, and
settings such as core.checkStat hide a change from git. So nothing of them is read afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CalledProcessError
from typing import NamedTuple

from leadhand.models.git_settings import filters_in, repository_top
from workers.processes import environment
from workers.processes.file_system import CAPABLE, git_settings
from workers.processes.user_folders import claim_session_folder

#: Runs git in the working folder with the user's settings, and returns its output.
Run = Callable[..., bytes]
#: Settings that say what the file system can do, and how long the names of objects are.
_FACTS = (*CAPABLE, "core.precomposeunicode")
_FORMAT = "extensions.objectformat"
_LISTS = ("core.excludesfile", "core.attributesfile")
#: The file with the settings by which git converts files.
_CONVERSIONS = "conversions.json"
CONVERTED = "converted.json"
_OWN_ATTRIBUTES = "own-attributes"
_PATHS = ("objects", "index", "info/exclude", "info/attributes")
#: Snapshots convert nothing: these attributes count more than those of any `.gitattributes`.
_CONVERT_NOTHING = "* -text -ident -filter !working-tree-encoding\n"


class FolderTooLarge(Exception):
    """A folder in no repository has more bytes than a snapshot may have."""


class PrivateRepository(NamedTuple):
    """A repository of a session's snapshots."""

    #: Git's folder of it.
    home: Path
    #: The folder whose files it has: the top of the folder's own repository, if it is in one.
    top: Path
    #: The working folder within it, with a slash at its end; '' if it is the same.
    prefix: str

    @property
    def objects(self) -> Path:
        """Return the folder of its objects."""
        return self.home / "objects"

    @property
    def by_products(self) -> Path:
        """Return the file with the patterns of by-products."""
        return self.home / "by-products"

    @property
    def conversions(self) -> dict[str, str]:
        """Return the settings by which git converted files in the repository at first."""
        found: dict[str, str] = json.loads((self.home / _CONVERSIONS).read_text())
        return found

    @property
    def own_attributes(self) -> Path:
        """Return the file with the `info/attributes` that the folder's repository had at first."""
        return self.home / _OWN_ATTRIBUTES

    @property
    def converted(self) -> Path:
        """Return the file with the ids of files that git converts, as of before the first doer."""
        return self.home / CONVERTED

    @property
    def is_in_repository(self) -> bool:
        """Whether the folder was in a git repository when the snapshots began."""
        return (self.objects / "info" / "alternates").exists()

    @property
    def variables(self) -> dict[str, str]:
        """Return git's environment variables that name it, and none of the user's settings."""
        home = str(self.home)
        return {
            "GIT_DIR": home, "GIT_WORK_TREE": str(self.top), "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CONFIG_NOSYSTEM": "1", "HOME": home, "XDG_CONFIG_HOME": home,
        }  # fmt: skip


def find_repository(shelf: Path, folder: Path) -> PrivateRepository | None:
    """Returns the repository of a folder, which an earlier snapshot has made; None without one."""
    real = folder.resolve()
    for top in (real, *real.parents):
        home = _home(shelf, top)
        if (home / "HEAD").exists():
            beneath = real.relative_to(top).as_posix()
            return PrivateRepository(home, top, "" if beneath == "." else f"{beneath}/")
    return None


def by_products_of(shelf: Path, folder: Path) -> list[str] | None:
    """Returns the patterns of by-products with which snapshots began; None if there are none."""
    found = find_repository(shelf, folder)
    return None if found is None else found.by_products.read_text().splitlines()


def make_repository(
    shelf: Path,
    folder: Path,
    run: Run,
    *,
    most: int | None,
    leave_out: Sequence[str],
    deadline: float,
) -> PrivateRepository:
    """Makes the repository of a folder. Raises FolderTooLarge, OSError, SubprocessError.

    Of a folder in no repository, or in one that ignores it, it has all files, at most so many
    bytes. Repeat it after a kill.
    """
    claim_session_folder(shelf)
    by_products = "".join(f"{pattern}\n" for pattern in leave_out).encode()
    theirs = _read_theirs(folder, shelf, run)
    if theirs is not None and _is_ignored(run, shelf, _lists(theirs, run, by_products)[0]):
        theirs = None
    top = folder.resolve() if theirs is None else theirs.top
    if theirs is None and most is not None:
        _check_size(top, most, deadline)
    home, draft = _home(shelf, top), Path(tempfile.mkdtemp(prefix="new-", dir=shelf))
    for name in ("refs", "objects/info", "info"):
        (draft / name).mkdir(parents=True)
    (draft / "info" / "attributes").write_text(_CONVERT_NOTHING)
    (draft / "by-products").write_bytes(by_products)
    (draft / _CONVERSIONS).write_text(json.dumps({} if theirs is None else _conversions(run)))
    if theirs is not None:
        theirs.copy_index(draft / "index")
        (draft / "objects" / "info" / "alternates").write_text(f"{theirs.path('objects')}\n")
    excludes, attributes = _lists(theirs, run, by_products)
    (draft / "excludes").write_bytes(excludes)
    (draft / "attributes").write_bytes(attributes)
    own = b"" if theirs is None else _read(theirs.path("info/attributes"))
    (draft / _OWN_ATTRIBUTES).write_bytes(own)
    (draft / "config").write_text(_config(home, {} if theirs is None else theirs.settings))
    (draft / "HEAD").write_text("ref: refs/heads/snapshots\n")
    try:
        draft.rename(home)
    except OSError:
        shutil.rmtree(draft)
        if not (home / "HEAD").exists():  # otherwise a step beside this one has made it
            raise
    made = find_repository(shelf, folder)
    assert made is not None
    return made


class _Theirs(NamedTuple):
    """What is read of the folder's own repository."""

    top: Path
    paths: Mapping[str, Path]
    settings: Mapping[str, str]

    def path(self, name: str) -> Path:
        return self.paths[name]

    def copy_index(self, copy: Path) -> None:
        """Copy the index with its time, which git compares with those of files."""
        index = self.path("index")
        if index.is_file():
            shutil.copy2(index, copy)
            for shared in index.parent.glob("sharedindex.*"):
                shutil.copy2(shared, copy.with_name(shared.name))


def _read_theirs(folder: Path, shelf: Path, run: Run) -> _Theirs | None:
    """What the folder's repository has; None if it is in none, or git refuses it."""
    options = [part for name in _PATHS for part in ("--git-path", name)]
    try:
        found = os.fsdecode(run("rev-parse", "--show-toplevel", *options)).split("\n")[:-1]
    except CalledProcessError as error:
        if error.returncode < 0:  # a signal has ended it
            raise
        return None
    top, *paths = found
    real = Path(top).resolve()
    if real != repository_top(folder.resolve()):
        return None  # its core.worktree names another folder
    if len(paths) != len(_PATHS):
        raise OSError(f"the path of {str(folder)!r} has a line break")
    named = {name: (folder / one).resolve() for name, one in zip(_PATHS, paths, strict=True)}
    settings = _probed(real, (named["objects"].parent, shelf), _settings(run))
    return _Theirs(real, named, settings)


def _is_ignored(run: Run, shelf: Path, excludes: bytes) -> bool:
    """Whether the working folder's repository, or this list, ignores the folder as a whole.

    Git adds nothing in such a folder, not even changes of files that it tracks.
    """
    with tempfile.NamedTemporaryFile(dir=shelf) as file:
        file.write(excludes)
        file.flush()
        setting = f"core.excludesFile={file.name}"
        try:
            run("-c", setting, "check-ignore", "--quiet", "--no-index", "--", ".")
        except CalledProcessError as error:
            if error.returncode < 0:  # a signal has ended it
                raise
            return False
    return True


def _settings(run: Run) -> dict[str, str]:
    names = "|".join((*_FACTS, *_LISTS, _FORMAT)).replace(".", r"\.")
    try:
        listed = run("config", "-z", "--type=path", "--get-regexp", f"^({names})$")
    except CalledProcessError as error:
        if error.returncode < 0:  # a signal has ended it
            raise
        return {}  # there is none, or git refuses the repository
    lines = (os.fsdecode(line).partition("\n") for line in listed.split(b"\0") if line)
    return {name.lower(): value for name, _, value in lines}


def _probed(top: Path, places: Sequence[Path], theirs: Mapping[str, str]) -> Mapping[str, str]:
    """The settings of the folder's repository, without those that its file system refutes.

    What is left in the folder by a probe that was killed would be work, so the file system is
    probed in the first of these places that is on it; if none is, nothing is believed.
    """
    if all(theirs.get(name, value) == value for name, value in CAPABLE.items()):
        return theirs
    device = top.stat().st_dev
    there = next((one for one in places if one.stat().st_dev == device), None)
    return {**theirs, **(CAPABLE if there is None else git_settings(there))}


def _conversions(run: Run) -> dict[str, str]:
    """The filters of the folder's repository, and its conversion of line ends."""
    try:
        listed = run("config", "-z", "--get-regexp", r"^(filter\..*|core\.autocrlf)$")
    except CalledProcessError as error:
        if error.returncode != 1:  # which means that there is none
            raise
        return {}
    # The last value of core.autocrlf is that of this call.
    lines = [one for one in listed.split(b"\0") if one.startswith(b"core.autocrlf\n")]
    found = filters_in(listed) | {"core.autocrlf": ""}
    return found | (filters_in(lines[-2]) if len(lines) > 1 else {})


def _config(home: Path, theirs: Mapping[str, str]) -> str:
    """The settings of the private repository; those that are not in it have git's default."""
    form = theirs.get(_FORMAT, "sha1")
    facts = [f"\t{name.partition('.')[2]} = {theirs[name]}\n" for name in _known(theirs)]
    lists = [f'\t{name}File = "{_quoted(home / name)}"\n' for name in ("excludes", "attributes")]
    version = 0 if form == "sha1" else 1
    text = f"[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n"
    more = f"[extensions]\n\tobjectFormat = {form}\n" if version else ""
    return "".join([text, *facts, *lists, more])


def _known(theirs: Mapping[str, str]) -> Iterator[str]:
    return (name for name in _FACTS if theirs.get(name) in ("true", "false"))


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


def _lists(theirs: _Theirs | None, run: Run, by_products: bytes) -> tuple[bytes, bytes]:
    """The list of ignored files, which includes by-products, and the user's one of attributes.

    A later line counts more: first are those of the user, then those of the repository.
    """
    settings = _settings(run) if theirs is None else theirs.settings
    inherited = environment.inherited()
    home = inherited.get("XDG_CONFIG_HOME") or Path(inherited.get("HOME", "/"), ".config")
    users = [
        _read(Path(settings.get(name) or Path(home, "git", default)))
        for name, default in zip(_LISTS, ("ignore", "attributes"), strict=True)
    ]
    repositorys = b"" if theirs is None else _read(theirs.path("info/exclude"))
    return b"\n".join([users[0], by_products, repositorys]), users[1]


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _check_size(folder: Path, most: int, deadline: float) -> None:
    """Raises FolderTooLarge for a folder of more bytes, or with too many files to look at."""
    for above, _, files in os.walk(folder):
        for name in files:
            most -= Path(above, name).lstat().st_size
        if most < 0 or time.monotonic() > deadline:
            raise FolderTooLarge


def _home(shelf: Path, top: Path) -> Path:
    return shelf / hashlib.blake2b(os.fsencode(top), digest_size=8).hexdigest()
