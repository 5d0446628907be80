"""The digest of a working folder and what changed in it; nothing of the user's is touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from workers.folders import snapshots
from workers.folders.snapshots import Worktree

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
ENV = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/nonexistent",
       "GIT_OPTIONAL_LOCKS": "0",
       "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
       "GIT_COMMITTER_EMAIL": "a@b"}  # fmt: skip


def git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=folder, env=ENV, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder: with signs"
    folder.mkdir()
    (folder / "one.txt").write_text("one\n")
    return folder


@pytest.fixture
def repo(folder: Path) -> Path:
    git(folder, "init", "-q")
    (folder / ".gitignore").write_text("ignored\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return tmp_path / "shelf"


def stuck_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """A git that leaves half a file at one of its verbs, and does not end there."""
    real, fake = shutil.which("git"), tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\n"
        f'case " $* " in *" {verb} "*)\n'
        '  mkdir -p "$GIT_DIR/objects/aa"; touch "$GIT_DIR/objects/aa/tmp_obj_x"\n'
        "  sleep 60;; esac\n"
        f'exec {real} "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(snapshots, "SNAPSHOT_S", 3.0)


@pytest.fixture
def no_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.usefixtures("no_git")
def test_without_git_a_folder_has_a_digest_of_names_and_contents(folder: Path, shelf: Path) -> None:
    tree = Worktree(folder, shelf)
    first = tree.snapshot()
    assert str(first).startswith("files:")
    assert tree.snapshot() == first
    seen = {first}
    for change in (
        lambda: (folder / "two.txt").write_text(""),
        lambda: (folder / "one.txt").write_text("two\n"),
        lambda: (folder / "one.txt").chmod(0o755),
        lambda: (folder / "link").symlink_to("one.txt"),
        lambda: (folder / "two.txt").rename(folder / "three.txt"),
    ):
        change()
        seen.add(tree.snapshot())
    assert len(seen) == 6
    assert tree.patch(first, tree.snapshot()) is None


@pytest.mark.usefixtures("no_git")
@pytest.mark.parametrize(("name", "value"), [("FILES", 0), ("READ_BYTES", 1), ("SNAPSHOT_S", -1)])
def test_a_folder_that_is_too_large_has_no_digest(folder, shelf, monkeypatch, name, value) -> None:
    monkeypatch.setattr(snapshots, name, value)
    assert Worktree(folder, shelf).snapshot() is None


@needs_git
def test_git_says_what_counts_as_work(repo: Path, shelf: Path) -> None:
    tree = Worktree(repo, shelf)
    first = tree.snapshot()
    assert first == f"git:{git(repo, 'rev-parse', 'HEAD^{tree}').strip()}"
    (repo / "ignored").write_text("x")
    assert tree.snapshot() == first
    (repo / "new.txt").write_text("new\n")
    (repo / "one.txt").unlink()
    second = tree.snapshot()
    assert second != first
    patch = str(tree.patch(first, second))
    assert "+new\n" in patch
    assert "-one\n" in patch
    assert tree.patch(first, first) == ""
    assert Worktree(repo, shelf).knows(first)
    assert not Worktree(repo, shelf).knows("git:" + "0" * 40)


@needs_git
def test_nothing_of_the_users_is_touched(repo: Path, shelf: Path) -> None:
    hook = repo / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    (repo / "new.txt").write_text("new\n")
    (repo / "hooked").unlink(missing_ok=True)
    status = git(repo, "status", "--porcelain")
    before = everything(repo)
    tree = Worktree(repo, shelf)
    assert tree.snapshot() is not None
    assert everything(repo) == before
    assert not (repo / "hooked").exists()
    assert git(repo, "status", "--porcelain") == status


KEEPS_TIME = "cp -p one.txt ../was; printf 'two\\n' > one.txt; touch -r ../was one.txt"
#: By what a doer may set in git: how it changes a file of the same size and time, or a new one.
HIDES = {
    "no change of the inode's time": (
        f"git config core.trustctime false; git config core.checkStat minimal; {KEEPS_TIME}"
    ),
    "believed index": (
        f"git config core.ignoreStat true; git update-index --really-refresh; {KEEPS_TIME}"
    ),
    "file assumed unchanged": f"git update-index --assume-unchanged one.txt; {KEEPS_TIME}",
    "file outside of a sparse checkout": (
        "git sparse-checkout set --no-cone /.gitignore; git update-index --skip-worktree one.txt;"
        " echo two > one.txt"
    ),
    "executable bit": "git config core.fileMode false; chmod +x one.txt",
    "list of the repository": "echo new >> .git/info/exclude; touch new",
    "list of the user": (
        'echo new > ../list; git config core.excludesFile "$PWD/../list"; touch new'
    ),
    "filter": (
        "git config filter.x.clean 'echo one'; echo '* filter=x' >> .git/info/attributes;"
        " echo two > one.txt"
    ),
    "line ends": "echo '* text eol=lf' >> .git/info/attributes; printf 'one\\r\\n' > one.txt",
    "line ends of the work": (
        "echo '* text eol=lf' > .gitattributes; printf 'one\\r\\n' > one.txt"
    ),
    "encoding": (
        "echo '* working-tree-encoding=UTF-16' > .gitattributes;"
        " printf 'one\\n' | iconv -t UTF-16 > one.txt"
    ),
    "encoding that does not exist": (
        "echo '* working-tree-encoding=x' > .gitattributes; echo two > one.txt"
    ),
    "encoding without a name": (
        "echo '* working-tree-encoding' > .gitattributes; echo two > one.txt"
    ),
    "replaced object": (
        "echo two > one.txt; new=$(git hash-object -w one.txt);"
        " git replace -f $new $(git rev-parse :one.txt)"
    ),
}


@needs_git
@pytest.mark.parametrize("how", HIDES)
def test_doer_hides_no_change_by_what_it_sets_in_git(repo: Path, shelf: Path, how: str) -> None:
    os.utime(repo / "one.txt", (0, 0))  # git reads a file again that is as new as the index
    git(repo, "status")
    tree = Worktree(repo, shelf)
    before = tree.snapshot()
    subprocess.run(["sh", "-ec", HIDES[how]], cwd=repo, env=ENV, check=True, capture_output=True)
    after = Worktree(repo, shelf).snapshot()
    changed = Worktree(repo, shelf).changed_names(before, after)
    changed = [name for name in changed if name != ".gitattributes"]
    assert changed == ["new" if "touch new" in HIDES[how] else "one.txt"]


#: By what an earlier doer may have set: how a later one changes a file, and which.
BELIEVED = {
    "core.fileMode=false": ("chmod +x one.txt", "one.txt"),
    "core.ignoreCase=true": ("echo two > ONE.TXT", "ONE.TXT"),
    "core.symlinks=false": ("rm link; printf one.txt > link", "link"),
    "core.worktree=/": ("echo two > one.txt", "one.txt"),
    "core.worktree=..": ("echo two > one.txt", "one.txt"),
    "core.worktree=../shelf": ("echo two > one.txt", "one.txt"),
    "core.bare=true": ("echo two > one.txt", "one.txt"),
    "core.sparseCheckout=true": ("echo two > one.txt", "one.txt"),
}


@needs_git
@pytest.mark.parametrize("setting", BELIEVED)
def test_change_is_hidden_by_no_setting_from_before_the_session(
    repo: Path, shelf: Path, setting: str
) -> None:
    (repo / "link").symlink_to("one.txt")
    git(repo, "add", "link")
    shelf.mkdir(mode=0o700)
    git(repo, "config", *setting.split("="))
    before = Worktree(repo, shelf).snapshot()
    how, name = BELIEVED[setting]
    subprocess.run(["sh", "-ec", how], cwd=repo, check=True)
    tree = Worktree(repo, shelf)
    assert tree.changed_names(before, tree.snapshot()) == [name]


@needs_git
def test_executable_bits_are_no_change_where_the_file_system_has_none(
    repo: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repo, "config", "core.fileMode", "false")
    tree = Worktree(repo, shelf)
    with monkeypatch.context() as without_modes:
        without_modes.setattr(Path, "chmod", lambda *_: None)
        before = tree.snapshot()
    (repo / "one.txt").chmod(0o755)
    assert tree.snapshot() == before


@needs_git
@pytest.mark.parametrize("then", ["true", "git init -q; echo new >> .git/info/exclude"])
def test_worktree_without_its_repository_is_compared(
    repo: Path, shelf: Path, tmp_path: Path, then: str
) -> None:
    git(repo, "worktree", "add", "-q", str(tmp_path / "tree"))
    tree = Worktree(tmp_path / "tree", shelf, is_own=True)
    before = tree.snapshot()
    done = subprocess.run(["sh", "-ec", f"rm .git; touch new; {then}"], cwd=tree.folder, env=ENV)
    assert done.returncode == 0
    after = Worktree(tree.folder, shelf, is_own=True).snapshot()
    assert tree.changed_names(before, after) == ["new"]


@needs_git
@pytest.mark.parametrize("prefix", ["", "sub"])
def test_lists_of_ignored_files_are_put_back_before_the_files_that_they_hide_or_show(
    repo: Path, shelf: Path, prefix: str
) -> None:
    folder = repo / prefix
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("built\nkept\n")
    for name in ("built", "work"):
        (folder / name).write_text(name)
    tree = Worktree(folder, shelf)
    work = str(tree.snapshot())
    (folder / ".gitignore").write_text("probe\n")  # hides `probe`, and shows `built`
    (folder / "deep").mkdir()
    (folder / "deep" / ".gitignore").write_text("hidden\n")
    for name in ("probe", "deep/hidden"):
        (folder / name).write_text("of a checker")
    (folder / "work").unlink()
    tree.snapshot()
    tree.put_back(work)
    assert tree.snapshot() == work
    assert {path.name for path in folder.rglob("*")} >= {"built", "work"}
    assert not (folder / "probe").exists()
    assert not (folder / "deep").exists()


@needs_git
def test_submodules_are_known_in_each_folder_of_a_session_and_where_its_work_is_restored(
    repo: Path, shelf: Path, tmp_path: Path
) -> None:
    module, other = repo / "lib", tmp_path / "other"
    module.mkdir()
    (repo / "sub").mkdir()
    git(module, "init", "-q")
    (module / "file").touch()
    git(module, "add", "-A")
    git(module, "commit", "-qm", "of the submodule")
    (repo / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ./lib\n')
    (repo / "sub" / "file").touch()
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "with a submodule")
    git(tmp_path, "clone", "-q", "--no-checkout", str(repo), str(other))
    git(other, "read-tree", "HEAD")
    Worktree(repo / "sub", shelf, is_own=True).snapshot()
    whole = Worktree(repo, shelf, is_own=True)
    work = str(whole.snapshot())
    assert whole.nested() == []
    assert whole.left_out() == ["lib/"]
    (module / "file").write_text("this is not compared")
    assert whole.snapshot() == work
    restored = Worktree(other, tmp_path / "others", is_own=True)
    restored.restore(work, shelf)
    shutil.copytree(module, other / "lib", dirs_exist_ok=True)  # as by `submodule update`
    restored.restore(work, shelf)
    assert (other / "lib" / "file").exists()
    assert restored.nested() == []


@needs_git
@pytest.mark.parametrize("option", ["--assume-unchanged", "--skip-worktree"])
def test_change_of_a_file_that_the_index_believes_is_in_the_first_snapshot(
    repo: Path, shelf: Path, option: str
) -> None:
    git(repo, "update-index", option, "one.txt")
    (repo / "one.txt").write_text("two\n")
    assert (
        Worktree(repo, shelf).snapshot() != f"git:{git(repo, 'rev-parse', 'HEAD^{tree}').strip()}"
    )


@needs_git
@pytest.mark.parametrize("options", [["--cone"], ["--cone", "--sparse-index"], ["--no-cone"]])
def test_files_outside_of_a_sparse_checkout_count_as_there(
    repo: Path, shelf: Path, options: list[str]
) -> None:
    for name in ("in", "out"):
        (repo / name).mkdir()
        (repo / name / "a.txt").write_text("a\n")
        (repo / name / "a.pyc").write_text("a by-product that git tracks\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "second")
    git(repo, "sparse-checkout", "set", *options, "in" if "--cone" in options else "/in/")
    assert not (repo / "out").exists()
    tree = Worktree(repo, shelf)
    first = tree.snapshot()
    assert first == f"git:{git(repo, 'rev-parse', 'HEAD^{tree}').strip()}"
    (repo / "in" / "a.txt").write_text("b\n")
    (repo / "out").mkdir()
    (repo / "out" / "b.txt").write_text("new\n")
    assert tree.changed_names(first, tree.snapshot()) == ["in/a.txt", "out/b.txt"]
    tree.put_back(str(first))
    assert (repo / "in" / "a.txt").read_text() == "a\n"
    assert not (repo / "out").exists()
    assert tree.snapshot() == first


@needs_git
@pytest.mark.parametrize("name", ["odd", "a=b", "a.b", "a=b.c=", "CaSe", 'a b" c', "ä"])
def test_no_program_of_the_repositorys_is_run(
    repo: Path, shelf: Path, tmp_path: Path, name: str
) -> None:
    """A filter may have any name: git ends that in the option `-c NAME=VALUE` at the first `=`."""
    ran = tmp_path / "ran"
    for part in ("clean", "smudge", "process"):
        git(repo, "config", f"filter.{name}.{part}", f"touch '{ran}'; cat")
    git(repo, "config", f"filter.{name}.required", "true")
    git(repo, "config", f"diff.{name}.textconv", f"touch '{ran}'; cat")
    git(repo, "config", f"diff.{name}.command", f"touch '{ran}'")
    git(repo, "config", "diff.external", f"touch '{ran}'")
    git(repo, "config", "core.fsmonitor", f"touch '{ran}'")
    attributes = f"*.txt filter={name} diff={name}\n" if " " not in name else "*.txt filter=x\n"
    (repo / ".gitattributes").write_text(attributes)
    (repo / "new.txt").write_text("new\n")
    tree = Worktree(repo, shelf)
    before = tree.snapshot()
    assert before is not None
    (repo / "new.txt").write_text("changed\n")
    assert "+changed" in (tree.patch(before, tree.snapshot()) or "")
    tree.restore(before, shelf)
    assert (repo / "new.txt").read_text() == "new\n"
    assert not ran.exists()


@needs_git
def test_what_a_repository_lacks_is_not_fetched(repo: Path, shelf: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    tree = Worktree(repo, shelf)
    first = tree.snapshot()
    (repo / "one.txt").write_text("changed\n")
    second = tree.snapshot()
    for name, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", f"ext::touch {ran}"),
        ("protocol.ext.allow", "always"),
    ):
        git(repo, "config", name, value)
    lacks = git(repo, "rev-parse", "HEAD:one.txt").strip()
    (repo / ".git" / "objects" / lacks[:2] / lacks[2:]).unlink()
    assert tree.patch(first, second) is None
    assert not ran.exists()


@needs_git
def test_git_and_what_it_begins_have_a_time_to_end(
    repo: Path, shelf: Path, tmp_path: Path, monkeypatch
) -> None:
    tree = Worktree(repo, shelf)
    first = tree.snapshot()
    (repo / "one.txt").write_text("changed\n")
    second = tree.snapshot()
    stuck_at(tmp_path, monkeypatch, "diff-tree")
    assert tree.patch(first, second) is None


@needs_git
@pytest.mark.parametrize("step", ["add", "hash-object"])
def test_what_took_too_long_leaves_nothing_and_is_not_tried_again_soon(
    repo: Path, shelf: Path, tmp_path: Path, monkeypatch, step: str
) -> None:
    (repo / ".gitattributes").write_text("*.bat eol=crlf\n")
    converted = repo / "a.bat"
    converted.write_bytes(b"a\r\n")
    git(repo, "add", ".gitattributes", "a.bat")
    later = time.time() + 60  # git reads a file again that is as new as the index
    os.utime(repo / ".git" / "index", (later, later))
    with monkeypatch.context() as stuck:
        stuck_at(tmp_path, stuck, step)
        assert Worktree(repo, shelf).snapshot() is None
    assert list(shelf.rglob("tmp_*")) == []
    assert Worktree(repo, shelf).snapshot() is None
    first = str(Worktree(repo, tmp_path / "of another session").snapshot())
    long_ago = time.time() - snapshots.REST_S
    os.utime(shelf / "slow", (long_ago, long_ago))
    tree = Worktree(repo, shelf)
    assert tree.snapshot() == first
    converted.write_bytes(b"b\n")
    tree.put_back(first)
    assert converted.read_bytes() == b"a\r\n"


@needs_git
def test_a_folder_within_a_repository_counts_alone(repo: Path, shelf: Path) -> None:
    inner = repo / "inner"
    inner.mkdir()
    tree = Worktree(inner, shelf)
    assert tree.snapshot() is not None
    (inner / "a.txt").write_text("a\n")
    first = tree.snapshot()
    (repo / "one.txt").write_text("changed outside\n")
    assert tree.snapshot() == first
    (inner / "a.txt").write_text("b\n")
    assert "a/a.txt" in str(tree.patch(first, tree.snapshot()))


@needs_git
def test_a_repository_without_a_commit_or_with_a_conflict_has_a_digest(
    folder: Path, shelf: Path
) -> None:
    git(folder, "init", "-q")
    assert str(Worktree(folder, shelf).snapshot()).startswith("git:")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    git(folder, "checkout", "-qb", "other")
    (folder / "one.txt").write_text("other\n")
    git(folder, "commit", "-qam", "other")
    git(folder, "checkout", "-q", "-")
    (folder / "one.txt").write_text("mine\n")
    git(folder, "commit", "-qam", "mine")
    with pytest.raises(subprocess.CalledProcessError):
        git(folder, "merge", "-q", "other")
    assert str(Worktree(folder, shelf / "anew").snapshot()).startswith("git:")


@needs_git
def test_a_long_difference_is_cut(repo: Path, shelf: Path, monkeypatch) -> None:
    monkeypatch.setattr(snapshots, "PATCH_BYTES", 1000)
    tree = Worktree(repo, shelf)
    first = tree.snapshot()
    (repo / "long.txt").write_text("line\n" * 100_000)
    patch = str(tree.patch(first, tree.snapshot()))
    assert len(patch) < 1100
    assert patch.endswith("[... the rest is left out ...]\n")


@needs_git
def test_a_cut_shows_no_half_line(repo: Path, shelf: Path, monkeypatch) -> None:
    tree = Worktree(repo, shelf)
    first = tree.snapshot()
    (repo / "long.txt").write_text("line\nhush-hush-hush\n" * 10)
    after = tree.snapshot()
    whole = str(tree.patch(first, after))
    monkeypatch.setattr(snapshots, "PATCH_BYTES", whole.index("-hush-hush\n"))
    assert str(tree.patch(first, after)).endswith("\n+line\n[... the rest is left out ...]\n")


@needs_git
def test_an_index_that_somebody_died_over_is_used_again(repo: Path, shelf: Path) -> None:
    tree = Worktree(repo, shelf)
    first = tree.snapshot()
    (index,) = shelf.glob("*/index")
    index.with_name("index.lock").write_text("")
    assert tree.snapshot() == first


@needs_git
def test_a_repository_within_counts_by_its_commit_and_none_of_its_programs_runs(
    repo: Path, shelf: Path
) -> None:
    inner, ran = repo / "dep", repo.parent / "ran"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "a.txt").write_text("one")
    git(inner, "add", "-A")
    git(inner, "commit", "-qm", "one")
    git(inner, "config", "filter.odd.clean", f"touch '{ran}'; cat")
    git(inner, "config", "core.fsmonitor", f"touch '{ran}'; false")
    (inner / ".git/info").mkdir(exist_ok=True)
    (inner / ".git/info/attributes").write_text("*.txt filter=odd\n")
    tree = Worktree(repo, shelf)
    first = tree.snapshot()
    (inner / "a.txt").write_text("two")
    assert tree.snapshot() == first
    assert first is not None
    assert not ran.exists()
    git(inner, "-c", "filter.odd.clean=", "-c", "core.fsmonitor=false", "commit", "-qam", "two")
    second = tree.snapshot()
    assert second not in (None, first)
    assert "-Subproject commit" in str(tree.patch(first, second))
    shutil.rmtree(inner)
    assert tree.snapshot() not in (None, first, second)
    assert not ran.exists()
