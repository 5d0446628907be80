"""Refusals at submit: what the API can check without a worker."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from app.errors import InvalidDocument
from app.fleet.admission import admit
from app.settings import Settings
from leadhand.models.documents import LoopDocument
from leadhand.models.views.fleet import WorkerView

HOST = socket.gethostname()
SETTINGS = Settings(place="here")


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A program that lies on no path of ours."""
    folder = tmp_path / "programs"
    folder.mkdir()
    program = folder / "their-linter"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def loop(folder: Path, checker: str = "their-linter --all") -> LoopDocument:
    given = {"task": "t", "checker": checker, "doer": {"command": "true"}, "cwd": str(folder)}
    return LoopDocument.model_validate(given)


def worker(
    path: str | None, *, host: str = HOST, place: str = "here", roots: tuple[str, ...] = ()
) -> WorkerView:
    return WorkerView(name="w", place=place, host=host, path=path, roots=list(roots))


def there(place: str, *roots: str) -> WorkerView:
    return worker(None, host="another", place=place, roots=roots)


def test_a_checker_s_program_is_looked_for_where_its_worker_looks(tmp_path, tool):
    workers = [worker("/nowhere"), worker(f"/bin:{tool.parent}")]
    assert admit(loop(tmp_path), SETTINGS, workers).folder == str(tmp_path)
    with pytest.raises(InvalidDocument, match="their-linter"):
        admit(loop(tmp_path), SETTINGS, [worker("/bin")])


@pytest.mark.parametrize(
    "workers",
    [
        [],
        [worker("/bin", host="another")],
        [worker("/bin"), worker("/bin", host="another")],
        [worker(None)],
    ],
)
def test_of_workers_elsewhere_nobody_here_can_tell_what_they_find(tmp_path, workers):
    admit(loop(tmp_path), SETTINGS, workers)


def test_an_embedded_api_speaks_for_its_worker_until_that_has_told_of_itself(tmp_path):
    embedded = Settings(place="here", supervisor_pid=1)
    admit(loop(tmp_path, "sh -c true"), embedded, [])
    with pytest.raises(InvalidDocument, match="install it"):
        admit(loop(tmp_path), embedded, [])


def test_a_program_in_the_folder_is_looked_for_there(tmp_path, tool):
    admit(loop(tool.parent, "./their-linter"), SETTINGS, [worker("/bin")])
    with pytest.raises(InvalidDocument, match="checkers"):
        admit(loop(tmp_path, "./their-linter"), SETTINGS, [worker("/bin")])


def test_a_program_that_cannot_be_run_is_named_as_what_it_is(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "lint.py").write_text("print()")
    for command, why in (
        ("./tests -q", "'./tests': it is a folder; name a program in it"),
        ("./lint.py", "'./lint.py': it is not executable; run `chmod +x lint.py`"),
        ("./gone", "'./gone': it is not found; install it or give its path"),
    ):
        with pytest.raises(InvalidDocument, match=re.escape(why)) as error:
            admit(loop(tmp_path, command), SETTINGS, [worker("/bin")])
        assert (error.value.field, error.value.value) == ("checkers[0]", command)


def test_a_program_on_the_path_that_is_not_executable_is_named(tmp_path):
    (tmp_path / "their-linter").write_text("#!/bin/sh")
    why = f"'{tmp_path}/their-linter': it is not executable"
    with pytest.raises(InvalidDocument, match=re.escape(why)):
        admit(loop(tmp_path), SETTINGS, [worker(str(tmp_path))])


def test_a_file_is_no_working_folder(tmp_path):
    file = tmp_path / "notes.md"
    file.touch()
    with pytest.raises(InvalidDocument, match="it is a file; name a folder"):
        admit(loop(file), SETTINGS, [worker("/bin")])


def test_a_folder_that_the_api_may_not_look_into_is_left_to_its_workers(tmp_path, monkeypatch):
    def refuse(_: Path) -> bool:
        raise PermissionError("no")

    monkeypatch.setattr(Path, "is_dir", refuse)
    assert admit(loop(tmp_path), SETTINGS, [worker("/bin")]).folder == str(tmp_path)


def test_a_worker_without_roots_holds_every_folder_of_ours(tmp_path):
    ours, far = worker(None), there("far", str(tmp_path))
    assert admit(loop(tmp_path), SETTINGS, [far, ours]).place == "here"
    assert admit(loop(tmp_path), SETTINGS, [far, there("there")]).place == "far"


def test_a_folder_is_not_bound_to_a_place_without_a_worker(tmp_path):
    assert admit(loop(tmp_path), SETTINGS, [there("siteA")]).place == "siteA"
    with pytest.raises(InvalidDocument, match="at 'siteA' working folders must lie beneath /srv"):
        admit(loop(tmp_path), SETTINGS, [there("siteA", "/srv")])


def test_a_folder_that_is_not_here_goes_to_who_says_that_it_is_theirs(tmp_path):
    gone = tmp_path / "theirs"
    workers = [worker(None), there("anywhere"), there("far", str(gone))]
    assert admit(loop(gone), SETTINGS, workers).place == "far"
    with pytest.raises(InvalidDocument, match="there is no such folder"):
        admit(loop(gone), SETTINGS, [worker(None), there("far", "/srv")])
