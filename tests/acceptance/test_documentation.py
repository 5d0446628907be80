"""Executes the documentation, page by page, as a reader would: in one folder, block after block."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.project import Project
from tests.documentation import PAGES, ROOT, Block, blocks

RUN = [page for page in PAGES if any(b.is_executed and b.language != "json" for b in blocks(page))]

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(240),
    pytest.mark.skipif(shutil.which("curl") is None, reason="the pages use curl"),
]

#: Keeps variables and the current folder from block to block.
SHELL = """\
set -ea
if [ -f "$STATE/variables" ]; then . "$STATE/variables"; cd "$(cat "$STATE/folder")"; fi
trap 'export -p >"$STATE/variables"; pwd >"$STATE/folder"' EXIT
"""


class Reader:
    """Runs the blocks of a page, in one folder, as somebody does who sees nothing but the page."""

    def __init__(self, project: Project, folder: Path, state: Path) -> None:
        self.folder = project.folder = folder
        project.env["STATE"] = str(state)
        self._project = project
        self._background: list[subprocess.Popen[str]] = []

    def follow(self, block: Block) -> None:
        """Execute a block, and compare its exit code and output with those on the page."""
        how = block.directives
        if "file" in how:
            self._project.write(how["file"], block.text)
        elif "in the background" in how:
            self._keep(["sh", "-c", "exec 2>&1\n" + block.text])
        elif block.language in ("sh", "console"):
            self._done(block, ["sh", "-c", SHELL + block.text])
        elif block.language == "python":
            self._done(block, [sys.executable, "-P", "-c", block.text])

    def close(self) -> None:
        """End the processes that the page left in the background."""
        for process in self._background:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=20)

    def _done(self, block: Block, command: list[str]) -> None:
        ended = self._project.ended(self._project.start(command), timeout=60)
        wanted = int(block.directives.get("exit code", 0))
        shown = f"{block.place}\n{block.text}\n{ended.out}\n{ended.err}"
        assert ended.code == wanted, f"exit code {ended.code}: {shown}"
        for words in block.directives.get("prints", "").split(" | "):
            assert words in ended.out + ended.err, f"{words!r} is not in: {shown}"

    def _keep(self, command: list[str]) -> None:
        """Start a command in another terminal, and look away once it has printed a line."""
        process = self._project.start(command)
        self._background.append(process)
        assert process.stdout is not None
        assert process.stdout.readline()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """The services of all pages, so that they start once."""
    project = Project(tmp_path_factory.mktemp("reader"))
    yield project
    project.close()


@pytest.fixture
def reader(project: Project, tmp_path: Path) -> Iterator[Reader]:
    """A reader in an empty folder."""
    folder = tmp_path / "reader"
    folder.mkdir()
    reader = Reader(project, folder, tmp_path)
    yield reader
    reader.close()


#: The pages of each run; the others take half a minute each.
QUICK = {"README.md", "docs/agents.md", "docs/python.md"}


def page_parameter(page: Path) -> pytest.ParameterSet:
    name = str(page.relative_to(ROOT))
    return pytest.param(page, id=name, marks=() if name in QUICK else pytest.mark.slow)


@pytest.mark.parametrize("page", [page_parameter(page) for page in RUN])
def test_page_does_what_it_says(page: Path, reader: Reader) -> None:
    if not page.is_relative_to(ROOT / "docs"):  # then it is read in a clone
        shutil.copytree(ROOT / "examples", reader.folder / "examples")
    for block in blocks(page):
        if block.is_executed or "file" in block.directives:
            reader.follow(block)


def test_commands_of_a_page_keep_variables_and_folder(reader: Reader) -> None:
    first = Block("page", 1, "sh", "mkdir -p here; cd here; A=1\n", {})
    second = Block("page", 2, "sh", 'echo "$A $(basename "$PWD")"\n', {"prints": "1 here"})
    for block in (first, second):
        reader.follow(block)


@pytest.mark.parametrize(
    "block",
    [
        Block("page", 1, "sh", "false\ntrue\n", {}),
        Block("page", 1, "sh", "echo one\n", {"prints": "two"}),
        Block("page", 1, "sh", "true\n", {"exit code": "3"}),
        Block("page", 1, "python", "raise SystemExit(1)\n", {}),
    ],
)
def test_a_block_that_fails_would_be_noticed(block: Block, reader: Reader) -> None:
    with pytest.raises(AssertionError, match="page:1"):
        reader.follow(block)
